//! Samples of a bundle as a Parquet file with a row for each sample.

use std::fs::File;

use polymeter_samples_file::{
    Format, SamplesError, SamplesOf, WrittenSeries, add_samples, write_file, written_series,
};
use polymeter_store::reader::{JobRow, Read, SampleSet, SeriesScope};

use crate::commands::export::without_devices;

pub(super) const NAME: &str = "samples.parquet";
pub(super) const KEPT_NAME: &str = "kept.parquet";

/// Writes the samples of a job, and those of its nodes and of the devices that serve them while it ran, into
/// `file`. Returns the number of all samples, and the series of the job.
pub(super) fn write(
    reader: &mut dyn Read,
    job: &JobRow,
    file: File,
) -> Result<(u64, Vec<WrittenSeries>), SamplesError> {
    let of_job = SeriesScope::Job(job.job_key);
    let mut written = written_series(reader.series(of_job)?);
    // The bundle contains a running job up to now.
    let span_ns = job.started_ns..job.ended_ns.unwrap_or(i64::MAX).saturating_add(1);
    let samples = write_file(Format::Parquet.writer(file, Vec::new())?, |encoder| {
        let wanted = SamplesOf { set: SampleSet::Plan, of: of_job, job_id: Some(&job.job_id) };
        add_samples(encoder, reader, wanted, &mut written, &job.sampled_ns, |_| {})?;
        for node in &job.nodes {
            let of_node = SeriesScope::Node(node);
            let mut series = written_series(without_devices(reader.series(of_node)?));
            let wanted = SamplesOf { set: SampleSet::Plan, of: of_node, job_id: None };
            add_samples(encoder, reader, wanted, &mut series, &span_ns, |_| {})?;
        }
        let mut of_devices = written_series(reader.device_series(job.job_key)?);
        let of = SeriesScope::NodesOf(job.job_key);
        let wanted = SamplesOf { set: SampleSet::Plan, of, job_id: None };
        add_samples(encoder, reader, wanted, &mut of_devices, &span_ns, |_| {})
    })?;
    Ok((samples, written))
}

/// Writes the samples of kept intervals of a job into `file`.
pub(super) fn write_kept(reader: &mut dyn Read, job: &JobRow, file: File) -> Result<(), SamplesError> {
    let of = SeriesScope::Job(job.job_key);
    let mut written = written_series(reader.series(of)?);
    let wanted = SamplesOf { set: SampleSet::Kept, of, job_id: Some(&job.job_id) };
    write_file(Format::Parquet.writer(file, Vec::new())?, |encoder| {
        add_samples(encoder, reader, wanted, &mut written, &job.sampled_ns, |_| {})
    })
    .map(drop)
}
