//! A second, simple reader of the same kernel files: it opens each file anew, splits it into lines and words, and looks
//! them up in a table that was written by hand from the kernel's documentation.

use std::collections::BTreeMap;
use std::fs;

use crate::cgroup::{Job, V2};
use crate::now_us;
use crate::stored::{Key, Series};

/// The value that version 1 writes for an unlimited resource.
const UNLIMITED: f64 = 9_223_372_036_854_771_712.0;

/// Metric, controller, file, the word before the value (or an empty string), and factor. If several lines name one
/// metric, the first readable one counts.
type Line = (&'static str, &'static str, &'static str, &'static str, f64);

const LINES: &[Line] = &[
    ("cpu.usage", V2, "cpu.stat", "usage_usec", 1e3),
    ("cpu.usage", "cpuacct", "cpuacct.usage", "", 1.0),
    ("cpu.user", V2, "cpu.stat", "user_usec", 1e3),
    ("cpu.user", "cpuacct", "cpuacct.stat", "user", 1e7),
    ("cpu.system", V2, "cpu.stat", "system_usec", 1e3),
    ("cpu.system", "cpuacct", "cpuacct.stat", "system", 1e7),
    ("cpu.nice", V2, "cpu.stat", "nice_usec", 1e3),
    ("cpu.force_idle", V2, "cpu.stat", "core_sched.force_idle_usec", 1e3),
    ("cpu.periods", V2, "cpu.stat", "nr_periods", 1.0),
    ("cpu.periods", "cpu", "cpu.stat", "nr_periods", 1.0),
    ("cpu.throttled.periods", V2, "cpu.stat", "nr_throttled", 1.0),
    ("cpu.throttled.periods", "cpu", "cpu.stat", "nr_throttled", 1.0),
    ("cpu.throttled.time", V2, "cpu.stat", "throttled_usec", 1e3),
    ("cpu.throttled.time", "cpu", "cpu.stat", "throttled_time", 1.0),
    ("cpu.bursts", V2, "cpu.stat", "nr_bursts", 1.0),
    ("cpu.bursts", "cpu", "cpu.stat", "nr_bursts", 1.0),
    ("cpu.burst.time", V2, "cpu.stat", "burst_usec", 1e3),
    ("cpu.burst.time", "cpu", "cpu.stat", "burst_time", 1.0),
    ("cpu.local.throttled.time", V2, "cpu.stat.local", "throttled_usec", 1e3),
    ("cpu.local.throttled.time", "cpu", "cpu.stat.local", "throttled_time", 1.0),
    ("memory.current", "memory", "memory.usage_in_bytes", "", 1.0),
    ("memory.peak", "memory", "memory.max_usage_in_bytes", "", 1.0),
    ("memory.limit", "memory", "memory.limit_in_bytes", "", 1.0),
    ("memory.limit.soft", "memory", "memory.soft_limit_in_bytes", "", 1.0),
    ("memory.events.max", "memory", "memory.failcnt", "", 1.0),
    ("memory.events.oom_kill", "memory", "memory.oom_control", "oom_kill", 1.0),
    ("memory.under_oom", "memory", "memory.oom_control", "under_oom", 1.0),
    ("memory.memsw.current", "memory", "memory.memsw.usage_in_bytes", "", 1.0),
    ("memory.memsw.peak", "memory", "memory.memsw.max_usage_in_bytes", "", 1.0),
    ("memory.memsw.limit", "memory", "memory.memsw.limit_in_bytes", "", 1.0),
    ("memory.memsw.events.max", "memory", "memory.memsw.failcnt", "", 1.0),
    ("memory.kernel.current", "memory", "memory.kmem.usage_in_bytes", "", 1.0),
    ("memory.tcp.current", "memory", "memory.kmem.tcp.usage_in_bytes", "", 1.0),
    ("memory.hierarchical_limit", "memory", "memory.stat", "hierarchical_memory_limit", 1.0),
    ("memory.hierarchical_swap_limit", "memory", "memory.stat", "hierarchical_memsw_limit", 1.0),
    ("pids.current", "pids", "pids.current", "", 1.0),
    ("pids.peak", "pids", "pids.peak", "", 1.0),
    ("pids.limit", "pids", "pids.max", "", 1.0),
    ("pids.events.max", "pids", "pids.events", "max", 1.0),
];

/// Words of the version 1 memory.stat, with the metrics of the word without and with the prefix `total_`.
const STAT: &[(&str, &str, &str)] = &[
    ("rss", "memory.local.rss", "memory.anon"),
    ("cache", "memory.local.cache", "memory.file"),
    ("rss_huge", "memory.local.rss_huge", "memory.anon_thp"),
    ("shmem", "memory.local.shmem", "memory.shmem"),
    ("mapped_file", "memory.local.mapped_file", "memory.file_mapped"),
    ("dirty", "memory.local.dirty", "memory.file_dirty"),
    ("writeback", "memory.local.writeback", "memory.file_writeback"),
    ("swapcached", "memory.local.swapcached", "memory.swapcached"),
    ("inactive_anon", "memory.local.inactive_anon", "memory.inactive_anon"),
    ("active_anon", "memory.local.active_anon", "memory.active_anon"),
    ("inactive_file", "memory.local.inactive_file", "memory.inactive_file"),
    ("active_file", "memory.local.active_file", "memory.active_file"),
    ("unevictable", "memory.local.unevictable", "memory.unevictable"),
    ("pgfault", "memory.local.pgfault", "memory.pgfault"),
    ("pgmajfault", "memory.local.pgmajfault", "memory.pgmajfault"),
    ("workingset_refault_anon", "memory.local.workingset_refault_anon", "memory.workingset_refault_anon"),
    ("workingset_refault_file", "memory.local.workingset_refault_file", "memory.workingset_refault_file"),
    ("workingset_refault", "memory.local.workingset_refault", "memory.workingset_refault"),
    ("swap", "memory.local.swap", "memory.swap"),
    ("pgpgin", "memory.local.pgpgin", "memory.pgpgin"),
    ("pgpgout", "memory.local.pgpgout", "memory.pgpgout"),
];

/// All values of a job that kernel files contain, and the time of the reading in microseconds since the epoch.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub begin_us: i64,
    pub end_us: i64,
    pub values: BTreeMap<Key, f64>,
}

impl Snapshot {
    pub fn take(job: &Job) -> Self {
        let begin_us = now_us();
        let mut values = BTreeMap::new();
        for (metric, controller, file, word, factor) in LINES {
            let known = values.contains_key(&key(metric, ""));
            if let Some(value) =
                read(job, controller, file, word).filter(|value| !known && *value < UNLIMITED)
            {
                values.insert(key(metric, ""), value * factor);
            }
        }
        for (word, local, total) in STAT {
            let lines = [(*local, (*word).to_owned()), (*total, format!("total_{word}"))];
            for (metric, word) in lines {
                values
                    .extend(read(job, "memory", "memory.stat", &word).map(|value| (key(metric, ""), value)));
            }
        }
        let per_cpu = text(job, "cpuacct", "cpuacct.usage_percpu");
        for (cpu, value) in per_cpu.split_whitespace().enumerate() {
            values.insert(key("cpu.usage.per_cpu", &format!("cpu={cpu}")), value.parse().unwrap());
        }
        for line in text(job, "cpuacct", "cpuacct.usage_all").lines().skip(1) {
            let words: Vec<&str> = line.split(' ').collect();
            let label = format!("cpu={}", words[0]);
            values.insert(key("cpu.user.per_cpu", &label), words[1].parse().unwrap());
            values.insert(key("cpu.system.per_cpu", &label), words[2].parse().unwrap());
        }
        Self { begin_us, end_us: now_us(), values }
    }
}

/// Asserts that each stored value of a counter lies between the kernel's values in the snapshot before it and the
/// snapshot after it.
pub fn assert_between(samples: &BTreeMap<Key, Series>, snapshots: &[Snapshot]) {
    let mut compared = 0;
    for (key, series) in samples.iter().filter(|(_, series)| series.kind == "counter") {
        for around in series.points.windows(3) {
            let (before_us, (time_us, value), after_us) = (around[0].0, around[1], around[2].0);
            assert!(around[0].1 <= value, "{key:?} went back at {time_us}");
            let earlier = snapshots.partition_point(|snapshot| snapshot.end_us < before_us);
            let not_later = snapshots.partition_point(|snapshot| snapshot.begin_us <= after_us);
            let (low, high) = (snapshots[..earlier].last(), snapshots.get(not_later));
            let (low, high) = [low, high].map(|at| at.and_then(|at| at.values.get(key).copied())).into();
            assert!(low.is_none_or(|low| low <= value), "{key:?} at {time_us}: {value}, before it {low:?}");
            assert!(
                high.is_none_or(|high| value <= high),
                "{key:?} at {time_us}: {value}, after it {high:?}"
            );
            compared += u32::from(low.is_some() && high.is_some());
        }
    }
    assert!(compared > 500, "only {compared} values were compared");
}

fn key(metric: &str, labels: &str) -> Key {
    (metric.to_owned(), labels.to_owned())
}

fn text(job: &Job, controller: &str, file: &str) -> String {
    fs::read_to_string(job.directory(controller).join(file)).unwrap_or_default()
}

fn read(job: &Job, controller: &str, file: &str, word: &str) -> Option<f64> {
    let text = text(job, controller, file);
    let value = if word.is_empty() {
        Some(text.trim())
    } else {
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .find(|(name, _)| *name == word)
            .map(|(_, value)| value)
    };
    // An unlimited resource is written as `max`, which is not a number.
    value?.trim().parse().ok()
}
