//! The samples of a bundle as a Parquet file with a row for each sample.

use std::collections::HashMap;
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
use polymeter_store::reader::{JobRow, Read, SeriesRow, SeriesScope};
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

/// A series of the job, with the extent of its samples.
#[derive(Debug)]
pub(super) struct WrittenSeries {
    pub(super) row: SeriesRow,
    pub(super) samples: u64,
    /// The times of the first and the last sample, in nanoseconds since the epoch.
    pub(super) ends_ns: Option<(i64, i64)>,
}

/// Writes the samples of a job, and those of its nodes while it ran, into `file`. Returns the number of all samples, and the
/// series of the job.
pub(super) fn write(
    reader: &mut dyn Read,
    job: &JobRow,
    file: File,
) -> Result<(u64, Vec<WrittenSeries>), SamplesError> {
    let mut output = SampleFile::new(file)?;
    let series_of = |reader: &mut dyn Read, of: SeriesScope<'_>| -> Result<Vec<_>, SamplesError> {
        let rows = reader.series(of)?.into_iter();
        Ok(rows.map(|row| WrittenSeries { row, samples: 0, ends_ns: None }).collect())
    };
    let of_job = SeriesScope::Job(job.job_key);
    let mut written = series_of(reader, of_job)?;
    output.add(reader, of_job, &mut written, Some(&job.job_id), &job.sampled_ns)?;
    // The bundle contains a running job up to now.
    let end_ns = job.ended_ns.unwrap_or(i64::MAX).saturating_add(1);
    for node in &job.nodes {
        let of_node = SeriesScope::Node(node);
        let mut series = series_of(reader, of_node)?;
        output.add(reader, of_node, &mut series, None, &(job.started_ns..end_ns))?;
    }
    Ok((output.close()?, written))
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

    /// Adds the samples of `series`, which belong to `of`, within `span_ns`, and counts them there.
    fn add(
        &mut self,
        reader: &mut dyn Read,
        of: SeriesScope<'_>,
        series: &mut [WrittenSeries],
        job_id: Option<&str>,
        span_ns: &Range<i64>,
    ) -> Result<(), SamplesError> {
        let ids: Vec<i64> = series.iter().map(|series| series.row.series_id).collect();
        let mut by_id: HashMap<i64, &mut WrittenSeries> =
            series.iter_mut().map(|series| (series.row.series_id, series)).collect();
        let job_id = job_id.map(ByteArray::from);
        // The samples of one series follow each other.
        let mut current: Option<(i64, &mut WrittenSeries, [ByteArray; 3])> = None;
        reader.samples(of, &ids, span_ns, |sample| {
            if !matches!(&current, Some((id, ..)) if *id == sample.series_id) {
                let Some(series) = by_id.remove(&sample.series_id) else { return Ok(()) };
                let labels = labels_json(&series.row.labels);
                let texts = [&series.row.node, &series.row.metric, &labels];
                let texts = texts.map(|text| ByteArray::from(text.as_str()));
                current = Some((sample.series_id, series, texts));
            }
            let Some((_, series, texts)) = &mut current else { return Ok(()) };
            series.samples += 1;
            let first_ns = series.ends_ns.map_or(sample.time_ns, |(first_ns, _)| first_ns);
            series.ends_ns = Some((first_ns, sample.time_ns));
            self.rows.add(sample.time_ns / 1000, job_id.as_ref(), texts, sample.value);
            if self.rows.values.len() == GROUP_ROWS {
                self.flush().map_err(SamplesError::from)
            } else {
                Ok(())
            }
        })
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
