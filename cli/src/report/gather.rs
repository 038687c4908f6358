//! Gathers the report of a job from a store.

use polymeter_proto::ledger::Tally;
use polymeter_store::StoreError;
use polymeter_store::reader::{JobRow, LedgerRow, LossRow, Reader, SeriesScope};

use super::hardware::Hardware;
use super::model::{LossReport, Outcome, Report, SeriesReport, SourceReport, Usage};
use super::{history, series};
use crate::output::units;

/// Gathers the report of `job`. Each of its nodes has `cpus` CPUs, if given, else as many as the store knows.
pub(crate) fn gather(reader: &mut Reader, job: &JobRow, cpus: Option<usize>) -> Result<Report, StoreError> {
    let rows = reader.series(SeriesScope::Job(job.job_key))?;
    let hardware = Hardware::gather(reader, job, &rows, cpus)?;
    let changes = reader.plan_changes(Some(job.job_key))?;
    let first_ns = rows.iter().filter_map(|row| row.first_time_ns).min();
    let last_ns = rows.iter().filter_map(|row| row.last_time_ns).max();
    let end_ns = job.ended_ns.or(last_ns).unwrap_or(job.started_ns);
    let mut reports = Vec::new();
    for row in rows.into_iter().filter(|row| row.count > 0) {
        let values = reader.points(row.series_id, i64::MIN..i64::MAX)?;
        let period = series::last_period(&row, &changes);
        // A device has no line before the job uses it: its first value accumulated since the start of the
        // job.
        let starts_at_zero = row.metric.starts_with("io.") && row.first_time_ns > first_ns;
        reports.push(series::summarise(&row, &values, period, starts_at_zero, hardware.limit(&row)));
    }
    let ledger = reader.ledger(Some(job.job_key))?;
    let losses = reader.losses(Some(job.job_key))?.into_iter();
    let (phases, marks) = history::phases(reader.marks(Some(job.job_key))?, job.started_ns);
    let sum = |count: fn(&LedgerRow) -> u64| ledger.iter().map(count).sum();
    Ok(Report {
        job: job.job_id.clone(),
        nodes: job.nodes.clone(),
        owner: job.owner.clone().or_else(|| job.owner_uid.map(|uid| format!("uid {uid}"))),
        wall_s: units::seconds_between(job.started_ns, end_ns),
        ended: job.ended_ns.is_some(),
        lost_nodes: job.lost_nodes.clone(),
        outcome: Outcome { state: job.state.clone(), exit_code: job.exit_code, exit_signal: job.exit_signal },
        used: usage(&reports),
        stored: reports.iter().map(|series| series.samples).sum(),
        series: reports,
        ledger: total(&ledger),
        skipped: sum(|row| row.skipped),
        rejected: sum(|row| row.rejected),
        quarantined: sum(|row| row.quarantined),
        unknown: sum(|row| row.unknown),
        losses: losses.map(|row| loss(row, job.started_ns)).collect(),
        phases,
        marks,
        plan_changes: history::plan_changes(&changes, job.started_ns),
        refused_requests: history::refused_requests(reader.refused_requests(job.job_key)?, job.started_ns),
        measuring: None,
        notes: Vec::new(),
        sources: ledger.into_iter().map(SourceReport::from).collect(),
    })
}

fn total(ledger: &[LedgerRow]) -> Tally {
    let mut total = Tally::default();
    ledger.iter().for_each(|row| total.add(&row.tally));
    total
}

fn loss(row: LossRow, started_ns: i64) -> LossReport {
    let LossRow { node, source, samples, reason, first_time_ns, last_time_ns, .. } = row;
    let since_start = |time_ns| units::seconds_between(started_ns, time_ns);
    let (first_s, last_s) = (since_start(first_time_ns), since_start(last_time_ns));
    LossReport { node, source, samples, reason, first_s, last_s }
}

/// Computes the resource usage from the series. For each quantity, the first metric of a list that was sampled counts.
fn usage(series: &[SeriesReport]) -> Usage {
    let sampled = |names: &[&str]| -> Vec<&SeriesReport> {
        let of_job = || series.iter().filter(|series| !series.is_of_step);
        let name = names.iter().find(|name| of_job().any(|series| series.metric == **name));
        of_job().filter(|series| Some(&series.metric.as_str()) == name).collect()
    };
    let growth = |names: &[&str]| {
        sampled(names).iter().filter_map(|series| series.growth).reduce(|sum, growth| sum + growth)
    };
    let max = |names: &[&str]| sampled(names).iter().filter_map(|series| series.max).reduce(f64::max);
    let seconds = |ns: Option<f64>| ns.map(|ns| ns / 1e9);
    Usage {
        cpu_s: seconds(growth(&["cpu.usage", "process.cpu.usage", "perf.task_clock"])),
        user_s: seconds(growth(&["cpu.user", "process.cpu.user"])),
        system_s: seconds(growth(&["cpu.system", "process.cpu.system"])),
        peak_memory_bytes: max(&["memory.peak", "memory.current", "process.memory.resident"]),
        read_bytes: growth(&["io.read.bytes", "process.io.read.bytes"]),
        written_bytes: growth(&["io.write.bytes", "process.io.write.bytes"]),
        page_faults: growth(&["perf.page_faults", "memory.pgfault", "process.faults.minor"]),
        page_faults_major: growth(&["perf.page_faults_major", "memory.pgmajfault", "process.faults.major"]),
        context_switches: growth(&["perf.context_switches"]),
        cpu_migrations: growth(&["perf.cpu_migrations"]),
    }
}
