//! Metrics that no source reads: programs count them and send them to the agent, or the agent finds them.

use super::metric::Metric;
use crate::series::Unit::{Count, Nanoseconds};

/// Metrics of the regions of instrumented programs, in the order of the values of a region. Each has the
/// labels `region`, `process`, and `rank` where a launcher numbers processes.
pub static REGIONS: [Metric; 5] = [
    Metric::counter("region.entries", Count, &[], "Entries into a region."),
    Metric::counter(
        "region.time",
        Nanoseconds,
        &[],
        "Time in a region, those inside it included, summed over the threads of the process.",
    ),
    Metric::counter(
        "region.self_time",
        Nanoseconds,
        &[],
        "Time in a region, but in none inside it, summed over the threads of the process.",
    ),
    Metric::counter(
        "region.thread_time",
        Nanoseconds,
        &[],
        "Time in a region of that thread of the process which spent most in it.",
    ),
    Metric::gauge("region.threads", Count, &[], "Threads of the process that have entered a region."),
];

/// Rank of a process, by the labels `process` and `rank`: one value for each process whose call stacks are
/// sampled and that a launcher has numbered.
pub static PROCESS_RANK: Metric =
    Metric::gauge("process.rank", Count, &[], "Rank of a process whose call stacks are sampled.");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::find;
    use crate::name::MetricName;

    #[test]
    fn names_are_valid_and_no_source_has_them() {
        for metric in REGIONS.iter().chain([&PROCESS_RANK]) {
            assert!(MetricName::new(metric.name).is_ok() && find(metric.name).is_none(), "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{}: help is a sentence", metric.name);
        }
    }
}
