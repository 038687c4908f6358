//! What the experiments let an agent sample: the metrics of a job that a cgroup of this machine has.

use std::fmt::Write;

use polymeter_proto::catalogue::{self, Origin};
use polymeter_proto::period::Period;

/// Software events that every machine has.
pub const EVENTS: [&str; 8] = [
    "cpu_clock",
    "task_clock",
    "page_faults",
    "page_faults_minor",
    "page_faults_major",
    "context_switches",
    "cpu_migrations",
    "alignment_faults",
];

/// The metrics of a job: of cpu.stat first, then the lines of memory.stat, last, if wished, the software events. Those that
/// this machine does not have are among them: the agent says which, and goes on.
pub fn job_metrics(perf: bool) -> Vec<String> {
    let of_cpu = ["cpu.usage", "cpu.user", "cpu.system"].map(str::to_owned);
    let of_stat = catalogue::all().filter(|metric| {
        let in_stat =
            |origin: &Origin| matches!(origin, Origin::Text { file, .. } if file.path == "memory.stat");
        metric.origins.iter().any(in_stat) && !metric.name.contains("hierarchical")
    });
    let events = EVENTS.iter().filter(|_| perf).map(|event| format!("perf.{event}"));
    of_cpu.into_iter().chain(of_stat.map(|metric| metric.name.to_owned())).chain(events).collect()
}

/// A baseline by which `metrics` are sampled at `period`.
pub fn baseline<S: AsRef<str>>(metrics: impl IntoIterator<Item = S>, period: Period) -> String {
    let mut text = "[baseline]\n".to_owned();
    for metric in metrics {
        // Writing to a text does not fail.
        writeln!(text, "\"{}\" = \"{period}\"", metric.as_ref()).ok();
    }
    text
}
