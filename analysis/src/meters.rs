//! Meters of a job: which share of its resources it used. Pure.

use polymeter_proto::units;
use serde::Serialize;

use crate::advice::facts::Facts;
use crate::advice::verdict::cores_text;
use crate::model::{MemoryKind, Report, Resource, Severity};

/// Share of the CPU time or of a GPU below which a meter is a warning, and below which it is critical: those
/// of the built-in rules `moderate-cpu-efficiency` and `low-cpu-efficiency`.
const LOW: (f64, f64) = (0.8, 0.65);

/// Share of a limit above which a meter is a warning, and above which it is critical.
const HIGH: (f64, f64) = (0.9, 0.95);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Plain,
    Good,
    /// Use that deserves attention.
    Warning,
    /// Use that wastes resources or time.
    Critical,
}

type Judgement = (Level, &'static str);

const UNJUDGED: Judgement = (Level::Plain, "");

/// Has a share of what was available if both are known.
#[derive(Debug, Serialize)]
pub struct Meter {
    pub label: &'static str,
    /// Part of what was available; none if it is unknown.
    pub share: Option<f64>,
    pub level: Level,
    /// Meaning of the share; empty without a judgement.
    pub word: &'static str,
    /// Used amount, in words.
    pub text: String,
}

fn bytes_text(bytes: f64) -> String {
    units::value("bytes", bytes)
}

/// Describes the used memory, of the request, else of the limit. What the limit does not count stands beside
/// it.
fn memory_text(report: &Report, facts: &Facts, used: f64) -> String {
    let node = if report.nodes.len() > 1 { " a node" } else { "" };
    let kind = report.memory_kind();
    let request = facts.number("memory_request");
    let counted = facts.number("memory_counted").filter(|_| request.is_none()).unwrap_or(used);
    let of = request.or(facts.number("memory_limit")).map(bytes_text);
    let of = of.map_or_else(String::new, |limit| format!(" of {limit}"));
    if kind == Some(MemoryKind::WithHugePages) && counted < used {
        return format!("{}{of}{node}, and huge pages: {} in all", bytes_text(counted), bytes_text(used));
    }
    format!("{}{of}{node}, {}", bytes_text(counted), kind.map_or("", MemoryKind::short))
}

/// Meters of CPU, memory, GPU and time: of those whose use is known.
pub fn meters(report: &Report, facts: &Facts) -> Vec<Meter> {
    let number = |name: &str| facts.number(name);
    let of = |limit: Option<String>| limit.map_or_else(String::new, |limit| format!(" of {limit}"));
    let cpu = number("cores_used").map(|used| {
        let all = number("cores").map(|all| units::counted(format!("{all:.0}"), "core"));
        let noun = if all.is_none() { " cores" } else { "" };
        let threads = number("cpus")
            .filter(|_| number("cpus_per_core").is_some_and(|threads| threads > 1.0))
            .map_or_else(String::new, |threads| format!(" ({threads:.0} hardware threads)"));
        format!("{}{noun}{}{threads} in use on average", cores_text(used), of(all))
    });
    let available = number("memory_request").or(number("memory_limit"));
    let memory = number("memory_used").map(|used| memory_text(report, facts, used));
    let memory_share = number("memory_request_used").or(number("memory_used_share"));
    // What was used between two samples is unknown.
    let bound_share = number("memory_bound").zip(available);
    let may_be_high = bound_share.is_some_and(|(bound, all)| bound > HIGH.0 * all);
    let judge_memory = if may_be_high { unless_good } else { high };
    let gpu = number("gpu_utilization").map(|_| {
        let gpus = format!("{:.0}", number("gpus_sampled").unwrap_or_default());
        format!("mean utilization of {}", units::counted(gpus, "GPU"))
    });
    let limit = number("time_limit").map(units::elapsed);
    let time = number("elapsed").map(|elapsed| format!("{}{}", units::elapsed(elapsed), of(limit)));
    let meter = |label, resource, share: Option<f64>, judge: fn(f64) -> Judgement, text: Option<String>| {
        let judged = share.map_or(UNJUDGED, judge);
        let (level, word) = if judged.0 == Level::Good { beside_findings(report, resource) } else { judged };
        text.map(|text| Meter { label, share, level, word, text })
    };
    // A job that works on GPUs may need few of the cores that came with them.
    let has_gpus = number("gpus").is_some_and(|gpus| gpus > 0.0);
    let judge_cpu = if has_gpus { |_| UNJUDGED } else { low };
    // Time in which the job was suspended is not judged.
    let judged_cpu = meter("CPU", Resource::Cpu, number("active_efficiency"), judge_cpu, cpu);
    [
        judged_cpu.map(|judged| Meter { share: number("cpu_efficiency"), ..judged }),
        meter("memory", Resource::Memory, memory_share, judge_memory, memory),
        meter("GPU", Resource::Gpu, number("gpu_utilization"), low, gpu),
        meter("time", Resource::Time, number("time_limit_used"), |_| UNJUDGED, time),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Judges a share that would be good if there was no finding about the resource.
fn beside_findings(report: &Report, resource: Resource) -> Judgement {
    let about = report.findings.iter().filter(|finding| finding.resource == Some(resource));
    match about.map(|finding| finding.severity).max() {
        None => (Level::Good, "good"),
        Some(Severity::Note) => (Level::Plain, "see the findings"),
        Some(Severity::Warning) => (Level::Warning, "see the findings"),
        Some(Severity::Critical) => (Level::Critical, "see the findings"),
    }
}

const fn unless_good(share: f64) -> Judgement {
    if share > HIGH.0 { high(share) } else { UNJUDGED }
}

const fn low(share: f64) -> Judgement {
    if share < LOW.1 {
        (Level::Critical, "very low")
    } else if share < LOW.0 {
        (Level::Warning, "low")
    } else {
        (Level::Good, "good")
    }
}

const fn high(share: f64) -> Judgement {
    if share > HIGH.1 {
        (Level::Critical, "very high")
    } else if share > HIGH.0 {
        (Level::Warning, "high")
    } else {
        (Level::Good, "good")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Advice;
    use crate::testing::{busy, gauge, on, report};

    fn meter(mut report: Report, label: &str) -> Meter {
        Advice::built_in().advise(&mut report);
        let meters = meters(&report, &Facts::of(&report));
        meters.into_iter().find(|meter| meter.label == label).unwrap()
    }

    /// Series of a job that uses its 8 cores, with these gauges besides.
    fn job(gauges: &[(&str, f64)]) -> Report {
        let mut series = vec![busy("n1", &[7.8; 60])];
        series.extend(gauges.iter().map(|(metric, value)| gauge(metric, &[*value; 60])));
        let mut job = report(60, 8, series);
        job.submission.memory_bytes = Some(100 << 30);
        job
    }

    #[test]
    fn the_memory_of_a_job_that_ran_out_of_it_is_the_peak() {
        const MIB: f64 = 1_048_576.0;
        let sampled =
            [("memory.anon", 3.0 * MIB), ("memory.peak", 300.0 * MIB), ("memory.limit", 300.0 * MIB)];
        for labels in ["", "step=0"] {
            let kill = crate::model::SeriesReport {
                growth: Some(1.0),
                ..crate::testing::counter("memory.events.oom_kill", &[0.0])
            };
            let kill = if labels.is_empty() { kill } else { crate::testing::labelled(kill, labels) };
            let series = job(&sampled).series.into_iter().chain([kill]).collect();
            let mut killed = report(60, 8, series);
            killed.submission.memory_bytes = Some(300 << 20);
            let meter = meter(killed, "memory");
            assert_eq!((meter.share, meter.level, meter.word), (Some(1.0), Level::Critical, "very high"));
            assert_eq!(meter.text, "300 MiB of 300 MiB, peak of the cgroup");
        }
        // Without a sample of the peak nothing contradicts the finding.
        let mut unseen = job(&[("memory.anon", 3.0 * MIB)]);
        unseen.outcome.state = Some("OUT_OF_MEMORY".to_owned());
        let meter = meter(unseen, "memory");
        assert_eq!((meter.level, meter.word), (Level::Critical, "see the findings"));
    }

    const GIB: f64 = 1_073_741_824.0;

    fn in_gib(node: &str, metric: &str, gib: &[f64]) -> crate::model::SeriesReport {
        let bytes: Vec<f64> = gib.iter().map(|gib| gib * GIB).collect();
        on(node, gauge(metric, &bytes))
    }

    fn memory_meter(gauges: &[(&str, &str, Vec<f64>)]) -> Meter {
        let mut series = vec![busy("n1", &[7.8; 60])];
        series.extend(gauges.iter().map(|(node, metric, gib)| in_gib(node, metric, gib)));
        meter(report(60, 8, series), "memory")
    }

    #[test]
    fn memory_is_measured_by_the_limit_that_held_for_it() {
        let all = |gib: f64| vec![gib; 60];
        // The node that is nearest to its limit, and not the one that uses most.
        let nodes = [
            ("n1", "memory.anon", all(3.0)),
            ("n1", "memory.limit", all(4.0)),
            ("n2", "memory.anon", all(50.0)),
            ("n2", "memory.limit", all(100.0)),
        ];
        let found = memory_meter(&nodes);
        assert_eq!((found.share, found.text.as_str()), (Some(0.75), "3 GiB of 4 GiB a node, anon + shmem"));
        // A limit that changes: 1, then 4, then 3.5 GiB.
        let limits = [vec![1.0; 20], vec![4.0; 20], vec![3.5; 20]].concat();
        let used = [vec![0.5; 20], vec![3.8; 20], vec![2.0; 20]].concat();
        let found = memory_meter(&[("n1", "memory.anon", used), ("n1", "memory.limit", limits)]);
        assert_eq!((found.share, found.text.as_str()), (Some(0.95), "3.80 GiB of 4 GiB, anon + shmem"));
        // Huge pages that the limit does not count.
        let beside = [
            ("n1", "memory.anon", all(0.5)),
            ("n1", "hugetlb.current", all(50.0)),
            ("n1", "memory.peak", all(0.5)),
            ("n1", "memory.limit", all(64.0)),
        ];
        let found = memory_meter(&beside);
        assert_eq!(found.share, Some(0.5 / 64.0));
        assert_eq!(found.text, "512 MiB of 64 GiB, and huge pages: 50.5 GiB in all");
    }

    fn findings(limit: f64) -> Vec<(String, String)> {
        let kill = crate::model::SeriesReport {
            growth: Some(2.0),
            ..crate::testing::counter("memory.events.oom_kill", &[0.0])
        };
        let of_step = [kill, gauge("memory.limit", &[limit; 60]), gauge("memory.peak", &[limit; 60])];
        let mut job = job(&[("memory.anon", 1e9), ("memory.limit", 8e9), ("memory.peak", 2e9)]);
        job.series.extend(of_step.map(|series| crate::testing::labelled(series, "step=3")));
        let mut job = report(60, 8, job.series);
        Advice::built_in().advise(&mut job);
        job.findings.into_iter().map(|finding| (finding.id, finding.evidence)).collect::<Vec<_>>()
    }

    #[test]
    fn a_step_that_ran_out_of_a_limit_of_its_own_is_named() {
        let found = findings(2e9);
        assert_eq!(found[0].0, "step-out-of-memory", "{found:?}");
        assert!(found[0].1.contains("step 3 on n1 had 1.86 GiB, the job 7.45 GiB"), "{found:?}");
        assert!(found.iter().all(|(id, _)| id != "out-of-memory"), "{found:?}");
        assert_eq!(findings(8e9)[0].0, "out-of-memory");
    }

    fn throttled(name: &str, growth: f64) -> crate::model::SeriesReport {
        crate::model::SeriesReport { growth: Some(growth), ..crate::testing::counter(name, &[0.0]) }
    }

    #[test]
    fn no_figure_is_good_beside_a_finding_about_it() {
        let level = |gauges: &[(&str, f64)]| meter(job(gauges), "memory").level;
        assert_eq!(level(&[("memory.anon", 80.0 * GIB)]), Level::Good);
        assert_eq!(level(&[("memory.anon", 30.0 * GIB)]), Level::Warning, "much less than requested");
        assert_eq!(level(&[("memory.anon", 80.0 * GIB), ("memory.swap.current", GIB)]), Level::Warning);
        let unseen = [("memory.anon", 2.0 * GIB), ("memory.file", GIB), ("memory.peak", 96.0 * GIB)];
        assert_eq!(level(&unseen), Level::Plain, "what was used between two samples");
        let mut slowed = job(&[]);
        slowed.series.extend([throttled("cpu.periods", 1e4), throttled("cpu.throttled.periods", 500.0)]);
        assert_eq!([meter(job(&[]), "CPU").level, meter(slowed, "CPU").level], [Level::Good, Level::Warning]);
    }

    #[test]
    fn cores_are_not_judged_beside_gpus() {
        let idle = || report(60, 8, vec![busy("n1", &[0.9; 60])]);
        for (gpus, level) in [(None, Level::Critical), (Some(0), Level::Critical), (Some(1), Level::Plain)] {
            let mut report = idle();
            report.submission.gpus = gpus;
            assert_eq!(meter(report, "CPU").level, level, "{gpus:?}");
        }
        let mut sampled = idle();
        sampled.series.push(crate::model::SeriesReport {
            labels: "gpu=1,uuid=GPU-a".to_owned(),
            ..gauge("gpu.utilization", &[95.0; 60])
        });
        assert_eq!(meter(sampled, "CPU").level, Level::Plain);
    }
}
