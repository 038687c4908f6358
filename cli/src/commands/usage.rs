//! `polymeter usage`: the efficiency of ended jobs, of each or summed by user, account, queue or array.

use clap::ValueEnum;
use polymeter_service::clock::realtime_us;
use polymeter_service::time_text::rfc3339;
use polymeter_store::reader::{JobFilter, UsageGroup, UsageRow};
use serde::Serialize;

use crate::calendar::{DAY_US, PointInTime};
use crate::client::read_source::{ReadSource, Visible};
use crate::failure::Failure;
use crate::output::layout::wrapped_lines;
use crate::output::table::{figure, head, table_within};
use crate::output::terminal;
use crate::store_failure::cannot_read;

/// Days before now, without an option.
const DAYS: i64 = 7;

/// The attributes by which jobs are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    User,
    Account,
    Queue,
    Array,
    Job,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Wasted core-hours of a job are its cores multiplied by its elapsed time, less its CPU time. Those of a job with GPUs do not count: its wasted GPU-hours do, which are its GPUs multiplied by its elapsed time, less the part in which they were in use. A job counts with all of its hours in the time in which it ended."
)]
pub(crate) struct UsageArguments {
    /// Add up the jobs by this attribute.
    #[arg(long, value_enum, default_value = "user")]
    by: By,

    /// The jobs that ended at this time or later: YYYY-MM-DD or YYYY-MM-DDTHH:MM in UTC, or an age such as
    /// 12h or 30d. Default: 7d before --to.
    #[arg(long, value_name = "TIME")]
    from: Option<PointInTime>,

    /// The jobs that ended before this time. Default: now.
    #[arg(long, value_name = "TIME")]
    to: Option<PointInTime>,

    /// The jobs of this user, by name or numeric id.
    #[arg(long, value_name = "USER")]
    user: Option<String>,

    /// The jobs of this account.
    #[arg(long, value_name = "NAME")]
    account: Option<String>,

    /// The jobs of this queue or partition.
    #[arg(long, value_name = "NAME", visible_alias = "partition")]
    queue: Option<String>,

    /// At most this number of groups, those that wasted most.
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    #[command(flatten)]
    source: ReadSource,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Group<'a> {
    /// User, account, queue, array or job; none for the jobs without one.
    group: Option<&'a str>,
    user: Option<&'a str>,
    jobs: u64,
    failed: u64,
    unknown: u64,
    core_hours: f64,
    cpu_hours: f64,
    wasted_core_hours: f64,
    gpu_hours: f64,
    wasted_gpu_hours: f64,
    memory_efficiency: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Output<'a> {
    from: String,
    to: String,
    groups: Vec<Group<'a>>,
}

impl By {
    const fn group(self) -> UsageGroup {
        match self {
            Self::User => UsageGroup::User,
            Self::Account => UsageGroup::Account,
            Self::Queue => UsageGroup::Queue,
            Self::Array => UsageGroup::Array,
            Self::Job => UsageGroup::Job,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::User => "USER",
            Self::Account => "ACCOUNT",
            Self::Queue => "QUEUE",
            Self::Array => "ARRAY",
            Self::Job => "JOB",
        }
    }
}

pub(crate) fn execute(arguments: &UsageArguments) -> Result<(), Failure> {
    let now_us = realtime_us();
    let to_ns = arguments.to.map_or(now_us.saturating_mul(1000), |to| to.time_ns(now_us));
    let usual_ns = to_ns.saturating_sub(DAYS * DAY_US * 1000);
    let from_ns = arguments.from.map_or(usual_ns, |from| from.time_ns(now_us));
    if from_ns >= to_ns {
        return Err(Failure::Usage("cannot add up jobs: --from is not before --to".to_owned()));
    }
    let owner_uid = arguments.user.as_ref().and_then(|user| user.parse::<u32>().ok()).map(i64::from);
    let filter = JobFilter {
        owner: arguments.user.clone().filter(|_| owner_uid.is_none()),
        owner_uid,
        account: arguments.account.clone(),
        queue: arguments.queue.clone(),
        limit: arguments.limit,
        ..JobFilter::default()
    };
    let mut source = arguments.source.open()?;
    let rows = source.reader.usage(arguments.by.group(), from_ns..to_ns, &filter);
    let rows = rows.map_err(cannot_read)?;
    if arguments.json {
        let time = |ns: i64| rfc3339(ns / 1000);
        let groups = rows.iter().map(group).collect();
        return terminal::print_json(&Output { from: time(from_ns), to: time(to_ns), groups });
    }
    let limit = terminal::width_limit(&std::io::stdout());
    terminal::print(&text(arguments.by, &rows, source.visible, limit))
}

fn group(row: &UsageRow) -> Group<'_> {
    let hours = |seconds: f64| seconds / 3600.0;
    Group {
        group: row.group.as_deref(),
        user: row.user.as_deref(),
        jobs: row.jobs,
        failed: row.failed,
        unknown: row.unknown,
        core_hours: hours(row.core_s),
        cpu_hours: hours(row.cpu_s),
        wasted_core_hours: hours(row.wasted_core_s),
        gpu_hours: hours(row.gpu_s),
        wasted_gpu_hours: hours(row.wasted_gpu_s),
        memory_efficiency: share(row.memory_used_byte_s, row.memory_byte_s),
    }
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Leaves out columns about GPUs and failures where there are none.
fn text(by: By, rows: &[UsageRow], visible: Visible, limit: Option<usize>) -> String {
    if rows.is_empty() {
        let of_user = if visible == Visible::Own { "none of your jobs" } else { "no job" };
        return format!("{of_user} ended in this time that matches\n");
    }
    let percent = |share: Option<f64>| figure(share, |share| format!("{:.0} %", 100.0 * share));
    let has_gpus = rows.iter().any(|row| row.gpu_s > 0.0);
    let mut titles = head([by.title(), "JOBS", "FAILED", "CORE-H", "CPU", "WASTED CORE-H", "MEMORY"]);
    if has_gpus {
        titles.extend(["GPU-H", "GPU", "WASTED GPU-H"].map(str::to_owned));
    }
    let mut cells = vec![titles];
    for row in rows {
        let name = figure(row.group.as_deref(), str::to_owned);
        let mut of_row = vec![
            row.user.as_ref().map_or(name.clone(), |user| format!("{name} ({user})")),
            row.jobs.to_string(),
            row.failed.to_string(),
            hours(row.core_s),
            percent(share(row.cpu_s, row.core_s)),
            hours(row.wasted_core_s),
            percent(share(row.memory_used_byte_s, row.memory_byte_s)),
        ];
        if has_gpus {
            of_row.extend([
                hours(row.gpu_s),
                percent(share(row.gpu_s - row.wasted_gpu_s, row.gpu_s)),
                hours(row.wasted_gpu_s),
            ]);
        }
        cells.push(of_row);
    }
    let mut text = table_within(&cells, limit);
    let unknown: u64 = rows.iter().map(|row| row.unknown).sum();
    if unknown > 0 {
        let all: u64 = rows.iter().map(|row| row.jobs).sum();
        let note = format!(
            "{unknown} of {all} jobs count in no core-hours: their cores or CPU time are not known, or not yet\n"
        );
        text.push_str(&wrapped_lines(&note, limit));
    }
    text
}

/// Hours with a digit behind the point; those of small jobs with as many as tell them apart.
fn hours(seconds: f64) -> String {
    let hours = seconds / 3600.0;
    let digits = match hours.abs() {
        0.000_05..0.1 => 4,
        0.1..1.0 => 2,
        _ => 1,
    };
    format!("{hours:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot;

    #[test]
    fn hours_of_small_jobs_differ() {
        let texts = [0.0, 0.1, 36.0, 540.0, 5_400.0, 4.5e6].map(hours);
        assert_eq!(texts, ["0.0", "0.0", "0.0100", "0.15", "1.5", "1250.0"]);
    }

    fn row(group: &str, jobs: u64, unknown: u64, core_h: f64, cpu_h: f64) -> UsageRow {
        UsageRow {
            group: Some(group.to_owned()),
            jobs,
            unknown,
            core_s: 3600.0 * core_h,
            cpu_s: 3600.0 * cpu_h,
            wasted_core_s: 3600.0 * (core_h - cpu_h),
            ..UsageRow::default()
        }
    }

    #[test]
    fn groups_are_laid_out_as_recorded() {
        let mut rows = [row("zoe", 120, 0, 5_000.0, 1_250.0), row("adam", 7, 2, 40.0, 39.0)];
        rows[0].failed = 3;
        (rows[0].memory_byte_s, rows[0].memory_used_byte_s) = (200.0, 50.0);
        let plain = text(By::User, &rows, Visible::All, Some(80));
        (rows[1].gpu_s, rows[1].wasted_gpu_s) = (36_000.0, 27_000.0);
        snapshot::check("usage", &(plain + "\n" + &text(By::User, &rows, Visible::All, Some(100))));
        assert_eq!(
            text(By::User, &[], Visible::Own, None),
            "none of your jobs ended in this time that matches\n"
        );
        let array = [UsageRow { user: Some("zoe".to_owned()), ..row("4009", 3, 0, 1.0, 1.0) }];
        assert!(text(By::Array, &array, Visible::All, None).contains("\n4009 (zoe)  3 "));
    }
}
