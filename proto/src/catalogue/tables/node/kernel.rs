//! Interrupts, scheduling and load of the node. Source: `/proc/stat` and `/proc/loadavg`.

use super::STAT;
use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::catalogue::text_file::{Cell, Field, Form, Row, Scale, TextFile};
use crate::series::Unit::Count;

static LOADAVG: TextFile = TextFile::proc("loadavg", Form::Values);

const fn load(word: usize) -> Origin {
    Origin::Text {
        file: &LOADAVG,
        field: Field { row: Row::Only, cell: Cell::Word(word), scale: Scale::Decimal },
    }
}

/// The node's kernel.
pub(crate) static METRICS: &[Metric] = &[
    Metric::counter("node.interrupts", Count, &[STAT.key("intr")], "Interrupts.").of_node(),
    Metric::counter("node.softirqs", Count, &[STAT.key("softirq")], "Soft interrupts.").of_node(),
    Metric::counter("node.context_switches", Count, &[STAT.key("ctxt")], "Context switches.").of_node(),
    Metric::counter("node.forks", Count, &[STAT.key("processes")], "Processes and threads started.")
        .of_node(),
    Metric::gauge("node.processes.running", Count, &[STAT.key("procs_running")], "Runnable processes.")
        .of_node(),
    Metric::gauge("node.processes.blocked", Count, &[STAT.key("procs_blocked")], "Processes blocked on I/O.")
        .of_node(),
    Metric::gauge("node.load1", Count, &[load(0)], "Load average over one minute.").of_node().float(),
    Metric::gauge("node.load5", Count, &[load(1)], "Load average over five minutes.").of_node().float(),
    Metric::gauge("node.load15", Count, &[load(2)], "Load average over fifteen minutes.").of_node().float(),
];
