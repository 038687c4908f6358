//! `polymeter report`: reports the resource usage of a stored job.

use std::path::PathBuf;

use polymeter_analysis::advice;
use polymeter_analysis::gather::gather;
use polymeter_analysis::jobstats;
use polymeter_analysis::model::Report;
use polymeter_store::StoreUrl;
use polymeter_store::reader::Reader;

use crate::failure::Failure;
use crate::output::{style, terminal};
use crate::report::choice::choose;
use crate::report::findings::add_findings;
use crate::report::render::{self, Sections};
use crate::store_failure::store_failure;

#[derive(Debug, clap::Args)]
pub(crate) struct ReportArguments {
    /// The store: sqlite:PATH or postgres://USER@HOST/DATABASE.
    #[arg(long, value_name = "STORE", default_value = "sqlite:polymeter.db")]
    store: StoreUrl,

    /// The job's id; of several jobs with the same id the last. Default: the job that started last.
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// Show everything: the first screen, all sections without limits, constant series, and the ledger by source.
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    sections: Sections,

    /// The directory of the site's rules for findings.
    #[arg(long, value_name = "DIRECTORY", default_value = advice::DIRECTORY)]
    advice: PathBuf,

    /// Print JSON.
    #[arg(long, conflicts_with = "jobstats")]
    json: bool,

    /// Print the summary of Jobstats, `JS1:...`, which reportseff and job_defense_shield read.
    #[arg(long)]
    jobstats: bool,
}

impl ReportArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }
}

pub(crate) fn execute(arguments: &ReportArguments) -> Result<(), Failure> {
    let failed = |error| store_failure("cannot read the store", &error);
    let mut reader = Reader::open(&arguments.store).map_err(failed)?;
    let job = choose(&mut reader, arguments.job.as_deref(), &arguments.store)?;
    let mut report = gather(&mut reader, &job, None).map_err(failed)?;
    add_findings(&mut report, &arguments.advice);
    print(&report, arguments)
}

fn print(report: &Report, arguments: &ReportArguments) -> Result<(), Failure> {
    if arguments.json {
        return terminal::print_json(report);
    }
    if arguments.jobstats {
        let summary = jobstats::summary(report)
            .map_err(|error| Failure::because("cannot make the summary of Jobstats", &error))?;
        return terminal::print(&(summary + "\n"));
    }
    let stdout = std::io::stdout();
    let (limit, has_colours) = (terminal::width_limit(&stdout), style::has_colours(&stdout));
    let text = render::chosen(report, arguments.sections, arguments.all, limit, has_colours);
    // The texts of the report were made printable one by one; what is left are the colours.
    terminal::print_raw(text.as_bytes())
}
