//! Gathers a report out of a store.

use polymeter_proto::ledger::Tally;
use polymeter_store::StoreError;
use polymeter_store::reader::{JobRow, LedgerRow, LossRow, Reader, SeriesRow, SeriesScope};
use serde::Serialize;

use super::hardware::{Hardware, Limit};
use super::history::{self, Instant, Phase, PlanChange, Refused};
use super::outcome::Outcome;
use super::rates::{self, Rates};
use super::units;

/// What is known of a job.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) job: String,
    pub(crate) nodes: Vec<String>,
    pub(crate) owner: Option<String>,
    /// Seconds from the begin to the end, or to the last sample of a job that goes on.
    pub(crate) wall_s: f64,
    pub(crate) ended: bool,
    /// Nodes on which it ended with its agent: when is not known.
    pub(crate) lost_nodes: Vec<String>,
    /// How it ended, as far as the scheduler told.
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    pub(crate) used: Used,
    pub(crate) series: Vec<SeriesReport>,
    pub(crate) ledger: Tally,
    /// Taken, and lost with frames that the agent had to drop or to give up.
    pub(crate) skipped: u64,
    /// Taken, and rejected by the collector.
    pub(crate) rejected: u64,
    /// Taken, and quarantined from others because of their times.
    pub(crate) quarantined: u64,
    /// Taken, and nothing says what became of them.
    pub(crate) unknown: u64,
    /// By node and source.
    pub(crate) sources: Vec<SourceReport>,
    pub(crate) stored: u64,
    /// Samples that never reached the store.
    pub(crate) losses: Vec<LossReport>,
    pub(crate) phases: Vec<Phase>,
    pub(crate) marks: Vec<Instant>,
    pub(crate) plan_changes: Vec<PlanChange>,
    /// What was requested at submission and was not granted.
    pub(crate) refused_requests: Vec<Refused>,
    pub(crate) measuring: Option<Measuring>,
    /// What the reader has to know of how this came about.
    pub(crate) notes: Vec<String>,
}

/// What became of the samples of one source.
#[derive(Debug, Serialize)]
pub(crate) struct SourceReport {
    pub(crate) node: String,
    pub(crate) source: String,
    #[serde(flatten)]
    pub(crate) tally: Tally,
    pub(crate) skipped: u64,
    pub(crate) rejected: u64,
    pub(crate) quarantined: u64,
    pub(crate) stored: u64,
    pub(crate) unknown: u64,
}

impl From<LedgerRow> for SourceReport {
    fn from(row: LedgerRow) -> Self {
        let LedgerRow { session_id: _, node, source, tally, skipped, rejected, quarantined, stored, unknown } =
            row;
        Self { node, source, tally, skipped, rejected, quarantined, stored, unknown }
    }
}

/// Samples that never reached the store.
#[derive(Debug, Serialize)]
pub(crate) struct LossReport {
    pub(crate) node: String,
    pub(crate) source: Option<String>,
    /// How many; 0 for the reason `unknown`: of an agent that ended without a word nobody knows.
    pub(crate) samples: u64,
    pub(crate) reason: String,
    /// When the oldest of them was taken, in seconds since the job began.
    pub(crate) first_s: f64,
    /// When the newest of them was taken, in seconds since the job began.
    pub(crate) last_s: f64,
}

impl LossReport {
    /// Whether it is a time of which nothing is known.
    pub(crate) fn is_gap(&self) -> bool {
        self.reason == "unknown"
    }

    fn new(row: LossRow, began_ns: i64) -> Self {
        let LossRow { node, source, samples, reason, first_time_ns, last_time_ns, .. } = row;
        let since_begin = |time_ns| units::seconds_between(began_ns, time_ns);
        let (first_s, last_s) = (since_begin(first_time_ns), since_begin(last_time_ns));
        Self { node, source, samples, reason, first_s, last_s }
    }
}

/// Totals of what a job used. What was not sampled is absent.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Used {
    pub(crate) cpu_s: Option<f64>,
    pub(crate) user_s: Option<f64>,
    pub(crate) system_s: Option<f64>,
    pub(crate) peak_memory_bytes: Option<f64>,
    pub(crate) read_bytes: Option<f64>,
    pub(crate) written_bytes: Option<f64>,
    pub(crate) page_faults: Option<f64>,
    pub(crate) page_faults_major: Option<f64>,
    pub(crate) context_switches: Option<f64>,
    pub(crate) cpu_migrations: Option<f64>,
}

/// Exact totals of a command and all that it has waited for, as the kernel tells them at its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Totals {
    pub(crate) user_s: f64,
    pub(crate) system_s: f64,
    pub(crate) peak_memory_bytes: f64,
    pub(crate) page_faults: f64,
    pub(crate) page_faults_major: f64,
    pub(crate) context_switches: f64,
}

/// What the measuring itself cost.
#[derive(Debug, Serialize)]
pub(crate) struct Measuring {
    pub(crate) cpu_s: f64,
    /// Percent of one core over the job's wall time.
    pub(crate) core_percent: f64,
}

/// How one series went.
#[derive(Debug, Serialize)]
pub(crate) struct SeriesReport {
    pub(crate) metric: String,
    pub(crate) labels: String,
    pub(crate) node: String,
    pub(crate) unit: String,
    pub(crate) kind: String,
    /// The unit of `least`, `mean` and `most` of a counter; none of a gauge, where it is `unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate_unit: Option<&'static str>,
    /// The least time over which a counter's rates are taken, in seconds; none where each is taken between two samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window_s: Option<f64>,
    /// Whether a rate is above what the node's CPUs can do even over the whole time, and was lowered to that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_clamped: bool,
    pub(crate) samples: u64,
    /// The period that was last in force, as people write it.
    pub(crate) period: Option<String>,
    /// Of a gauge the values, of a counter what it grew per second, in `rate_unit`.
    pub(crate) least: Option<f64>,
    pub(crate) mean: Option<f64>,
    pub(crate) most: Option<f64>,
    /// What a counter grew by in all.
    pub(crate) growth: Option<f64>,
    /// Whether it is of a step or a task, whose values are in the job's own, too.
    #[serde(skip)]
    pub(crate) is_of_part: bool,
    #[serde(skip)]
    pub(crate) points: Vec<(i64, f64)>,
}

impl SeriesReport {
    /// The metric with its labels, and before it the node where there are several.
    pub(crate) fn name(&self, several_nodes: bool) -> String {
        let labels = if self.labels.is_empty() { String::new() } else { format!("{{{}}}", self.labels) };
        let node = if several_nodes { format!("{} ", self.node) } else { String::new() };
        format!("{node}{}{labels}", self.metric)
    }

    /// One of its points as people read it.
    pub(crate) fn shown(&self, value: Option<f64>) -> String {
        match (value, self.rate_unit) {
            (None, _) => "-".to_owned(),
            (Some(value), Some(rate_unit)) => units::rate_in(rate_unit, value),
            (Some(value), None) => units::value(&self.unit, value),
        }
    }

    /// Whether there is more to see than one value.
    pub(crate) fn changed(&self) -> bool {
        match self.growth {
            Some(growth) => growth != 0.0,
            None => self.least != self.most || self.samples <= 2,
        }
    }
}

impl Report {
    /// Adds exact totals of a command. Where it had a cgroup they only fill what was not sampled, since they leave out
    /// what was never waited for; where it had none they replace what its processes showed while they lived. Where they
    /// are more than its cgroup saw it has left that.
    pub(crate) fn use_totals(&mut self, totals: &Totals, had_cgroup: bool) {
        let total_s = totals.user_s + totals.system_s;
        let has_left = had_cgroup && self.used.cpu_s.is_some_and(|seen_s| exceeds(total_s, seen_s));
        let used = &mut self.used;
        let put = |place: &mut Option<f64>, total: f64| {
            if !had_cgroup || place.is_none() || (has_left && *place < Some(total)) {
                *place = Some(total);
            }
        };
        put(&mut used.user_s, totals.user_s);
        put(&mut used.system_s, totals.system_s);
        put(&mut used.cpu_s, total_s);
        let peak = totals.peak_memory_bytes.max(used.peak_memory_bytes.unwrap_or(0.0));
        put(&mut used.peak_memory_bytes, peak);
        put(&mut used.page_faults, totals.page_faults);
        put(&mut used.page_faults_major, totals.page_faults_major);
        put(&mut used.context_switches, totals.context_switches);
        if !had_cgroup {
            // Counted in user mode only, where nobody migrates.
            used.cpu_migrations = None;
        }
        if has_left {
            self.notes.push(
                "the command left its cgroup: the totals above are getrusage's, the series and the remaining totals show only what ran inside"
                    .to_owned(),
            );
        }
    }

    /// Adds what the measuring cost: CPU time of everything that measured.
    pub(crate) fn measure(&mut self, cpu_s: f64) {
        let core_percent = if self.wall_s > 0.0 { 100.0 * cpu_s / self.wall_s } else { 0.0 };
        self.measuring = Some(Measuring { cpu_s, core_percent });
    }
}

/// Whether the kernel's total of CPU time is more than a cgroup saw, and not only otherwise rounded, or used before the
/// command entered the cgroup.
fn exceeds(total_s: f64, seen_s: f64) -> bool {
    const ABOUT: f64 = 1.05;
    const BEFORE_S: f64 = 0.05;
    total_s > seen_s * ABOUT + BEFORE_S
}

/// Everything that the store knows of `job`. A node has so many CPUs as `cpus` says, or else the store.
pub(crate) fn gather(reader: &mut Reader, job: &JobRow, cpus: Option<usize>) -> Result<Report, StoreError> {
    let rows = reader.series(SeriesScope::Job(job.job_key))?;
    let hardware = Hardware::gather(reader, job, &rows, cpus)?;
    let changes = reader.plan_changes(Some(job.job_key))?;
    let first_ns = rows.iter().filter_map(|row| row.first_time_ns).min();
    let last_ns = rows.iter().filter_map(|row| row.last_time_ns).max();
    let end_ns = job.ended_ns.or(last_ns).unwrap_or(job.started_ns);
    let mut series = Vec::new();
    for row in rows.into_iter().filter(|row| row.count > 0) {
        let values = reader.points(row.series_id, i64::MIN..i64::MAX)?;
        // Changes are told of the job's own series alone.
        let changes = if is_of_part(&row) { &[][..] } else { changes.as_slice() };
        let in_force = changes.iter().rfind(|change| change.metric == row.metric && change.node == row.node);
        let period = in_force.and_then(|change| change.new_period_us).and_then(history::period);
        // A device has no line until the job uses it: what it shows first was done since the job began.
        let from_zero = row.metric.starts_with("io.") && row.first_time_ns > first_ns;
        let limit = hardware.limit(&row);
        series.push(summarise(row, &values, period, from_zero, limit));
    }
    let (mut ledger, mut skipped, mut rejected, mut quarantined, mut unknown) =
        (Tally::default(), 0, 0, 0, 0);
    let mut sources = Vec::new();
    for row in reader.ledger(Some(job.job_key))? {
        ledger.add(&row.tally);
        skipped += row.skipped;
        rejected += row.rejected;
        quarantined += row.quarantined;
        unknown += row.unknown;
        sources.push(SourceReport::from(row));
    }
    let losses = reader.losses(Some(job.job_key))?.into_iter();
    let losses = losses.map(|loss| LossReport::new(loss, job.started_ns)).collect();
    let (phases, marks) = history::phases(reader.marks(Some(job.job_key))?, job.started_ns);
    Ok(Report {
        job: job.job_id.clone(),
        nodes: job.nodes.clone(),
        owner: job.owner.clone().or_else(|| job.owner_uid.map(|uid| format!("uid {uid}"))),
        wall_s: units::seconds_between(job.started_ns, end_ns),
        ended: job.ended_ns.is_some(),
        lost_nodes: job.lost_nodes.clone(),
        outcome: Outcome { state: job.state.clone(), exit_code: job.exit_code, exit_signal: job.exit_signal },
        used: used(&series),
        stored: series.iter().map(|series| series.samples).sum(),
        series,
        ledger,
        skipped,
        rejected,
        quarantined,
        unknown,
        sources,
        losses,
        phases,
        marks,
        plan_changes: history::changes(&changes, job.started_ns),
        refused_requests: history::refused(reader.refused_requests(job.job_key)?, job.started_ns),
        measuring: None,
        notes: Vec::new(),
    })
}

/// Whether a series is of a step of the job or of a task of one.
fn is_of_part(row: &SeriesRow) -> bool {
    ["step", "task"].into_iter().any(|label| row.labels.get(label).is_some())
}

/// A counter that begins `from_zero` had no line before its first sample. None of its rates is above `limit` per second.
fn summarise(
    row: SeriesRow,
    values: &[(i64, f64)],
    period: Option<String>,
    from_zero: bool,
    limit: Option<Limit>,
) -> SeriesReport {
    let counter = row.kind == "counter";
    let (rate_unit, factor) = units::rate_unit(&row.metric, &row.unit);
    let Rates { points, window_ns, is_clamped } = if counter {
        rates_within(&row.metric, values, limit, factor)
    } else {
        Rates { points: values.to_vec(), ..Rates::default() }
    };
    let all = || points.iter().map(|(_, value)| *value).filter(|value| !value.is_nan());
    let begin = values.first().map(|(_, first)| if from_zero { 0.0 } else { *first });
    let growth = begin.zip(values.last()).filter(|_| counter).map(|(first, (_, last))| last - first);
    let span_s = values
        .first()
        .zip(values.last())
        .map_or(0.0, |((first, _), (last, _))| units::seconds_between(*first, *last));
    let mean = match growth {
        Some(growth) => (span_s > 0.0).then(|| growth / span_s * factor),
        None => (all().count() > 0).then(|| all().sum::<f64>() / units::to_f64(all().count() as u64)),
    };
    SeriesReport {
        metric: row.metric.clone(),
        labels: row.labels.to_string(),
        node: row.node.clone(),
        unit: row.unit.clone(),
        kind: row.kind.clone(),
        rate_unit: counter.then_some(rate_unit),
        window_s: window_ns.map(|window_ns| units::seconds_between(0, window_ns)),
        is_clamped,
        samples: row.count,
        period,
        // Windows that overlap may all miss what happens at both ends: a mean outside of them would look wrong.
        least: all().chain(mean.filter(|_| counter)).reduce(f64::min),
        mean,
        most: all().chain(mean.filter(|_| counter && !is_clamped)).reduce(f64::max),
        growth,
        is_of_part: is_of_part(&row),
        points,
    }
}

/// The rates of a counter, multiplied by `factor`. A job that used more than the scheduler gave it is believed.
fn rates_within(metric: &str, values: &[(i64, f64)], limit: Option<Limit>, factor: f64) -> Rates {
    let window_ns = rates::window_ns(metric);
    let mut found = rates::rates(values, window_ns, limit.map(|limit| limit.rate));
    if found.is_clamped && limit.is_some_and(|limit| !limit.is_hard) {
        found = rates::rates(values, window_ns, None);
    }
    found.points.iter_mut().for_each(|(_, rate)| *rate *= factor);
    found
}

fn used(series: &[SeriesReport]) -> Used {
    let of = |names: &[&str]| -> Vec<&SeriesReport> {
        let whole = || series.iter().filter(|series| !series.is_of_part);
        let found = names.iter().find(|name| whole().any(|series| series.metric == **name));
        whole().filter(|series| Some(&series.metric.as_str()) == found).collect()
    };
    let growth = |names: &[&str]| {
        of(names).iter().filter_map(|series| series.growth).reduce(|sum, growth| sum + growth)
    };
    let most = |names: &[&str]| of(names).iter().filter_map(|series| series.most).reduce(f64::max);
    let seconds = |ns: Option<f64>| ns.map(|ns| ns / 1e9);
    Used {
        cpu_s: seconds(growth(&["cpu.usage", "process.cpu.usage", "perf.task_clock"])),
        user_s: seconds(growth(&["cpu.user", "process.cpu.user"])),
        system_s: seconds(growth(&["cpu.system", "process.cpu.system"])),
        peak_memory_bytes: most(&["memory.peak", "memory.current", "process.memory.resident"]),
        read_bytes: growth(&["io.read.bytes", "process.io.read.bytes"]),
        written_bytes: growth(&["io.write.bytes", "process.io.write.bytes"]),
        page_faults: growth(&["perf.page_faults", "memory.pgfault", "process.faults.minor"]),
        page_faults_major: growth(&["perf.page_faults_major", "memory.pgmajfault", "process.faults.major"]),
        context_switches: growth(&["perf.context_switches"]),
        cpu_migrations: growth(&["perf.cpu_migrations"]),
    }
}
