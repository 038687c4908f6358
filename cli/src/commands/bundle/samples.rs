//! The samples of a bundle as a Parquet file with a row for each sample.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use polymeter_store::reader::{JobRow, Reader, SeriesRow, SeriesScope};
use polymeter_store::{StoreError, labels_json};

/// The file's name.
pub(super) const NAME: &str = "samples.parquet";

/// The columns. Times have the resolution of samples, microseconds. A node's own samples have no job.
const SCHEMA: &str = "message sample {
    required int64 time (TIMESTAMP(MICROS, true));
    optional binary job_id (STRING);
    required binary node (STRING);
    required binary metric (STRING);
    required binary labels (JSON);
    required double value;
}";

/// The number of rows in a row group, which is held in memory: some 20 MB.
const GROUP_ROWS: usize = 100_000;

/// The approximate number of rows that are read from the store at once.
const READ_ROWS: u64 = 500_000;

/// The reason for which the file could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum SamplesError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] ParquetError),
}

/// Writes the samples of a job, and those of its nodes within `span_ns`, into `file`. Returns their number.
pub(super) fn write(
    reader: &mut Reader,
    job: &JobRow,
    span_ns: Range<i64>,
    file: File,
) -> Result<u64, SamplesError> {
    let mut output = SampleFile::new(file)?;
    for series in reader.series(SeriesScope::Job(job.job_key))? {
        output.add_series(reader, &series, Some(&job.job_id), i64::MIN..i64::MAX)?;
    }
    for node in &job.nodes {
        for series in reader.series(SeriesScope::Node(node))? {
            output.add_series(reader, &series, None, span_ns.clone())?;
        }
    }
    Ok(output.close()?)
}

/// A Parquet file that is being written.
struct SampleFile {
    writer: SerializedFileWriter<File>,
    rows: Rows,
    written: u64,
}

/// The columns of a row group. Texts are shared, not copied.
#[derive(Default)]
struct Rows {
    times_us: Vec<i64>,
    /// The values that are not null.
    jobs: Vec<ByteArray>,
    /// For each row 1, or 0 if its job is null.
    job_levels: Vec<i16>,
    nodes: Vec<ByteArray>,
    metrics: Vec<ByteArray>,
    labels: Vec<ByteArray>,
    values: Vec<f64>,
}

impl SampleFile {
    fn new(file: File) -> Result<Self, ParquetError> {
        let column = |name: &str| ColumnPath::from(name);
        // Successive samples are similar: differences of times and transposed bytes of values compress well.
        let properties = WriterProperties::builder()
            .set_created_by(format!("polymeter {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::SNAPPY)
            .set_column_dictionary_enabled(column("time"), false)
            .set_column_encoding(column("time"), Encoding::DELTA_BINARY_PACKED)
            .set_column_dictionary_enabled(column("value"), false)
            .set_column_encoding(column("value"), Encoding::BYTE_STREAM_SPLIT)
            .build();
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
        Ok(Self { writer, rows: Rows::default(), written: 0 })
    }

    fn add_series(
        &mut self,
        reader: &mut Reader,
        series: &SeriesRow,
        job_id: Option<&str>,
        span_ns: Range<i64>,
    ) -> Result<(), SamplesError> {
        let (Some(first_ns), Some(last_ns)) = (series.first_time_ns, series.last_time_ns) else {
            return Ok(());
        };
        let (from_ns, to_ns) = (first_ns.max(span_ns.start), last_ns.saturating_add(1).min(span_ns.end));
        let labels = labels_json(&series.labels);
        let texts = [&series.node, &series.metric, &labels].map(|text| ByteArray::from(text.as_str()));
        let job_id = job_id.map(ByteArray::from);
        for span_ns in pieces(from_ns..to_ns, series.count / READ_ROWS + 1) {
            for (time_ns, value) in reader.points(series.series_id, span_ns)? {
                self.rows.add(time_ns / 1000, job_id.as_ref(), &texts, value);
                if self.rows.values.len() == GROUP_ROWS {
                    self.flush()?;
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        let rows = std::mem::take(&mut self.rows);
        if rows.values.is_empty() {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        column::<Int64Type>(&mut group, &rows.times_us, None)?;
        column::<ByteArrayType>(&mut group, &rows.jobs, Some(&rows.job_levels))?;
        column::<ByteArrayType>(&mut group, &rows.nodes, None)?;
        column::<ByteArrayType>(&mut group, &rows.metrics, None)?;
        column::<ByteArrayType>(&mut group, &rows.labels, None)?;
        column::<DoubleType>(&mut group, &rows.values, None)?;
        group.close()?;
        self.written += rows.values.len() as u64;
        Ok(())
    }

    fn close(mut self) -> Result<u64, ParquetError> {
        self.flush()?;
        self.writer.close()?;
        Ok(self.written)
    }
}

impl Rows {
    fn add(&mut self, time_us: i64, job_id: Option<&ByteArray>, texts: &[ByteArray; 3], value: f64) {
        let [node, metric, labels] = texts;
        self.times_us.push(time_us);
        self.jobs.extend(job_id.cloned());
        self.job_levels.push(i16::from(job_id.is_some()));
        self.nodes.push(node.clone());
        self.metrics.push(metric.clone());
        self.labels.push(labels.clone());
        self.values.push(value);
    }
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("the Parquet schema has fewer columns than a row".to_owned()));
    };
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

/// Divides a span into `count` pieces, so that only a part of the rows is held in memory.
fn pieces(span_ns: Range<i64>, count: u64) -> impl Iterator<Item = Range<i64>> {
    let length = u64::try_from(span_ns.end.saturating_sub(span_ns.start)).unwrap_or(0);
    let step = i64::try_from(length / count.max(1) + 1).unwrap_or(i64::MAX);
    let mut from = span_ns.start;
    std::iter::from_fn(move || {
        let piece = from..from.saturating_add(step).min(span_ns.end);
        from = piece.end;
        (piece.start < piece.end).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_span_without_overlap() {
        for (span, count) in [(0..10, 3), (-5..5, 1), (0..1, 9), (0..i64::MAX, 2), (i64::MIN..0, 4)] {
            let pieces: Vec<_> = pieces(span.clone(), count).collect();
            assert!(pieces.len() as u64 <= count + 1, "{span:?}: {pieces:?}");
            assert_eq!((pieces[0].start, pieces.last().unwrap().end), (span.start, span.end));
            assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start), "{pieces:?}");
        }
        assert_eq!(pieces(5..5, 2).count(), 0);
    }
}
