//! Gathers the report of a job from a store.

use std::collections::HashMap;

use polymeter_proto::catalogue::{is_ring_source, is_stacks_source};
use polymeter_proto::ledger::Tally;
use polymeter_service::clock;
use polymeter_store::StoreError;
use polymeter_store::reader::{
    JobNodeRow, JobRow, LedgerRow, LossRow, PlanChangeRow, Read, Rollup, SeriesRow, SeriesScope,
};

use crate::command_totals::CommandTotals;
use crate::derived::roofline;
use crate::hardware::Hardware;
use crate::model::{
    LossReport, Outcome, Report, RingReport, SCHEMA_VERSION, SeriesReport, SourceReport, Submission, Usage,
};
use crate::plan_fold::FoldedChanges;
use crate::resolution::{Resolution, has_course, resolution};
use crate::series::Summary;
use crate::{
    breakdown, derived, distributions, firings, history, kept, measuring, node_counters, regions, resources,
    runs, series, stacks,
};
use polymeter_proto::{node_list, units};

/// Time within which all sources of a job that exist when it is found are first read.
const LATE_NS: i64 = 1_000_000_000;

/// Gathers the report of `job`. Each of its nodes has `cpus` CPUs, if given, else as many as the store knows.
pub fn gather(reader: &mut dyn Read, job: &JobRow, cpus: Option<usize>) -> Result<Report, StoreError> {
    let rows = reader.series(SeriesScope::Job(job.job_key))?;
    let hardware = Hardware::gather(reader, job, &rows, cpus)?;
    let changes = reader.plan_changes(job.job_key)?;
    let ledger = reader.ledger(job.job_key)?;
    let job_nodes = reader.job_nodes(job.job_key)?;
    let skewed = clock_note(&job_nodes);
    let wanted = resolution(in_series(&ledger), &rows, elapsed_ns(job));
    let chosen = wanted.at_least(reader.finest_rollup(job)?);
    let summaries = summaries(reader, job, &rows, &hardware, chosen)?;
    let ends_ns = || summaries.iter().flatten().map(|summary| summary.ends_ns);
    let first_ns = ends_ns().map(|(first_ns, _)| first_ns).min();
    let end_ns = job.ended_ns.or(ends_ns().map(|(_, last_ns)| last_ns).max()).unwrap_or(job.started_ns);
    let mut reports = series_reports(job, &rows, summaries, &changes, (first_ns, end_ns));
    let fired = reader.firings(job.job_key)?;
    let kept = kept::of(reader, job, &rows, &fired)?;
    let stored = stored(&reports, &ledger);
    let totals = CommandTotals::take(&mut reports);
    let (phases, marks) = history::phases(reader.marks(job.job_key)?, job.started_ns);
    let wall_s = units::seconds_between(job.started_ns, end_ns);
    let nodes = node_list::with_silent(&job.nodes, job.node_list.as_deref());
    let by_node = breakdown::nodes(&nodes, &job.lost_nodes, |node| hardware.cpus(node), &reports);
    let (steps, tasks) = breakdown::steps(&reports);
    let changes = FoldedChanges::of(changes);
    let mut report = Report {
        schema_version: SCHEMA_VERSION,
        job: job.job_id.clone(),
        key: job.job_key,
        submission: submission(job, &hardware),
        by_node: hardware.described(by_node),
        steps,
        tasks,
        started_us: job.started_ns.div_euclid(1000),
        ended_us: job.ended_ns.map(|ended_ns| ended_ns.div_euclid(1000)),
        nodes,
        owner: job.owner.clone().or_else(|| job.owner_uid.map(|uid| format!("uid {uid}"))),
        wall_s,
        ended: job.ended_ns.is_some(),
        lost_nodes: job.lost_nodes.clone(),
        outcome: Outcome { state: job.state.clone(), exit_code: job.exit_code, exit_signal: job.exit_signal },
        used: usage(&reports),
        measuring: measuring::cost(&reports, wall_s),
        stored,
        regions: regions::regions(&reports, wall_s),
        rollup_s: chosen.others.map(|rollup| units::seconds_between(0, rollup.length_ns())),
        series: reports,
        kept,
        firings: firings::of(&fired, job.started_ns),
        losses: reader.losses(job.job_key)?.into_iter().map(|row| loss(row, job.started_ns)).collect(),
        phases,
        marks,
        plan_changes: history::plan_changes(&changes, job.started_ns),
        refused_requests: history::refused_requests(reader.refused_requests(job.job_key)?, job.started_ns),
        notes: chosen
            .note(wanted)
            .into_iter()
            .chain(skewed)
            .chain(job.unread.as_ref().map(|texts| {
                format!("what the scheduler said could not be read and counts as unknown: {texts}")
            }))
            .chain(changes.note())
            .collect(),
        ..Report::default()
    };
    add_ledger(&mut report, ledger);
    report.count_peak_of_one_node();
    totals.into_iter().for_each(|totals| totals.add_to(&mut report));
    add_rest(reader, (job, &job_nodes, &rows), &mut report)?;
    Ok(report)
}

/// Adds what became of the samples: those of the sampling plan, and apart those of rings.
fn add_ledger(report: &mut Report, ledger: Vec<LedgerRow>) {
    let (of_rings, of_plan): (Vec<&LedgerRow>, Vec<&LedgerRow>) =
        ledger.iter().partition(|row| is_ring_source(&row.source));
    let sum = |count: fn(&LedgerRow) -> u64| of_plan.iter().map(|row| count(row)).sum();
    report.ledger = total(&of_plan);
    report.ring = ring(&of_rings);
    report.skipped = sum(|row| row.skipped);
    report.rejected = sum(|row| row.rejected);
    report.quarantined = sum(|row| row.quarantined);
    report.unknown = sum(|row| row.unknown);
    report.sources = ledger.into_iter().map(SourceReport::from).collect();
}

/// Adds what depends on the series of the job, or is read apart from them.
fn add_rest(
    reader: &mut dyn Read,
    (job, job_nodes, rows): (&JobRow, &[JobNodeRow], &[SeriesRow]),
    report: &mut Report,
) -> Result<(), StoreError> {
    distributions::add_to(reader, (job, rows), report)?;
    node_counters::add_to(reader, job, report)?;
    derived::add_to(report);
    roofline::add_to(report, job_nodes);
    runs::add_to(reader, job, report)?;
    stacks::report::add_to(reader, job, report)
}

/// Samples of series, and of call stacks.
fn stored(reports: &[SeriesReport], ledger: &[LedgerRow]) -> u64 {
    let in_stacks = ledger.iter().filter(|row| is_stacks_source(&row.source)).map(|row| row.stored);
    reports.iter().map(|series| series.samples).sum::<u64>() + in_stacks.sum::<u64>()
}

/// Samples of series, without those of call stacks and of rings.
pub fn in_series(ledger: &[LedgerRow]) -> u64 {
    let is_in_series = |row: &&LedgerRow| !is_stacks_source(&row.source) && !is_ring_source(&row.source);
    ledger.iter().filter(is_in_series).map(|row| row.stored).sum()
}

fn ring(ledger: &[&LedgerRow]) -> Option<RingReport> {
    let sum = |count: fn(&LedgerRow) -> u64| ledger.iter().map(|row| count(row)).sum();
    (!ledger.is_empty()).then(|| RingReport {
        taken: sum(|row| row.tally.taken),
        missed: sum(|row| row.tally.missed),
        kept: sum(|row| row.stored),
        lost: sum(|row| row.tally.dropped + row.skipped + row.rejected + row.quarantined),
        not_kept: sum(|row| row.tally.not_kept),
        unknown: sum(|row| row.unknown),
    })
}

/// Reports the series that have samples. The times are that of the first sample of all, and the end of the
/// job.
fn series_reports(
    job: &JobRow,
    rows: &[SeriesRow],
    summaries: Vec<Option<Summary>>,
    changes: &[PlanChangeRow],
    (first_ns, end_ns): (Option<i64>, i64),
) -> Vec<SeriesReport> {
    let changes = series::by_series(changes);
    let (mut reports, mut sampled) = (Vec::new(), Vec::new());
    for (row, summary) in rows.iter().zip(summaries) {
        let Some(summary) = summary else { continue };
        let periods = series::periods(row, &changes, (job.started_ns, end_ns), summary.ends_ns);
        // A device has no line before the job uses it: its first value accumulated since the start of the
        // job.
        let begin_ns = summary.ends_ns.0;
        let is_late = first_ns.is_some_and(|first_ns| begin_ns.saturating_sub(first_ns) > LATE_NS);
        let is_late_device = is_late && row.metric.starts_with("io.");
        let begins_at_zero = row.metric == measuring::CPU_TIME || row.metric.starts_with(regions::METRICS);
        let zero_ns = if begins_at_zero || (is_late_device && series::is_of_step(row)) {
            Some(begin_ns)
        } else {
            first_ns.filter(|_| is_late_device)
        };
        reports.push(summary.report(row, periods, zero_ns));
        sampled.push(row);
    }
    for (report, is_contained) in reports.iter_mut().zip(SeriesRow::contained(sampled)) {
        report.is_contained = is_contained;
    }
    reports
}

/// End of a job, or now while it runs.
pub(crate) fn end_or_now_ns(job: &JobRow) -> i64 {
    job.ended_ns.unwrap_or_else(|| clock::realtime_us().saturating_mul(1000))
}

fn elapsed_ns(job: &JobRow) -> i64 {
    end_or_now_ns(job).saturating_sub(job.started_ns)
}

/// Listed in the order of `rows`; none for a series without samples.
fn summaries(
    reader: &mut dyn Read,
    job: &JobRow,
    rows: &[SeriesRow],
    hardware: &Hardware,
    Resolution { course, others }: Resolution,
) -> Result<Vec<Option<Summary>>, StoreError> {
    let mut all = |rows: &[&SeriesRow], rollup| match rollup {
        None => summaries_of_samples(reader, job, rows, hardware),
        Some(rollup) => summaries_of_buckets(reader, job, rows, hardware, rollup),
    };
    if course == others {
        return all(&rows.iter().collect::<Vec<_>>(), others);
    }
    let (with_course, without): (Vec<&SeriesRow>, Vec<&SeriesRow>) =
        rows.iter().partition(|row| has_course(row));
    let mut with_course = all(&with_course, course)?.into_iter();
    let mut without = all(&without, others)?.into_iter();
    Ok(rows
        .iter()
        .map(|row| if has_course(row) { with_course.next() } else { without.next() })
        .map(Option::flatten)
        .collect())
}

fn summaries_of_samples(
    reader: &mut dyn Read,
    job: &JobRow,
    rows: &[&SeriesRow],
    hardware: &Hardware,
) -> Result<Vec<Option<Summary>>, StoreError> {
    let ids: Vec<i64> = rows.iter().map(|row| row.series_id).collect();
    let mut grouping = Grouping::new(rows, |row: &SeriesRow, samples: &[_]| {
        Summary::of_rows(row, samples, hardware.limit(row))
    });
    reader.samples(SeriesScope::Job(job.job_key), &ids, &job.sampled_ns, |sample| {
        grouping.add(sample.series_id, sample);
        Ok::<_, StoreError>(())
    })?;
    Ok(grouping.finish())
}

pub(crate) fn summaries_of_buckets(
    reader: &mut dyn Read,
    job: &JobRow,
    rows: &[&SeriesRow],
    hardware: &Hardware,
    rollup: Rollup,
) -> Result<Vec<Option<Summary>>, StoreError> {
    let ids: Vec<i64> = rows.iter().map(|row| row.series_id).collect();
    let job_ns = job.started_ns..end_or_now_ns(job);
    let mut grouping = Grouping::new(rows, |row: &SeriesRow, buckets: &[_]| {
        Summary::of_buckets(row, buckets, rollup.length_ns(), &job_ns, hardware.limit(row))
    });
    reader.buckets(rollup, SeriesScope::Job(job.job_key), &ids, &job.sampled_ns, |bucket| {
        grouping.add(bucket.series_id, bucket);
        Ok::<_, StoreError>(())
    })?;
    Ok(grouping.finish())
}

/// Summaries of series, whose items arrive series by series. The items of one series are held in memory at a
/// time.
struct Grouping<'a, T, F> {
    summarise: F,
    positions: HashMap<i64, (usize, &'a SeriesRow)>,
    summaries: Vec<Option<Summary>>,
    series_id: Option<i64>,
    items: Vec<T>,
}

impl<'a, T, F: Fn(&SeriesRow, &[T]) -> Option<Summary>> Grouping<'a, T, F> {
    fn new(rows: &[&'a SeriesRow], summarise: F) -> Self {
        let positions =
            rows.iter().enumerate().map(|(position, row)| (row.series_id, (position, *row))).collect();
        let summaries = std::iter::repeat_with(|| None).take(rows.len()).collect();
        Self { summarise, positions, summaries, series_id: None, items: Vec::new() }
    }

    fn add(&mut self, series_id: i64, item: T) {
        if self.series_id != Some(series_id) {
            self.finish_series();
            self.series_id = Some(series_id);
        }
        self.items.push(item);
    }

    fn finish_series(&mut self) {
        if let Some((position, row)) = self.series_id.and_then(|id| self.positions.get(&id))
            && let Some(summary) = self.summaries.get_mut(*position)
        {
            *summary = (self.summarise)(row, &self.items);
        }
        self.items.clear();
    }

    fn finish(mut self) -> Vec<Option<Summary>> {
        self.finish_series();
        self.summaries
    }
}

const NAMED_NODES: usize = 3;

/// Describes the clocks that differed from the collector's, and what was done about it; none if none did.
fn clock_note(nodes: &[JobNodeRow]) -> Option<String> {
    let mut skewed: Vec<(&str, i64)> =
        nodes.iter().filter_map(|row| Some((row.node.as_str(), row.clock_offset_us?))).collect();
    skewed.sort_by_key(|(_, offset_us)| std::cmp::Reverse(offset_us.unsigned_abs()));
    let named: Vec<String> = skewed
        .iter()
        .take(NAMED_NODES)
        .map(|(node, offset_us)| {
            let direction = if *offset_us > 0 { "ahead" } else { "behind" };
            format!("{node} {} {direction}", units::elapsed(units::to_f64(offset_us.unsigned_abs()) / 1e6))
        })
        .collect();
    let more = match skewed.len().saturating_sub(NAMED_NODES) {
        _ if skewed.is_empty() => return None,
        0 => String::new(),
        more => format!(" and {more} more nodes"),
    };
    Some(format!(
        "the clocks of nodes differed from the collector's ({}{more}): times on these nodes are corrected by it",
        named.join(", ")
    ))
}

fn submission(job: &JobRow, hardware: &Hardware) -> Submission {
    let count = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
    Submission {
        name: job.name.clone(),
        display_id: job.display_id.clone(),
        cluster: job.cluster.clone(),
        account: job.account.clone(),
        queue: job.queue.clone(),
        cores: count(job.cores),
        gpus: count(job.gpus).or(hardware.gpus()),
        time_limit_s: count(job.time_limit_s),
        memory_bytes: count(job.memory_bytes),
        restarts: count(job.restarts),
        run: job.run.as_deref().cloned(),
        scheduler: job.scheduler.clone(),
    }
}

fn total(ledger: &[&LedgerRow]) -> Tally {
    let mut total = Tally::default();
    ledger.iter().for_each(|row| total.add(&row.tally));
    total
}

fn loss(row: LossRow, started_ns: i64) -> LossReport {
    let LossRow { node, source, samples, reason, first_time_ns, last_time_ns, .. } = row;
    let [first_s, last_s] =
        [first_time_ns, last_time_ns].map(|time_ns| units::seconds_between(started_ns, time_ns));
    let (first_us, last_us) = (first_time_ns.div_euclid(1000), last_time_ns.div_euclid(1000));
    LossReport { node, source, samples, reason, first_s, last_s, first_us, last_us }
}

/// Takes, for each quantity, the first metric of a list that was sampled.
fn usage(series: &[SeriesReport]) -> Usage {
    let of_job: Vec<&SeriesReport> = series.iter().filter(|series| !series.is_of_step).collect();
    let growth = |names: &[&str]| resources::first_growth(&of_job, names);
    let seconds = |ns: Option<f64>| ns.map(|ns| ns / 1e9);
    Usage {
        cpu_s: seconds(growth(&["cpu.usage", "process.cpu.usage", "perf.task_clock"])),
        user_s: seconds(growth(&["cpu.user", "process.cpu.user"])),
        system_s: seconds(growth(&["cpu.system", "process.cpu.system"])),
        peak_memory_bytes: resources::highest(
            &of_job,
            &["memory.peak", "memory.current", "process.memory.resident"],
        ),
        read_bytes: growth(&["io.read.bytes", "process.io.read.bytes"]),
        written_bytes: growth(&["io.write.bytes", "process.io.write.bytes"]),
        page_faults: growth(&["perf.page_faults", "memory.pgfault", "process.faults.minor"]),
        page_faults_major: growth(&["perf.page_faults_major", "memory.pgmajfault", "process.faults.major"]),
        context_switches: growth(&["perf.context_switches"]),
        cpu_migrations: growth(&["perf.cpu_migrations"]),
    }
}
