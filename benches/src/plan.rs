//! The sampling plans of the experiments: the metrics of a job that a cgroup of this machine can have.

use std::fmt::{Display, Write};

use polymeter_proto::catalogue::{self, Origin};

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

/// Metrics of a job: those of cpu.stat first, then memory.stat, then the software events if `perf` is set.
/// Some may be missing on this machine; the agent reports and skips them.
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

/// Writes a baseline that samples `metrics` at `period`, which may have a window, as TOML.
pub fn baseline<S: AsRef<str>>(metrics: impl IntoIterator<Item = S>, period: impl Display) -> String {
    let mut text = "[baseline]\n".to_owned();
    for metric in metrics {
        // Writing to a `String` does not fail.
        writeln!(text, "\"{}\" = \"{period}\"", metric.as_ref()).ok();
    }
    text
}
