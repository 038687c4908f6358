//! Histograms of a job's windows as rows: one for each series and bucket.

use std::sync::Arc;

use polymeter_proto::units;
use polymeter_samples_file::{Encoder, SamplesError, SeriesTexts};
use polymeter_store::reader::{HistogramRow, JobRow, Read, SeriesRow, SeriesScope};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::printable::printable_name;

/// A bucket of a wanted series, with its count.
pub(super) type Bucket = (Arc<SeriesTexts>, u64);

/// Returns the buckets of the wanted series of a job. Refuses a job without any.
pub(super) fn buckets(
    reader: &mut dyn Read,
    job: &JobRow,
    is_wanted: impl Fn(&SeriesRow) -> bool,
) -> Result<Vec<Bucket>, Failure> {
    let of = SeriesScope::Job(job.job_key);
    let rows = reader.series(of).map_err(crate::store_failure::cannot_read)?;
    let histograms = reader.histograms(of, None).map_err(crate::store_failure::cannot_read)?;
    let mut buckets = Vec::new();
    for HistogramRow { series_id, least, count } in histograms {
        let row = rows.iter().find(|row| row.series_id == series_id).filter(|row| is_wanted(row));
        buckets.extend(row.map(|row| (Arc::new(texts(job, row, least)), count)));
    }
    if buckets.is_empty() {
        return Err(Failure::Failed(format!(
            "cannot export histograms: job {} has none of these metrics and nodes; `polymeter set 'cpu.usage=1ms/1s/histogram'` takes them while the job runs",
            printable_name(&job.job_id)
        )));
    }
    Ok(buckets)
}

fn texts(job: &JobRow, row: &SeriesRow, least: f64) -> SeriesTexts {
    let mut labels: Map<String, Value> =
        row.labels.iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
    labels.insert("least".to_owned(), json!(least.to_string()));
    SeriesTexts {
        job_id: Some(job.job_id.clone()),
        node: row.node.clone(),
        metric: row.metric.clone(),
        unit: "count".to_owned(),
        labels: Value::Object(labels).to_string(),
    }
}

/// Adds a row for each bucket, at the end of the job.
pub(super) fn fill(buckets: &[Bucket], job: &JobRow, encoder: &mut Encoder) -> Result<(), SamplesError> {
    let time_us = job.ended_ns.unwrap_or(job.sampled_ns.end).div_euclid(1000);
    for (texts, count) in buckets {
        if !encoder.add(texts, time_us, units::to_f64(*count), None) {
            return Err(SamplesError::Stopped);
        }
    }
    Ok(())
}
