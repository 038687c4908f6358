//! Intervals of a job that rings kept: what they are, and what grew in the last one.

use std::collections::BTreeMap;
use std::ops::Range;

use polymeter_proto::period::Period;
use polymeter_proto::trigger::{JobEvent, OUT_OF_MEMORY, event_of};
use polymeter_proto::units;
use polymeter_store::StoreError;
use polymeter_store::reader::{FiringRow, JobRow, KeptIntervalRow, Read, SampleSet, SeriesRow, SeriesScope};

use crate::firings;
use crate::model::{KeptGrowth, KeptReport};

/// Intervals whose periods are looked up, the latest.
const PERIODS_MAX: usize = 10;

/// Time at the begin of an interval in which the period is looked up, and series of a node.
const BEGIN_NS: i64 = 2_000_000_000;
const PERIOD_SERIES: usize = 100;

/// Distance from the job's end within which an interval is its last.
const LAST_NS: i64 = 1_000_000_000;

/// Series whose growth is computed at most, those of the first nodes.
const GROWTH_SERIES: usize = 4096;

/// Metrics of the memory of a job on a node, the most telling first, and of its processes.
const OF_NODES: [&str; 3] = ["memory.anon", "memory.current", "process.memory.resident"];
const OF_PARTS: [&str; 4] =
    ["busiest.memory.resident", "process.memory.resident", "memory.anon", "memory.current"];

/// Returns the kept intervals of a job, in the order of their begin, but that which explains its end best is
/// the last one. `rows` are its series, and `fired` its triggers that fired.
pub(crate) fn of(
    reader: &mut dyn Read,
    job: &JobRow,
    rows: &[SeriesRow],
    fired: &[FiringRow],
) -> Result<Vec<KeptReport>, StoreError> {
    let mut intervals = common(reader.kept_intervals(job.job_key)?);
    if let Some(telling) = most_telling(&intervals, fired) {
        let telling = intervals.remove(telling);
        intervals.push(telling);
    }
    let (count, mut reports) = (intervals.len(), Vec::with_capacity(intervals.len()));
    for (number, interval) in intervals.iter().enumerate() {
        let is_late = number + PERIODS_MAX >= count;
        let period_us = if is_late { period_us(reader, job, rows, interval)? } else { None };
        let firing = fired.iter().find(|firing| firing.trigger == interval.trigger);
        let mut report = interval.report(job, period_us, firing);
        if number + 1 == count {
            report.growth = growth(reader, job, rows, interval)?;
        }
        reports.push(report);
    }
    Ok(reports)
}

/// Interval that nodes kept together.
#[derive(Debug, Default)]
struct Common {
    trigger: i64,
    span_ns: Range<i64>,
    reason: String,
    nodes: Vec<String>,
    samples: u64,
}

/// Joins the intervals of a trigger.
fn common(rows: Vec<KeptIntervalRow>) -> Vec<Common> {
    let mut by_trigger: BTreeMap<i64, Common> = BTreeMap::new();
    for row in rows {
        let of = by_trigger.entry(row.trigger).or_insert_with(|| Common {
            trigger: row.trigger,
            span_ns: row.begin_ns..row.end_ns,
            reason: row.reason.clone(),
            ..Common::default()
        });
        of.span_ns = of.span_ns.start.min(row.begin_ns)..of.span_ns.end.max(row.end_ns);
        of.samples = of.samples.saturating_add(row.samples);
        if !of.nodes.contains(&row.node) {
            of.nodes.push(row.node);
        }
    }
    let mut all: Vec<Common> = by_trigger.into_values().collect();
    all.sort_by_key(|of| (of.span_ns.start, of.span_ns.end));
    all
}

/// Beginnings of the reasons of triggers, that which explains a failure best first: a cause before its
/// consequences. A condition on metrics stands for itself.
const TELLING: [Option<JobEvent>; 6] = [
    Some(JobEvent::Oom),
    Some(JobEvent::Xid),
    None,
    Some(JobEvent::TimeLimit),
    Some(JobEvent::Signal),
    Some(JobEvent::ExitStatus),
];

/// Returns the number of the interval that explains best what the last one was kept for: among those that
/// overlap it, as several triggers fire for one failure. An instant that the kernel saw precedes the end that
/// a scheduler states, and the first of several alike precedes the others.
fn most_telling(intervals: &[Common], fired: &[FiringRow]) -> Option<usize> {
    let last = intervals.last()?;
    let firing = |of: &Common| fired.iter().find(|firing| firing.trigger == of.trigger);
    // A user keeps what she saw a moment ago, which is about no failure.
    firing(last)?;
    let overlapping = intervals
        .iter()
        .enumerate()
        .filter(|(_, of)| of.span_ns.start < last.span_ns.end && last.span_ns.start < of.span_ns.end);
    let ranked = overlapping.filter_map(|(number, of)| {
        let firing = firing(of)?;
        let event = event_of(&firing.why);
        let rank = TELLING.iter().position(|telling| *telling == event)?;
        Some(((rank, firing.why.starts_with(OUT_OF_MEMORY), firing.time_ns), number))
    });
    ranked.min().map(|(_, number)| number)
}

impl Common {
    fn report(&self, job: &JobRow, period_us: Option<u64>, firing: Option<&FiringRow>) -> KeptReport {
        let Range { start, end } = self.span_ns;
        let since_start = |time_ns| units::seconds_between(job.started_ns, time_ns);
        let time = firing.map_or_else(|| self.time(job), |firing| self.time_around(job, firing));
        let period = period_us.and_then(|period_us| Period::from_micros(period_us).ok());
        let period = period.map_or_else(String::new, |period| format!(", at {period}"));
        KeptReport {
            text: format!("{time}{period}{}", self.nodes_text(job, firing)),
            reason: firing.map_or_else(|| self.reason.clone(), firings::cause),
            begin_s: since_start(start),
            end_s: since_start(end),
            begin_us: start.div_euclid(1000),
            end_us: end.div_euclid(1000),
            nodes: self.nodes.len() as u64,
            samples: self.samples,
            period_us,
            growth: None,
        }
    }

    fn is_last(&self, job: &JobRow) -> bool {
        job.ended_ns.is_some_and(|ended_ns| self.span_ns.end.saturating_add(LAST_NS) >= ended_ns)
    }

    /// The time of an interval that a user kept.
    fn time(&self, job: &JobRow) -> String {
        let length = units::elapsed(units::seconds_between(self.span_ns.start, self.span_ns.end));
        if self.is_last(job) {
            return format!("the last {length}");
        }
        let after = units::elapsed(units::seconds_between(job.started_ns, self.span_ns.start));
        format!("{length}, from {after} after the start")
    }

    /// The time before and after the instant at which a trigger fired.
    fn time_around(&self, job: &JobRow, firing: &FiringRow) -> String {
        let between = |from_ns: i64, to_ns| units::elapsed(units::seconds_between(from_ns.min(to_ns), to_ns));
        let before = between(self.span_ns.start, firing.time_ns);
        let mut text = format!("the last {before} before {}", firings::instant(firing));
        let end_ns = self.span_ns.end.min(job.ended_ns.unwrap_or(i64::MAX));
        if end_ns >= firing.time_ns.saturating_add(LAST_NS) {
            text.push_str(&format!(" and {} after it", between(firing.time_ns, end_ns)));
        }
        if !self.is_last(job) {
            text.push_str(&format!(", {} after the start", between(job.started_ns, firing.time_ns)));
        }
        text
    }

    /// The nodes that kept it, and those that could not; empty for a job of one node.
    fn nodes_text(&self, job: &JobRow, firing: Option<&FiringRow>) -> String {
        let (kept, all) = (self.nodes.len(), job.nodes.len().max(self.nodes.len()));
        let nodes = match all {
            1 => String::new(),
            _ if kept == all => format!(", on all {all} nodes"),
            _ => format!(", on {kept} of {all} nodes"),
        };
        let missing = firing.and_then(|firing| firings::missing(firing, &self.nodes));
        nodes + &missing.map_or_else(String::new, |missing| format!(" ({missing})"))
    }
}

/// Returns the shortest usual time between the samples of a series at the begin of an interval, on the first
/// node that kept it.
fn period_us(
    reader: &mut dyn Read,
    job: &JobRow,
    rows: &[SeriesRow],
    interval: &Common,
) -> Result<Option<u64>, StoreError> {
    let of_node = rows.iter().filter(|row| interval.nodes.first() == Some(&row.node));
    let ids: Vec<i64> = of_node.take(PERIOD_SERIES).map(|row| row.series_id).collect();
    let Range { start, end } = interval.span_ns;
    let span_ns = start..end.min(start.saturating_add(BEGIN_NS));
    let mut times: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    reader.samples_of_set(SampleSet::Kept, SeriesScope::Job(job.job_key), &ids, &span_ns, |row| {
        times.entry(row.series_id).or_default().push(row.time_ns);
        Ok::<_, StoreError>(())
    })?;
    Ok(times.values().filter_map(|times| usual_us(times)).min())
}

/// Returns the median distance of times.
fn usual_us(times_ns: &[i64]) -> Option<u64> {
    let pairs = times_ns.iter().zip(times_ns.iter().skip(1));
    let mut distances: Vec<i64> = pairs.map(|(time, next)| next.saturating_sub(*time)).collect();
    distances.sort_unstable();
    let median = distances.get(distances.len() / 2)?;
    // Samples are read some microseconds after their deadlines.
    let (us, ten_us) = (median / 1000, (median + 5000) / 10_000 * 10);
    u64::try_from(if us >= 500 { ten_us } else { us }).ok().filter(|us| *us > 0)
}

/// First and highest value of a series, with their times.
#[derive(Debug, Clone, Copy)]
struct Rise {
    first: (i64, f64),
    highest: (i64, f64),
}

impl Rise {
    fn bytes(&self) -> f64 {
        self.highest.1 - self.first.1
    }
}

/// Returns the growth of the node whose memory grew most in an interval, or of what grew most on it.
fn growth(
    reader: &mut dyn Read,
    job: &JobRow,
    rows: &[SeriesRow],
    interval: &Common,
) -> Result<Option<KeptGrowth>, StoreError> {
    let is_wanted = |row: &&SeriesRow| OF_NODES.iter().chain(&OF_PARTS).any(|metric| *metric == row.metric);
    let wanted: Vec<&SeriesRow> = rows.iter().filter(is_wanted).take(GROWTH_SERIES).collect();
    let ids: Vec<i64> = wanted.iter().map(|row| row.series_id).collect();
    let mut rises: BTreeMap<i64, Rise> = BTreeMap::new();
    let (scope, span_ns) = (SeriesScope::Job(job.job_key), &interval.span_ns);
    reader.samples_of_set(SampleSet::Kept, scope, &ids, span_ns, |row| {
        let value = (row.time_ns, row.value);
        let rise = rises.entry(row.series_id).or_insert(Rise { first: value, highest: value });
        if row.value > rise.highest.1 {
            rise.highest = value;
        }
        Ok::<_, StoreError>(())
    })?;
    let known: Vec<(&SeriesRow, Rise)> =
        wanted.into_iter().filter_map(|row| Some((row, *rises.get(&row.series_id)?))).collect();
    Ok(greatest(&known))
}

fn greatest(known: &[(&SeriesRow, Rise)]) -> Option<KeptGrowth> {
    let most =
        |one: &&(&SeriesRow, Rise), other: &&(&SeriesRow, Rise)| one.1.bytes().total_cmp(&other.1.bytes());
    let of_metric = |metric: &str| -> Vec<&(&SeriesRow, Rise)> {
        known.iter().filter(|(row, _)| row.metric == metric && part(row).is_none()).collect()
    };
    let nodes = OF_NODES.into_iter().map(of_metric).find(|nodes| !nodes.is_empty())?;
    let (node, of_node) = nodes.iter().copied().max_by(most)?;
    let others: Vec<f64> =
        nodes.iter().filter(|(row, _)| row.node != node.node).map(|(_, rise)| rise.bytes()).collect();
    let of_part = |metric: &str| {
        let on_node = known.iter().filter(|(row, _)| row.metric == metric && row.node == node.node);
        on_node.filter(|(row, _)| part(row).is_some()).max_by(most)
    };
    let grown = OF_PARTS.into_iter().find_map(of_part).filter(|(_, rise)| rise.bytes() > 0.0);
    let (row, rise) = grown.copied().unwrap_or((node, *of_node));
    (rise.bytes() > 0.0).then(|| KeptGrowth {
        node: row.node.clone(),
        part: part(row),
        metric: row.metric.clone(),
        first_bytes: rise.first.1,
        highest_bytes: rise.highest.1,
        time_s: units::seconds_between(rise.first.0, rise.highest.0),
        others_bytes: median(others),
    })
}

/// Returns the process or the task of a series; none for one of the whole job, or of a step.
fn part(row: &SeriesRow) -> Option<String> {
    let label = |name: &str| row.labels.get(name);
    if let (Some(name), Some(pid)) = (label("comm"), label("pid")) {
        return Some(format!("{name} ({pid})"));
    }
    let task = label("task")?;
    Some(label("step").map_or_else(|| format!("task {task}"), |step| format!("task {task} of step {step}")))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use polymeter_proto::series::Labels;
    use polymeter_proto::trigger;

    use super::*;
    use crate::testing::job_row;

    const S: i64 = 1_000_000_000;

    fn row(series_id: i64, node: &str, metric: &str, labels: &[(&str, &str)]) -> SeriesRow {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        SeriesRow {
            series_id,
            node: node.to_owned(),
            metric: metric.to_owned(),
            unit: "bytes".to_owned(),
            kind: "gauge".to_owned(),
            labels: Labels::new(labels).unwrap(),
        }
    }

    const fn rise(first: f64, highest: f64) -> Rise {
        Rise { first: (0, first), highest: (3 * S, highest) }
    }

    #[test]
    fn intervals_of_a_trigger_are_one_and_the_last_is_named_so() {
        let of = |node: &str, trigger, begin_s, end_s| KeptIntervalRow {
            node: node.to_owned(),
            begin_ns: begin_s * S,
            end_ns: end_s * S,
            trigger,
            reason: format!("reason {trigger}"),
            samples: 10,
        };
        let all =
            common(vec![of("n1", 9, 60, 90), of("n2", 9, 60, 90), of("n1", -3, 5, 6), of("n1", 9, 60, 90)]);
        let job = JobRow { ended_ns: Some(90 * S + S / 2), ..job_row("7") };
        let reports: Vec<KeptReport> = all.iter().map(|of| of.report(&job, Some(10_000), None)).collect();
        let texts: Vec<(&str, u64)> = reports.iter().map(|of| (of.text.as_str(), of.samples)).collect();
        assert_eq!(
            texts,
            [("1 s, from 5 s after the start, at 10ms", 10), ("the last 30 s, at 10ms, on all 2 nodes", 30)]
        );
        let running = JobRow { ended_ns: None, ..job_row("7") };
        assert_eq!(
            all[1].report(&running, None, None).text,
            "30 s, from 1 min after the start, on all 2 nodes"
        );
    }

    #[test]
    fn an_interval_of_a_trigger_says_what_it_was_kept_for() {
        let kept = |begin_s, end_s| Common {
            trigger: 9,
            span_ns: begin_s * S..end_s * S,
            reason: "oom: why".to_owned(),
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
            samples: 1,
        };
        let mut firing = FiringRow {
            time_ns: 90 * S,
            node: "n2".to_owned(),
            rule: "oom".to_owned(),
            why: polymeter_proto::trigger::OOM_KILL.to_owned(),
            trigger: 9,
            ..FiringRow::default()
        };
        let nodes = ["n1", "n2", "n7"].map(str::to_owned).to_vec();
        let mut job = JobRow { nodes, ended_ns: Some(90 * S + S / 2), ..job_row("7") };
        firing.nodes_missing.insert("n7".to_owned(), "no answer".to_owned());
        let report = kept(60, 95).report(&job, Some(10_000), Some(&firing));
        assert_eq!(
            report.text,
            "the last 30 s before the OOM kill, at 10ms, on 2 of 3 nodes (1 node is missing: n7: no answer)"
        );
        assert_eq!(report.reason, "oom on n2: the kernel killed a process for lack of memory");
        job.ended_ns = None;
        job.nodes.pop();
        firing.nodes_missing.clear();
        firing.why = "cpu.usage was 0 per second".to_owned();
        let report = kept(60, 95).report(&job, None, Some(&firing));
        let expected = "the last 30 s before trigger oom fired and 5 s after it, 1 min 30 s after the start, on all 2 nodes";
        assert_eq!(report.text, expected);
    }

    #[test]
    fn the_cause_of_a_failure_precedes_its_consequences() {
        let interval = |trigger, begin_s: i64, end_s: i64| Common {
            trigger,
            span_ns: begin_s * S..end_s * S,
            ..Common::default()
        };
        let firing = |trigger, at_s: i64, why: &str| FiringRow {
            trigger,
            time_ns: at_s * S,
            why: why.to_owned(),
            ..FiringRow::default()
        };
        let status = trigger::exit_status(1);
        let killed = trigger::signal(9);
        let of = |whys: &[(i64, &str)]| {
            let intervals: Vec<Common> =
                (0..).zip(whys).map(|(number, (at_s, _))| interval(number, at_s - 30, at_s + 5)).collect();
            let fired: Vec<FiringRow> =
                (0..).zip(whys).map(|(number, (at_s, why))| firing(number, *at_s, why)).collect();
            most_telling(&intervals, &fired)
        };
        let stall = "cpu.usage was 0 per second";
        for (whys, expected) in [
            (&[(90, trigger::OOM_KILL), (92, &*status)][..], Some(0)),
            (&[(90, &status), (92, trigger::OOM_KILL)], Some(1)),
            (&[(89, trigger::OUT_OF_MEMORY), (90, trigger::OOM_KILL), (92, &killed), (92, &status)], Some(1)),
            (&[(90, &trigger::xid("0", Some(79.0))), (92, &killed)], Some(0)),
            (&[(90, &status), (92, &killed)], Some(1)),
            (&[(80, stall), (100, trigger::AT_TIME_LIMIT)], Some(0)),
            // An OOM kill that the job survived an hour before.
            (&[(90, trigger::OOM_KILL), (3690, &status)], Some(1)),
            (&[(90, stall)], Some(0)),
            (&[], None),
        ] {
            assert_eq!(of(whys), expected, "{whys:?}");
        }
        assert_eq!(most_telling(&[interval(1, 5, 9)], &[]), None, "kept by a user");
    }

    #[test]
    fn the_usual_time_between_samples_is_the_median() {
        let times = |distances: &[i64]| {
            let mut time_ns = 0;
            let mut times = vec![time_ns];
            times.extend(distances.iter().map(|us| {
                time_ns += us * 1000;
                time_ns
            }));
            usual_us(&times)
        };
        assert_eq!(times(&[10_003, 9_998, 10_001, 50_000]), Some(10_000));
        assert_eq!(times(&[100, 101, 100]), Some(100));
        assert_eq!((times(&[]), usual_us(&[])), (None, None));
    }

    #[test]
    fn what_grew_most_is_a_process_on_the_node_that_grew_most() {
        let (n1, n2) = (row(1, "n1", "memory.anon", &[]), row(2, "n2", "memory.anon", &[]));
        let process = |id, node, pid| {
            row(id, node, "busiest.memory.resident", &[("comm", "solve"), ("pid", pid), ("started", "1")])
        };
        let (one, other, elsewhere) =
            (process(3, "n2", "41"), process(4, "n2", "42"), process(5, "n1", "43"));
        let task = row(6, "n2", "memory.anon", &[("step", "0"), ("task", "3")]);
        let mut known = vec![(&n1, rise(50.0, 60.0)), (&n2, rise(100.0, 900.0)), (&task, rise(1.0, 2.0))];
        let grown = greatest(&known).unwrap();
        assert_eq!((grown.of().as_str(), grown.bytes()), ("task 3 of step 0 on n2", 1.0));
        known.extend([
            (&one, rise(10.0, 700.0)),
            (&other, rise(10.0, 20.0)),
            (&elsewhere, rise(0.0, 9000.0)),
        ]);
        let grown = greatest(&known).unwrap();
        assert_eq!((grown.of().as_str(), grown.bytes(), grown.time_s), ("solve (41) on n2", 690.0, 3.0));
        assert_eq!((grown.others_bytes, grown.metric.as_str()), (Some(10.0), "busiest.memory.resident"));
        let alone = greatest(&[(&n2, rise(100.0, 900.0))]).unwrap();
        assert_eq!((alone.of().as_str(), alone.others_bytes), ("n2", None));
        assert_eq!(greatest(&[(&n2, rise(100.0, 100.0))]), None);
    }
}
