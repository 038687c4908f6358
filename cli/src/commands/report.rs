//! `polymeter report`: reports the resource usage of a stored job.

use polymeter_store::StoreUrl;
use polymeter_store::reader::Reader;

use crate::failure::Failure;
use crate::output::terminal;
use crate::report::choice::choose;
use crate::report::render::{self, Detail};
use crate::store_failure::store_failure;
use polymeter_analysis::gather::gather;

#[derive(Debug, clap::Args)]
pub(crate) struct ReportArguments {
    /// The store: sqlite:PATH or postgres://USER@HOST/DATABASE.
    #[arg(long, value_name = "STORE", default_value = "sqlite:polymeter.db")]
    store: StoreUrl,

    /// The job's id; of several jobs with the same id the last. Default: the job that started last.
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// Include constant series, all events and the ledger by source.
    #[arg(long)]
    all: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
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
    let report = gather(&mut reader, &job, None).map_err(failed)?;
    if arguments.json {
        return terminal::print_json(&report);
    }
    let limit = terminal::width_limit(&std::io::stdout());
    terminal::print(&render::text(&report, Detail::of(arguments.all), limit))
}
