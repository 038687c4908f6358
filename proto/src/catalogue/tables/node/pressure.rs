//! Pressure stall information of the node. Source: `Documentation/accounting/psi.rst` of Linux.

use crate::catalogue::metric::{Metric, Scope};
use crate::catalogue::text_file::{Form, Row, Scale, TextFile};
use crate::series::Kind;
use crate::series::Unit::{Nanoseconds, Percent};

static CPU: TextFile = TextFile::proc("pressure/cpu", Form::Pairs);
static MEMORY: TextFile = TextFile::proc("pressure/memory", Form::Pairs);
static IO: TextFile = TextFile::proc("pressure/io", Form::Pairs);
static IRQ: TextFile = TextFile::proc("pressure/irq", Form::Pairs);

/// Nanoseconds in a microsecond.
const US_NS: u64 = 1_000;

/// Declares the metrics of each line: the total, and the shares of the last 10 s, 60 s and 300 s.
macro_rules! metrics {
    ($($file:ident $resource:literal $line:literal $state:literal;)*) => {
        &[$(
            Metric::counter(
                concat!("node.pressure.", $resource, ".", $line, ".total"),
                Nanoseconds,
                &[$file.named(Row::Key($line), "total", Scale::Times(US_NS))],
                concat!("Time that ", $state, "."),
            )
            .of_node(),
            metrics!(share $file $resource $line "10" $state),
            metrics!(share $file $resource $line "60" $state),
            metrics!(share $file $resource $line "300" $state),
        )*]
    };
    (share $file:ident $resource:literal $line:literal $seconds:literal $state:literal) => {
        Metric::new(
            concat!("node.pressure.", $resource, ".", $line, ".avg", $seconds),
            Percent,
            Kind::Gauge,
            Scope::Node,
            &[$file.named(Row::Key($line), concat!("avg", $seconds), Scale::Decimal)],
            concat!("Share of the last ", $seconds, " s that ", $state, "."),
        )
        .float()
    };
}

/// The node's pressure.
pub(crate) static METRICS: &[Metric] = metrics! {
    CPU "cpu" "some" "some process waited for a CPU";
    CPU "cpu" "full" "every process waited for a CPU";
    MEMORY "memory" "some" "some process waited for memory";
    MEMORY "memory" "full" "every process waited for memory";
    IO "io" "some" "some process waited for I/O";
    IO "io" "full" "every process waited for I/O";
    IRQ "irq" "full" "every process waited for interrupts";
};
