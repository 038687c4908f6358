//! Makes a bundle of a stored job.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use polymeter_proto::run::Run;
use polymeter_proto::units::counted;
use polymeter_samples_file::SamplesError;
use polymeter_store::reader::{JobRow, Read};
use serde::Serialize;

use super::directory::{BundleDirectory, io_failure};
use super::machine_facts::MachineInfo;
use super::provenance::{DESCRIPTION, Provenance};
use super::{plot, readme, samples, tables};
use crate::client::read_source::ReadSource;
use crate::failure::Failure;
use crate::output::file_name::file_name_of;
use crate::output::printable::printable_name;
use crate::output::terminal;
use crate::report::choice::{ChosenJob, choose};
use crate::report::findings::add_findings;
use crate::report::summary::flame_remarks;
use crate::report::{html, render};
use polymeter_analysis::advice::DIRECTORY;
use polymeter_analysis::gather::gather;
use polymeter_analysis::stacks::profile::{Choice, Profile};
use polymeter_analysis::stacks::{Missing, collapsed, summary};

pub(super) struct BundleRequest<'a> {
    pub(super) job: &'a str,
    pub(super) source: &'a ReadSource,
    pub(super) out: Option<&'a Path>,
    pub(super) description: Option<&'a Path>,
}

/// Contents of `job.json`.
#[derive(Debug, Serialize)]
struct JobInfo<'a> {
    job_id: &'a str,
    cluster: Option<&'a str>,
    owner: Option<&'a str>,
    owner_uid: Option<i64>,
    nodes: &'a [String],
    name: Option<&'a str>,
    run: Option<&'a Run>,
    started_ns: i64,
    ended_ns: Option<i64>,
    /// Rows in `samples.parquet`.
    samples: u64,
}

pub(super) fn make(request: &BundleRequest<'_>) -> Result<(), Failure> {
    let mut source = request.source.open_for(Some(request.job))?;
    let ChosenJob { job, step, .. } = choose(&mut source, Some(request.job))?;
    if step.is_some() {
        let job = printable_name(&job.job_id);
        return Err(Failure::Usage(format!("cannot make a bundle of a step: name the job, {job}")));
    }
    if source.hides_nodes() {
        terminal::print_error(
            "polymeter: the bundle has no series of nodes: the collector shows them to administrators only\n",
        );
    }
    let changes = source
        .reader
        .plan_changes(job.job_key)
        .map_err(|error| Failure::because("cannot read the store", &error))?;
    let out = request
        .out
        .map_or_else(|| PathBuf::from(format!("bundle-{}", file_name_of(request.job))), Path::to_owned);
    let directory = BundleDirectory::create(&out)?;
    if let Some(description) = request.description {
        let mut copy = directory.create_file(DESCRIPTION)?;
        File::open(description)
            .and_then(|mut file| io::copy(&mut file, &mut copy))
            .map_err(|error| io_failure("copy", description, &error))?;
    }
    let samples = add_job(&directory, source.reader.as_mut(), &job)?;
    add_origin(&directory, Some(source.name), |provenance| readme::of_job(&job, provenance, &changes))?;
    let job_id = printable_name(&job.job_id);
    terminal::print(&format!("{} of job {job_id} in {}\n", counted(samples, "sample"), out.display()))
}

/// Returns the number of samples.
fn add_job(directory: &BundleDirectory, reader: &mut dyn Read, job: &JobRow) -> Result<u64, Failure> {
    let failed = |error| Failure::because("cannot read the store", &error);
    let mut report = gather(reader, job, None).map_err(failed)?;
    add_findings(&mut report, Path::new(DIRECTORY));
    directory.add_text("report.txt", &render::all(&report, None, false))?;
    directory.add_json("report.json", &report)?;
    directory.add_text(plot::NAME, &plot::render(&report, job.started_ns))?;
    add_stacks(directory, reader, job)?;
    let file = directory.create_file(samples::NAME)?;
    let (samples, series) = samples::write(reader, job, file).map_err(samples_failure)?;
    if !report.kept.is_empty() {
        let file = directory.create_file(samples::KEPT_NAME)?;
        samples::write_kept(reader, job, file).map_err(samples_failure)?;
    }
    for (name, text) in tables::tables(reader, job, &series)? {
        directory.add_text(name, &text)?;
    }
    let info = JobInfo {
        job_id: &job.job_id,
        cluster: job.cluster.as_deref(),
        owner: job.owner.as_deref(),
        owner_uid: job.owner_uid,
        nodes: &job.nodes,
        name: job.name.as_deref(),
        run: job.run.as_deref(),
        started_ns: job.started_ns,
        ended_ns: job.ended_ns,
        samples,
    };
    directory.add_json("job.json", &info)?;
    Ok(samples)
}

fn samples_failure(error: SamplesError) -> Failure {
    match error {
        SamplesError::Store(error) => Failure::because("cannot read the store", &error),
        error @ (SamplesError::Write(_) | SamplesError::Stopped) => {
            Failure::because("cannot write the samples", &error)
        }
    }
}

fn add_stacks(directory: &BundleDirectory, reader: &mut dyn Read, job: &JobRow) -> Result<(), Failure> {
    let choice = Choice { spans: vec![(None, job.sampled_ns.clone())], ..Choice::default() };
    let profile = Profile::read(reader, job.job_key, &choice)
        .map_err(|error| Failure::because("cannot read the store", &error))?;
    if profile.is_empty() {
        return Ok(());
    }
    let tree = profile.tree();
    directory.add_text("stacks.folded", &collapsed(&tree))?;
    let title = format!("Where the time went: job {}", job.job_id);
    let missing = Missing::read(reader, job.job_key, &profile.metric, &choice.spans)
        .map_err(|error| Failure::because("cannot read the store", &error))?;
    let report = summary(&profile, missing);
    directory.add_text("flame.html", &html::flame_page(&title, &flame_remarks(&report), &tree, None))
}

/// Adds the manifest at last.
pub(super) fn add_origin(
    directory: &BundleDirectory,
    store: Option<String>,
    readme: impl FnOnce(&Provenance) -> String,
) -> Result<(), Failure> {
    let provenance = Provenance::of(directory, store);
    directory.add_json("provenance.json", &provenance)?;
    directory.add_json("machine.json", &MachineInfo::read(Path::new("/")))?;
    directory.add_text("README.md", &readme(&provenance))?;
    directory.add_manifest()
}
