//! `polymeter bundle`: exports a job to a directory that contains everything needed to understand and repeat
//! the run.

mod directory;
mod machine_facts;
mod make;
mod manifest;
mod plot;
mod provenance;
mod readme;
mod samples;
mod tables;

use std::path::{Path, PathBuf};

use crate::client::job_completion;
use crate::client::read_source::ReadSource;
use crate::failure::Failure;
use crate::output::terminal;
use clap_complete::engine::ArgValueCompleter;
use directory::BundleDirectory;
use polymeter_proto::units::counted;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BundleArguments {
    #[command(subcommand)]
    action: Option<BundleAction>,

    /// The job's id; of several jobs with the same id the last.
    #[arg(required = true, value_name = "JOB", add = ArgValueCompleter::new(job_completion::stored))]
    job: Option<String>,

    #[command(flatten)]
    source: ReadSource,

    /// The directory to create. Default: bundle-JOB.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// A description of the experiment to include; its `seed` is recorded.
    #[arg(long, value_name = "FILE")]
    description: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum BundleAction {
    /// List the files of a bundle that were changed, removed or added since it was made.
    Verify {
        /// The bundle.
        #[arg(value_name = "DIR")]
        bundle: PathBuf,
    },
    /// Turn a directory with the results of an experiment into a bundle.
    Seal {
        /// The directory. A description.toml in it describes the experiment.
        #[arg(value_name = "DIR")]
        results: PathBuf,
    },
}

pub(crate) fn execute(arguments: &BundleArguments) -> Result<(), Failure> {
    match (&arguments.action, &arguments.job) {
        (Some(BundleAction::Verify { bundle }), _) => verify(bundle),
        (Some(BundleAction::Seal { results }), _) => seal(results),
        (None, Some(job)) => {
            let request = make::BundleRequest {
                job,
                source: &arguments.source,
                out: arguments.out.as_deref(),
                description: arguments.description.as_deref(),
            };
            make::make(&request)
        }
        (None, None) => Err(Failure::Usage("cannot make a bundle: no job given; name a job's id".to_owned())),
    }
}

fn seal(results: &Path) -> Result<(), Failure> {
    let directory = BundleDirectory::of_results(results)?;
    make::add_origin(&directory, None, readme::of_results)?;
    terminal::print(&format!("sealed {} as a bundle\n", results.display()))
}

fn verify(bundle: &Path) -> Result<(), Failure> {
    let manifest = directory::read_manifest(bundle)?;
    let found =
        directory::hash_files(bundle).map_err(|error| directory::io_failure("read", bundle, &error))?;
    let differences = manifest.differences(&found);
    if differences.is_empty() {
        return terminal::print(&format!("unchanged: {}\n", counted(manifest.0.len(), "file")));
    }
    let differences: Vec<String> = differences.iter().map(ToString::to_string).collect();
    let differences = differences.join("\npolymeter:   ");
    Err(Failure::Failed(format!("cannot verify {}: {differences}", bundle.display())))
}
