//! Samples as Apache Parquet, with the columns of `polymeter export`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use polymeter_samples_file::{Format, Rows, SamplesOf, SeriesTexts, WriteError, series_texts};
use polymeter_store::reader::{Read, SeriesRow};

use crate::answer::{Chunks, Failure, Problem, micros};

/// Size of a row group, which is held in memory: 2 MB.
const ROWS: usize = 100_000;

/// Bytes that the writer of the file has produced and that were not sent yet.
#[derive(Debug, Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<WriteError> for Failure {
    fn from(_: WriteError) -> Self {
        Problem::internal().into()
    }
}

pub(super) fn write(
    reader: &mut dyn Read,
    of: SamplesOf<'_>,
    rows: &BTreeMap<i64, SeriesRow>,
    span_ns: &Range<i64>,
    chunks: &mut Chunks,
) -> Result<(), Failure> {
    let buffer = Buffer::default();
    let mut file = Format::Parquet.writer(buffer.clone(), Vec::new())?;
    let mut group = Rows::default();
    let mut current: Option<(i64, Arc<SeriesTexts>)> = None;
    let ids: Vec<i64> = rows.keys().copied().collect();
    reader.samples_of_set(of.set, of.of, &ids, span_ns, |sample| {
        let series_id = sample.series_id;
        if current.as_ref().is_none_or(|(id, _)| *id != series_id) {
            current = rows.get(&series_id).map(|row| (series_id, Arc::new(series_texts(row, of.job_id))));
        }
        if let Some((_, texts)) = &current {
            group.add(texts, micros(sample.time_ns), sample.value, sample.window);
        }
        if group.len() < ROWS {
            return Ok(());
        }
        file.write(&std::mem::take(&mut group))?;
        chunks.write(&buffer.take())
    })?;
    if !group.is_empty() {
        file.write(&group)?;
    }
    file.finish()?;
    chunks.write(&buffer.take())
}
