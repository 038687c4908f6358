//! The report of a job: what it used, how its metrics went, what was sampled and what was lost.

pub(crate) mod chart;
mod gather;
mod history;
mod outcome;
mod text;
pub(crate) mod units;

use polymeter_collector::query::{JobRow, Reader};
use polymeter_collector::store::StoreUrl;

use crate::failure::Failure;
use crate::terminal;

pub(crate) use gather::{Report, SeriesReport, Totals, gather};
pub(crate) use text::{Detail, text};

/// Which job is reported, and from where.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The store: sqlite:PATH or postgres://USER@HOST/DATABASE.
    #[arg(long, value_name = "STORE", default_value = "sqlite:polymeter.db")]
    store: StoreUrl,

    /// The job's id; without it, the last that began.
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// A line for every series, also for those that never changed.
    #[arg(long)]
    all: bool,

    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let failed = |error| Failure::refused("cannot read the store", &error);
    let mut reader = Reader::open(&arguments.store).map_err(failed)?;
    let jobs = reader.jobs().map_err(failed)?;
    let job = choose(&jobs, arguments.job.as_deref())?;
    let report = gather(&mut reader, job).map_err(failed)?;
    let detail = if arguments.all { Detail::All } else { Detail::Changing };
    let bound = terminal::bound(&std::io::stdout());
    terminal::print(&if arguments.json { json(&report)? } else { text(&report, detail, bound) });
    Ok(())
}

/// The job that is meant: of several with the same id the last.
pub(crate) fn choose<'a>(jobs: &'a [JobRow], wanted: Option<&str>) -> Result<&'a JobRow, Failure> {
    let fitting = jobs.iter().rev().find(|job| wanted.is_none_or(|wanted| job.job_id == wanted));
    fitting.ok_or_else(|| {
        let known: Vec<&str> = jobs.iter().rev().take(10).map(|job| job.job_id.as_str()).collect();
        Failure::Refused(match (wanted, known.as_slice()) {
            (_, []) => "the store has no job".to_owned(),
            (wanted, known) => format!(
                "the store has no job `{}`; the last are: {}",
                wanted.unwrap_or_default(),
                known.join(", ")
            ),
        })
    })
}

pub(crate) fn json(report: &Report) -> Result<String, Failure> {
    serde_json::to_string_pretty(report)
        .map(|text| text + "\n")
        .map_err(|error| Failure::refused("cannot write the report", &error))
}
