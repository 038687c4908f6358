//! Call stacks. Source: perf_event_open(2).

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::{Origin, STACKS_KIND};
use crate::series::Unit::Count;

pub(crate) static METRICS: &[Metric] = &[Metric::counter(
    "stacks.cpu",
    Count,
    &[Origin::source(STACKS_KIND, "cpu", "call chains of the perf event `cpu-clock`")],
    "Samples of the call stacks of the job's running threads, taken once a period on each CPU.",
)];
