//! Pressure stall information of a job and of the node. Source: `Documentation/accounting/psi.rst` of Linux;
//! of jobs on version 2 of cgroups only.

use crate::catalogue::metric::{Metric, Scope};
use crate::catalogue::text_file::{Form, Row, Scale, TextFile};
use crate::series::Kind;
use crate::series::Unit::{Nanoseconds, Percent};

static JOB_CPU: TextFile = TextFile::v2("cpu.pressure", Form::Pairs);
static JOB_MEMORY: TextFile = TextFile::v2("memory.pressure", Form::Pairs);
static JOB_IO: TextFile = TextFile::v2("io.pressure", Form::Pairs);
static JOB_IRQ: TextFile = TextFile::v2("irq.pressure", Form::Pairs);

static NODE_CPU: TextFile = TextFile::proc("pressure/cpu", Form::Pairs);
static NODE_MEMORY: TextFile = TextFile::proc("pressure/memory", Form::Pairs);
static NODE_IO: TextFile = TextFile::proc("pressure/io", Form::Pairs);
static NODE_IRQ: TextFile = TextFile::proc("pressure/irq", Form::Pairs);

/// Nanoseconds in a microsecond.
const US_NS: u64 = 1_000;

/// Declares the metrics of lines: the total, and the shares of the last 10 s, 60 s and 300 s.
macro_rules! lines {
    ($scope:ident $prefix:literal: $($file:ident $resource:literal $line:literal $state:literal;)*) => {
        &[$(
            Metric::new(
                concat!($prefix, $resource, ".", $line, ".total"),
                Nanoseconds,
                Kind::Counter,
                Scope::$scope,
                &[$file.named(Row::Key($line), "total", Scale::Times(US_NS))],
                concat!("Time that ", $state, "."),
            ),
            lines!(share $scope $prefix $file $resource $line "10" $state),
            lines!(share $scope $prefix $file $resource $line "60" $state),
            lines!(share $scope $prefix $file $resource $line "300" $state),
        )*]
    };
    (share $scope:ident $prefix:literal $file:ident $resource:literal $line:literal $seconds:literal $state:literal) => {
        Metric::new(
            concat!($prefix, $resource, ".", $line, ".avg", $seconds),
            Percent,
            Kind::Gauge,
            Scope::$scope,
            &[$file.named(Row::Key($line), concat!("avg", $seconds), Scale::Decimal)],
            concat!("Share of the last ", $seconds, " s that ", $state, "."),
        )
        .float()
    };
}

/// Declares the metrics of the four files.
macro_rules! files {
    ($scope:ident $prefix:literal: $cpu:ident $memory:ident $io:ident $irq:ident) => {
        lines! { $scope $prefix:
            $cpu "cpu" "some" "some process waited for a CPU";
            $cpu "cpu" "full" "every process waited for a CPU";
            $memory "memory" "some" "some process waited for memory";
            $memory "memory" "full" "every process waited for memory";
            $io "io" "some" "some process waited for I/O";
            $io "io" "full" "every process waited for I/O";
            $irq "irq" "full" "every process waited for interrupts";
        }
    };
}

pub(crate) static JOB: &[Metric] = files!(Job "pressure.": JOB_CPU JOB_MEMORY JOB_IO JOB_IRQ);

pub(crate) static NODE: &[Metric] = files!(Node "node.pressure.": NODE_CPU NODE_MEMORY NODE_IO NODE_IRQ);
