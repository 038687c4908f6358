//! `polymeter bundle`: everything about a run in one directory, with which it can be understood and done again.

mod directory;
mod facts;
mod manifest;
mod plot;
mod readme;
mod samples;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use polymeter_agent::clock;
use polymeter_store::StoreUrl;
use polymeter_store::reader::{JobRow, Reader};
use serde::Serialize;

use crate::failure::Failure;
use crate::printable::printable_name;
use crate::report::{self, Detail};
use crate::terminal;
use crate::version::Version;
use directory::Directory;
use facts::Machine;
use samples::SamplesError;

/// Under which name the description of an experiment lies in a bundle.
const DESCRIPTION: &str = "description.toml";

/// Under which name an experiment puts the lock file that pins its programs.
const LOCK: &str = "flake.lock";

/// Which run is made a bundle, or which bundle is looked at.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,

    /// The job's id: of several with the same one the last.
    #[arg(required = true, value_name = "JOB")]
    job: Option<String>,

    /// The store: sqlite:PATH or postgres://USER@HOST/DATABASE.
    #[arg(long, value_name = "STORE", default_value = "sqlite:polymeter.db")]
    store: StoreUrl,

    /// The directory to make; bundle-JOB if nothing is said.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// A file that describes the experiment, to be put in. Its `seed` is told.
    #[arg(long, value_name = "FILE")]
    description: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Say what of a bundle was changed, is missing or was added since it was made.
    Verify {
        /// The bundle.
        #[arg(value_name = "DIR")]
        bundle: PathBuf,
    },
    /// Make a directory with the results of an experiment a bundle.
    Seal {
        /// The directory. A description.toml in it is the experiment's.
        #[arg(value_name = "DIR")]
        results: PathBuf,
    },
}

/// With what a bundle was made, and of what.
#[derive(Debug, Serialize)]
struct Provenance {
    program: Version,
    /// When, in microseconds since the epoch.
    made_us: i64,
    /// The store that the job was in, without a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    /// The description of the experiment, which lies in the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'static str>,
    /// What the description says that chance follows from.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
    /// The hash of the lock file in the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    flake_lock_sha256: Option<String>,
}

/// What is known of the job.
#[derive(Debug, Serialize)]
struct Job<'a> {
    job_id: &'a str,
    cluster: Option<&'a str>,
    owner: Option<&'a str>,
    owner_uid: Option<i64>,
    nodes: &'a [String],
    started_ns: i64,
    ended_ns: Option<i64>,
    /// Rows of samples.parquet.
    samples: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match (&arguments.action, &arguments.job) {
        (Some(Action::Verify { bundle }), _) => verify(bundle),
        (Some(Action::Seal { results }), _) => seal(results),
        (None, Some(job)) => make(arguments, job),
        (None, None) => Err(Failure::Usage("say which job".to_owned())),
    }
}

fn make(arguments: &Arguments, job_id: &str) -> Result<(), Failure> {
    let failed = |error| Failure::refused("cannot read the store", &error);
    let mut reader = Reader::open(&arguments.store).map_err(failed)?;
    let jobs = reader.jobs().map_err(failed)?;
    let job = report::choose(&jobs, Some(job_id), &arguments.store)?;
    let changes = reader.plan_changes(Some(job.job_key)).map_err(failed)?;
    let out = arguments.out.clone().unwrap_or_else(|| PathBuf::from(format!("bundle-{}", plain(job_id))));
    let directory = Directory::make(&out)?;
    if let Some(description) = &arguments.description {
        fs::copy(description, directory.file(DESCRIPTION))
            .map_err(|error| directory::cannot("copy", description, &error))?;
    }
    let samples = put_job(&directory, &mut reader, job)?;
    put_origin(&directory, Some(arguments.store.to_string()), |provenance| {
        readme::of_job(&job.job_id, provenance, &changes)
    })?;
    let job_id = printable_name(&job.job_id);
    terminal::print(&format!("{samples} samples of job {job_id} in {}\n", out.display()))
}

/// Everything that the store knows of the job. Says how many samples that is.
fn put_job(directory: &Directory, reader: &mut Reader, job: &JobRow) -> Result<u64, Failure> {
    let failed = |error| Failure::refused("cannot read the store", &error);
    let report = report::gather(reader, job, None).map_err(failed)?;
    directory.text("report.txt", &report::text(&report, Detail::All, None))?;
    directory.text("report.json", &report::json(&report)?)?;
    directory.text(plot::NAME, &plot::render(&report, job.started_ns))?;
    // A job that goes on has ended here.
    let end_ns = job.ended_ns.unwrap_or(i64::MAX).saturating_add(1);
    let file = directory.create(samples::NAME)?;
    let samples = samples::write(reader, job, job.started_ns..end_ns, file).map_err(|error| match error {
        SamplesError::Store(error) => failed(error),
        SamplesError::Write(error) => Failure::refused("cannot write the samples", &error),
    })?;
    for (name, text) in tables::tables(reader, job).map_err(failed)? {
        directory.text(name, &text)?;
    }
    let job = Job {
        job_id: &job.job_id,
        cluster: job.cluster.as_deref(),
        owner: job.owner.as_deref(),
        owner_uid: job.owner_uid,
        nodes: &job.nodes,
        started_ns: job.started_ns,
        ended_ns: job.ended_ns,
        samples,
    };
    directory.json("job.json", &job)?;
    Ok(samples)
}

/// With what, when, where and how again; and the manifest, in the end.
fn put_origin(
    directory: &Directory,
    store: Option<String>,
    readme: impl FnOnce(&Provenance) -> String,
) -> Result<(), Failure> {
    let description = fs::read_to_string(directory.file(DESCRIPTION)).ok();
    let provenance = Provenance {
        program: Version::own(),
        made_us: clock::realtime_us(),
        store,
        description: description.as_ref().map(|_| DESCRIPTION),
        seed: description.as_deref().and_then(seed),
        flake_lock_sha256: manifest::hash(&directory.file(LOCK)).ok(),
    };
    directory.json("provenance.json", &provenance)?;
    directory.json("machine.json", &Machine::look(Path::new("/")))?;
    directory.text("README.md", &readme(&provenance))?;
    directory.seal()
}

fn seal(results: &Path) -> Result<(), Failure> {
    let directory = Directory::of_results(results)?;
    put_origin(&directory, None, readme::of_results)?;
    terminal::print(&format!("{} is a bundle\n", results.display()))
}

fn verify(bundle: &Path) -> Result<(), Failure> {
    let said = directory::said(bundle)?;
    let found = directory::found(bundle).map_err(|error| directory::cannot("read", bundle, &error))?;
    let faults = said.faults(&found);
    if faults.is_empty() {
        return terminal::print(&format!("{} files are as they were made\n", said.0.len()));
    }
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    Err(Failure::Refused(format!("{}: {}", bundle.display(), faults.join("\npolymeter:   "))))
}

/// The seed that a description says.
fn seed(description: &str) -> Option<i64> {
    description.parse::<toml::Table>().ok()?.get("seed")?.as_integer()
}

/// A job's id as part of a file's name.
fn plain(job_id: &str) -> String {
    let fitting = |letter: char| letter.is_alphanumeric() || matches!(letter, '.' | '-' | '_');
    job_id.chars().map(|letter| if fitting(letter) { letter } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_lead_elsewhere() {
        assert_eq!(plain("../4242[1]"), ".._4242_1_");
        assert_eq!(plain("run-1.batch_2"), "run-1.batch_2");
    }

    #[test]
    fn a_seed_is_found_where_there_is_one() {
        assert_eq!(seed("replicates = 2\nseed = 7\n[[tool]]\nseed = 8\n"), Some(7));
        assert_eq!(seed("seed = 'x'"), None);
        assert_eq!(seed("no TOML"), None);
    }
}
