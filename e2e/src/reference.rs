//! A second, simple reader of the same kernel files: it opens each file anew, splits it into lines and words,
//! and looks them up in a table that was written by hand from the kernel's documentation.

use std::collections::BTreeMap;
use std::fs;

use crate::cgroup::{Job, V2};
use crate::now_us;
use crate::stored::{Key, Series};

/// Version 1 writes this value for an unlimited resource.
const UNLIMITED: f64 = 9_223_372_036_854_771_712.0;

struct File {
    controller: &'static str,
    name: &'static str,
    /// The word before a value (or an empty string), the metric, and the factor.
    values: &'static [(&'static str, &'static str, f64)],
}

const fn file(
    controller: &'static str,
    name: &'static str,
    values: &'static [(&'static str, &'static str, f64)],
) -> File {
    File { controller, name, values }
}

/// Files of a job. If several values have one metric, the first readable one counts.
const FILES: &[File] = &[
    file(
        V2,
        "cpu.stat",
        &[
            ("usage_usec", "cpu.usage", 1e3),
            ("user_usec", "cpu.user", 1e3),
            ("system_usec", "cpu.system", 1e3),
            ("nice_usec", "cpu.nice", 1e3),
            ("core_sched.force_idle_usec", "cpu.force_idle", 1e3),
            ("nr_periods", "cpu.periods", 1.0),
            ("nr_throttled", "cpu.throttled.periods", 1.0),
            ("throttled_usec", "cpu.throttled.time", 1e3),
            ("nr_bursts", "cpu.bursts", 1.0),
            ("burst_usec", "cpu.burst.time", 1e3),
        ],
    ),
    file(V2, "cpu.stat.local", &[("throttled_usec", "cpu.local.throttled.time", 1e3)]),
    file("cpuacct", "cpuacct.usage", &[("", "cpu.usage", 1.0)]),
    file("cpuacct", "cpuacct.stat", &[("user", "cpu.user", 1e7), ("system", "cpu.system", 1e7)]),
    file(
        "cpu",
        "cpu.stat",
        &[
            ("nr_periods", "cpu.periods", 1.0),
            ("nr_throttled", "cpu.throttled.periods", 1.0),
            ("throttled_time", "cpu.throttled.time", 1.0),
            ("nr_bursts", "cpu.bursts", 1.0),
            ("burst_time", "cpu.burst.time", 1.0),
        ],
    ),
    file("cpu", "cpu.stat.local", &[("throttled_time", "cpu.local.throttled.time", 1.0)]),
    file("memory", "memory.usage_in_bytes", &[("", "memory.current", 1.0)]),
    file("memory", "memory.max_usage_in_bytes", &[("", "memory.peak", 1.0)]),
    file("memory", "memory.limit_in_bytes", &[("", "memory.limit", 1.0)]),
    file("memory", "memory.soft_limit_in_bytes", &[("", "memory.limit.soft", 1.0)]),
    file("memory", "memory.failcnt", &[("", "memory.events.max", 1.0)]),
    file(
        "memory",
        "memory.oom_control",
        &[("oom_kill", "memory.events.oom_kill", 1.0), ("under_oom", "memory.under_oom", 1.0)],
    ),
    file("memory", "memory.memsw.usage_in_bytes", &[("", "memory.memsw.current", 1.0)]),
    file("memory", "memory.memsw.max_usage_in_bytes", &[("", "memory.memsw.peak", 1.0)]),
    file("memory", "memory.memsw.limit_in_bytes", &[("", "memory.memsw.limit", 1.0)]),
    file("memory", "memory.memsw.failcnt", &[("", "memory.memsw.events.max", 1.0)]),
    file("memory", "memory.kmem.usage_in_bytes", &[("", "memory.kernel.current", 1.0)]),
    file("memory", "memory.kmem.tcp.usage_in_bytes", &[("", "memory.tcp.current", 1.0)]),
    file(
        "memory",
        "memory.stat",
        &[
            ("hierarchical_memory_limit", "memory.hierarchical_limit", 1.0),
            ("hierarchical_memsw_limit", "memory.hierarchical_swap_limit", 1.0),
        ],
    ),
    file("pids", "pids.current", &[("", "pids.current", 1.0)]),
    file("pids", "pids.peak", &[("", "pids.peak", 1.0)]),
    file("pids", "pids.max", &[("", "pids.limit", 1.0)]),
    file("pids", "pids.events", &[("max", "pids.events.max", 1.0)]),
];

/// Words of the version 1 memory.stat. The metric is `memory.local.WORD` for the word alone, and `memory.`
/// with the second name for the word with the prefix `total_`.
const STAT: &[(&str, &str)] = &[
    ("rss", "anon"),
    ("cache", "file"),
    ("rss_huge", "anon_thp"),
    ("shmem", "shmem"),
    ("mapped_file", "file_mapped"),
    ("dirty", "file_dirty"),
    ("writeback", "file_writeback"),
    ("swapcached", "swapcached"),
    ("inactive_anon", "inactive_anon"),
    ("active_anon", "active_anon"),
    ("inactive_file", "inactive_file"),
    ("active_file", "active_file"),
    ("unevictable", "unevictable"),
    ("pgfault", "pgfault"),
    ("pgmajfault", "pgmajfault"),
    ("workingset_refault_anon", "workingset_refault_anon"),
    ("workingset_refault_file", "workingset_refault_file"),
    ("workingset_refault", "workingset_refault"),
    ("swap", "swap"),
    ("pgpgin", "pgpgin"),
    ("pgpgout", "pgpgout"),
];

/// All values of a job that kernel files contain, and the time of the reading in microseconds since the
/// epoch.
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
        for file in FILES {
            for (word, metric, factor) in file.values {
                let is_known = values.contains_key(&key(metric, ""));
                let value = read(job, file.controller, file.name, word).filter(|value| *value < UNLIMITED);
                if let Some(value) = value.filter(|_| !is_known) {
                    values.insert(key(metric, ""), value * factor);
                }
            }
        }
        for (word, name) in STAT {
            let lines = [
                (format!("memory.local.{word}"), (*word).to_owned()),
                (format!("memory.{name}"), format!("total_{word}")),
            ];
            for (metric, word) in lines {
                let value = read(job, "memory", "memory.stat", &word);
                values.extend(value.map(|value| (key(&metric, ""), value)));
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

/// Checks that each stored value of a counter lies between the kernel's values in the snapshots before and
/// after it.
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
