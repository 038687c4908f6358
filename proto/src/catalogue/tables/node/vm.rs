//! Virtual memory of the node. Source: `/proc/vmstat`.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::catalogue::text_file::{Cell, Field, Form, Row, Scale, TextFile};
use crate::period::Period;
use crate::series::Unit::Count;

/// The kernel adds up the per-CPU counts every `vm.stat_interval`, one second by default.
static VMSTAT: TextFile = TextFile::proc("vmstat", Form::Keyed).updated_every(Period::SECOND);

/// Creates the origin of lines of vmstat with this prefix.
const fn instances(prefix: &'static str) -> Origin {
    Origin::Text {
        file: &VMSTAT,
        field: Field { row: Row::Instance(prefix), cell: Cell::Word(1), scale: Scale::Times(1) },
    }
}

/// The node's virtual memory.
pub(crate) static METRICS: &[Metric] = &[
    Metric::counter("node.vm.nr_dirtied", Count, &[VMSTAT.key("nr_dirtied")], "Pages made dirty.").of_node(),
    Metric::counter("node.vm.nr_written", Count, &[VMSTAT.key("nr_written")], "Pages written back.")
        .of_node(),
    Metric::counter(
        "node.vm.nr_vmscan_write",
        Count,
        &[VMSTAT.key("nr_vmscan_write")],
        "Pages written by reclaim.",
    )
    .of_node(),
    Metric::counter(
        "node.vm.nr_vmscan_immediate_reclaim",
        Count,
        &[VMSTAT.key("nr_vmscan_immediate_reclaim")],
        "Pages under write-back that reclaim marked to be reclaimed next.",
    )
    .of_node(),
    Metric::gauge(
        "node.vm.workingset_nodes",
        Count,
        &[VMSTAT.key("workingset_nodes")],
        "Shadow nodes of the page cache.",
    )
    .of_node(),
    Metric::gauge("node.vm.nr_*", Count, &[instances("nr_")], "The line of vmstat with this name, a level.")
        .of_node(),
    Metric::counter("node.vm.*", Count, &[instances("")], "The line of vmstat with this name.").of_node(),
];
