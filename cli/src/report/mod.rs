//! The report of a job: what it used, how its metrics went, what was sampled and what was lost.

pub(crate) mod chart;
mod gather;
mod hardware;
mod history;
mod outcome;
mod rates;
mod series;
mod text;
pub(crate) mod units;

use polymeter_store::StoreUrl;
use polymeter_store::reader::{JobRow, Reader};

use crate::failure::Failure;
use crate::printable::{printable_json, printable_name};
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

impl Arguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let failed = |error| Failure::refused("cannot read the store", &error);
    let mut reader = Reader::open(&arguments.store).map_err(failed)?;
    let jobs = reader.jobs().map_err(failed)?;
    let job = choose(&jobs, arguments.job.as_deref(), &arguments.store)?;
    let report = gather(&mut reader, job, None).map_err(failed)?;
    if arguments.json {
        return terminal::print_json(&json(&report)?);
    }
    let detail = if arguments.all { Detail::All } else { Detail::Changing };
    terminal::print(&text(&report, detail, terminal::bound(&std::io::stdout())))
}

/// Ids that a refusal suggests, and how far they may be from what was typed: a third of its length and one more.
const SUGGESTED: usize = 3;
const NEAR_PART: usize = 3;

/// The job that is meant: of several with the same id the last.
pub(crate) fn choose<'a>(
    jobs: &'a [JobRow],
    wanted: Option<&str>,
    store: &StoreUrl,
) -> Result<&'a JobRow, Failure> {
    let fitting = jobs.iter().rev().find(|job| wanted.is_none_or(|wanted| job.job_id == wanted));
    fitting.ok_or_else(|| {
        let Some(wanted) = wanted else { return Failure::Refused("the store has no job".to_owned()) };
        let uid = rustix::process::geteuid();
        // Who can read a file can read all of it. In a database others' ids are not for everybody who may ask it.
        let sees_all = uid.is_root() || store.file().is_some();
        let is_seen = |job: &&JobRow| sees_all || job.owner_uid == Some(i64::from(uid.as_raw()));
        let near = near(wanted, jobs.iter().rev().filter(is_seen).map(|job| job.job_id.as_str()));
        let suggestion =
            if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) };
        Failure::Refused(format!(
            "unknown job `{}`: the store has no such job{suggestion}",
            printable_name(wanted)
        ))
    })
}

/// The few of the ids that are nearest to `wanted`, each once.
fn near<'a>(wanted: &str, ids: impl Iterator<Item = &'a str>) -> Vec<String> {
    let far = wanted.chars().count() / NEAR_PART + 1;
    let mut found: Vec<(usize, &str)> = Vec::new();
    for id in ids {
        let distance = strsim::levenshtein(wanted, id);
        if distance <= far && found.iter().all(|(_, known)| *known != id) {
            found.push((distance, id));
        }
    }
    found.sort_by_key(|(distance, _)| *distance);
    found.into_iter().take(SUGGESTED).map(|(_, id)| format!("`{}`", printable_name(id))).collect()
}

pub(crate) fn json(report: &Report) -> Result<String, Failure> {
    serde_json::to_string_pretty(report)
        .map(|text| printable_json(&text).into_owned() + "\n")
        .map_err(|error| Failure::refused("cannot write the report", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_job_lists_no_others() {
        let ids = ["4242", "4243", "4244", "4245", "91", "91", "run-7-1795177077"];
        assert_eq!(near("4241", ids.into_iter()), ["`4242`", "`4243`", "`4244`"]);
        assert_eq!(near("run-7-1795177078", ids.into_iter()), ["`run-7-1795177077`"]);
        assert_eq!(near("somebody's", ids.into_iter()), [""; 0]);
        assert_eq!(near("99", ids.into_iter()), ["`91`"]);
    }
}
