//! Call stacks. Source: perf_event_open(2).

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::{Origin, STACKS_DWARF_KIND, STACKS_KIND, STACKS_WAIT_KIND};
use crate::series::Unit::Count;

pub(crate) static METRICS: &[Metric] = &[
    Metric::counter(
        "stacks.cpu",
        Count,
        &[Origin::source(STACKS_KIND, "cpu", "call chains of the perf event `cpu-clock`")],
        "Samples of the call stacks of the job's running threads, taken once a period on each CPU.",
    ),
    Metric::counter(
        "stacks.cpu_dwarf",
        Count,
        &[Origin::source(
            STACKS_DWARF_KIND,
            "cpu",
            "stacks of the perf event `cpu-clock`, unwound by `.eh_frame`",
        )],
        "As `stacks.cpu`, with callers that are found without frame pointers.",
    ),
    Metric::counter(
        "stacks.wait",
        Count,
        &[Origin::source(
            STACKS_WAIT_KIND,
            "wait",
            "stacks of the perf event `context-switches`, unwound by `.eh_frame`",
        )],
        "Samples of the call stacks of the job's threads that are switched out, one for each period of such time.",
    ),
];
