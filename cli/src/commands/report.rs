//! `polymeter report`: reports the resource usage of a stored job.

use polymeter_analysis::gather::gather;
use polymeter_analysis::model::Report;

use crate::client::read_source::ReadSource;
use crate::failure::Failure;
use crate::output::printable::printable_name;
use crate::output::terminal;
use crate::report::choice::choose;
use crate::report::render::{self, Detail};
use crate::store_failure::store_failure;

#[derive(Debug, clap::Args)]
pub(crate) struct ReportArguments {
    /// The job's id, also as schedulers print it: 4009_1, 4009+1, or 4009.batch for a step; of several jobs with the same id
    /// the last. Default: SLURM_JOB_ID or OAR_JOB_ID, else your job that started last.
    #[arg(value_name = "JOB")]
    job: Option<String>,

    /// The former way to name the job.
    #[arg(long = "job", value_name = "ID", hide = true, conflicts_with = "job")]
    job_option: Option<String>,

    #[command(flatten)]
    source: ReadSource,

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
    let mut source = arguments.source.open()?;
    let wanted = arguments.job.as_deref().or(arguments.job_option.as_deref());
    let chosen = choose(&mut source, wanted)?;
    let mut report = gather(source.reader.as_mut(), &chosen.job, None).map_err(failed)?;
    if let Some(step) = &chosen.step {
        keep_step(&mut report, step)?;
    }
    if arguments.json {
        return terminal::print_json(&report);
    }
    let limit = terminal::width_limit(&std::io::stdout());
    terminal::print(&render::text(&report, Detail::of(arguments.all), limit))
}

/// Keeps the series of one step.
fn keep_step(report: &mut Report, step: &str) -> Result<(), Failure> {
    let mut steps: Vec<String> =
        report.series.iter().filter_map(|series| step_of(&series.labels).map(str::to_owned)).collect();
    steps.sort();
    steps.dedup();
    if !steps.iter().any(|known| known == step) {
        let names: Vec<_> = steps.iter().take(STEPS).map(|step| printable_name(step)).collect();
        let (step, job) = (printable_name(step), printable_name(&report.job));
        let remedy = if names.is_empty() {
            "no steps of it were sampled".to_owned()
        } else {
            format!("its steps are {}", names.join(", "))
        };
        return Err(Failure::Failed(format!("unknown step `{step}` of job {job}: {remedy}")));
    }
    report.series.retain(|series| step_of(&series.labels) == Some(step));
    report.notes.push(format!("the series are those of step {step}; the totals are those of the job"));
    Ok(())
}

/// The maximum number of steps that a refusal lists.
const STEPS: usize = 10;

/// Returns the step in labels in the form `key=value,...`.
fn step_of(labels: &str) -> Option<&str> {
    labels.split(',').find_map(|label| label.strip_prefix("step="))
}
