//! CPU time of the node, by state. Source: `/proc/stat`.

use super::STAT;
use crate::catalogue::metric::Metric;
use crate::catalogue::text_file::Row;
use crate::series::Unit::Nanoseconds;

/// Declares the metrics of the columns of lines, each with its number and the text of its help.
macro_rules! columns {
    ($row:expr, $suffix:literal, $of:literal: $($name:literal $column:literal $state:literal;)*) => {
        &[$(Metric::counter(
            concat!("node.cpu.", $name, $suffix),
            Nanoseconds,
            &[STAT.ticks($row, $column)],
            concat!("CPU time ", $state, ", of ", $of, "."),
        )
        .of_node()),*]
    };
}

/// Declares the metric of each state.
macro_rules! states {
    ($row:expr, $suffix:literal, $of:literal) => {
        columns! { $row, $suffix, $of:
            "user" 1 "in user mode, guests included";
            "nice" 2 "in user mode at a lowered priority";
            "system" 3 "in the kernel";
            "idle" 4 "idle";
            "iowait" 5 "idle while waiting for I/O";
            "irq" 6 "in interrupts";
            "softirq" 7 "in soft interrupts";
            "steal" 8 "taken by the hypervisor";
            "guest" 9 "in virtual machines";
            "guest_nice" 10 "in virtual machines at a lowered priority";
        }
    };
}

const ALL_CPUS: Row = Row::Key("cpu");
const EACH_CPU: Row = Row::Each { label: "cpu", prefix: "cpu", numeric: true };

/// All CPUs together.
pub(crate) static METRICS: &[Metric] = states!(ALL_CPUS, "", "all CPUs");

pub(crate) static PER_CPU: &[Metric] = states!(EACH_CPU, ".per_cpu", "each CPU");
