//! Samples of a store, on their way to a file.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use polymeter_store::reader::{Read, SampleSet, SeriesRow, SeriesScope};
use polymeter_store::{StoreError, labels_json};

use crate::encoder::Encoder;
use crate::rows::SeriesTexts;
use crate::writer::{RowWriter, WriteError};

#[derive(Debug, thiserror::Error)]
pub enum SamplesError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The file cannot be written: the encoder has the error.
    #[error("the file cannot be written")]
    Stopped,
}

/// Series with the extent of its samples in the file.
#[derive(Debug)]
pub struct WrittenSeries {
    pub row: SeriesRow,
    pub samples: u64,
    /// Times of the first and the last sample, in nanoseconds since the epoch.
    pub ends_ns: Option<(i64, i64)>,
}

/// Returns series without written samples.
pub fn written_series(rows: Vec<SeriesRow>) -> Vec<WrittenSeries> {
    rows.into_iter().map(|row| WrittenSeries { row, samples: 0, ends_ns: None }).collect()
}

/// Writes a file that `fill` fills. Returns the number of samples in it.
pub fn write_file(
    writer: Box<dyn RowWriter>,
    fill: impl FnOnce(&mut Encoder) -> Result<(), SamplesError>,
) -> Result<u64, SamplesError> {
    let mut encoder = Encoder::start(writer)?;
    match fill(&mut encoder) {
        Ok(()) => Ok(encoder.finish()?),
        Err(SamplesError::Stopped) => Err(encoder.finish().err().map_or(SamplesError::Stopped, Into::into)),
        Err(error) => Err(error),
    }
}

/// Which samples of which series a file has.
#[derive(Debug, Clone, Copy)]
pub struct SamplesOf<'a> {
    pub set: SampleSet,
    pub of: SeriesScope<'a>,
    /// None for series of nodes.
    pub job_id: Option<&'a str>,
}

/// Adds samples of `series`, which belong to `wanted`, within `span_ns` to a file, and counts them.
/// `progress` learns the number of samples after each part.
pub fn add_samples(
    encoder: &mut Encoder,
    reader: &mut dyn Read,
    wanted: SamplesOf<'_>,
    series: &mut [WrittenSeries],
    span_ns: &Range<i64>,
    mut progress: impl FnMut(u64),
) -> Result<(), SamplesError> {
    let ids: Vec<i64> = series.iter().map(|series| series.row.series_id).collect();
    let mut by_id: HashMap<i64, &mut WrittenSeries> =
        series.iter_mut().map(|series| (series.row.series_id, series)).collect();
    // The samples of one series follow each other.
    let mut current: Option<(i64, &mut WrittenSeries, Arc<SeriesTexts>)> = None;
    reader.samples_of_set(wanted.set, wanted.of, &ids, span_ns, |sample| {
        if !matches!(&current, Some((id, ..)) if *id == sample.series_id) {
            let Some(series) = by_id.remove(&sample.series_id) else { return Ok(()) };
            let texts = Arc::new(series_texts(&series.row, wanted.job_id));
            current = Some((sample.series_id, series, texts));
        }
        let Some((_, series, texts)) = &mut current else { return Ok(()) };
        series.samples += sample.count();
        let first_ns = series.ends_ns.map_or(sample.time_ns, |(first_ns, _)| first_ns);
        series.ends_ns = Some((first_ns, sample.time_ns));
        let before = encoder.written();
        let is_open = encoder.add(texts, sample.time_ns / 1000, sample.value, sample.window);
        if encoder.written() > before {
            progress(encoder.written());
        }
        if is_open { Ok(()) } else { Err(SamplesError::Stopped) }
    })
}

/// Returns the texts of a series, which belongs to a job or to a node.
pub fn series_texts(row: &SeriesRow, job_id: Option<&str>) -> SeriesTexts {
    SeriesTexts {
        job_id: job_id.map(str::to_owned),
        node: row.node.clone(),
        metric: row.metric.clone(),
        unit: row.unit.clone(),
        labels: labels_json(&row.labels),
    }
}
