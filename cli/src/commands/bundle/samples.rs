//! Samples of a bundle as a Parquet file with a row for each sample.

use std::fs::File;

use polymeter_samples_file::{Format, SamplesError, WrittenSeries, add_samples, write_file, written_series};
use polymeter_store::reader::{JobRow, Read, SeriesScope};

pub(super) const NAME: &str = "samples.parquet";

/// Writes the samples of a job, and those of its nodes while it ran, into `file`. Returns the number of all
/// samples, and the series of the job.
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
        add_samples(encoder, reader, (of_job, Some(&job.job_id)), &mut written, &job.sampled_ns, |_| {})?;
        for node in &job.nodes {
            let of_node = SeriesScope::Node(node);
            let mut series = written_series(reader.series(of_node)?);
            add_samples(encoder, reader, (of_node, None), &mut series, &span_ns, |_| {})?;
        }
        Ok(())
    })?;
    Ok((samples, written))
}
