//! Reads the Parquet files of this crate, some ten thousand rows at a time.

use std::fs::File;
use std::sync::Arc;

use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::SchemaDescriptor;

use polymeter_store::reader::SampleWindow;

use crate::parquet::SCHEMA;
use crate::rows::{Rows, SeriesTexts};

/// Rows that are read together: about 10 MB with their texts.
const ROWS: usize = 1 << 16;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    #[error("its columns are not those of a file of samples")]
    OtherColumns,
    #[error("a text in it is not UTF-8")]
    NoText,
}

pub struct SamplesFile(SerializedFileReader<File>);

impl std::fmt::Debug for SamplesFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SamplesFile").field("rows", &self.rows()).finish_non_exhaustive()
    }
}

impl SamplesFile {
    /// Refuses a file with other columns than samples have.
    pub fn open(file: File) -> Result<Self, ReadError> {
        let reader = SerializedFileReader::new(file)?;
        let expected = SchemaDescriptor::new(Arc::new(parse_message_type(SCHEMA)?));
        let found = reader.metadata().file_metadata().schema_descr();
        let is_same = found.num_columns() == expected.num_columns()
            && found.columns().iter().zip(expected.columns()).all(|(found, expected)| {
                found.name() == expected.name()
                    && found.physical_type() == expected.physical_type()
                    && found.max_def_level() == expected.max_def_level()
                    && found.max_rep_level() == expected.max_rep_level()
            });
        if is_same { Ok(Self(reader)) } else { Err(ReadError::OtherColumns) }
    }

    pub fn property(&self, key: &str) -> Option<&str> {
        let pairs = self.0.metadata().file_metadata().key_value_metadata()?;
        pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
    }

    pub fn rows(&self) -> u64 {
        self.0.metadata().file_metadata().num_rows().try_into().unwrap_or_default()
    }

    /// Passes all samples to `each` in parts, which are the same whenever the file is read.
    pub fn read<E: From<ReadError>>(&self, mut each: impl FnMut(&Rows) -> Result<(), E>) -> Result<(), E> {
        for group in 0..self.0.num_row_groups() {
            let group = self.0.get_row_group(group).map_err(ReadError::from)?;
            let mut columns = Columns::of(&*group)?;
            while let Some(rows) = columns.next()? {
                each(&rows)?;
            }
        }
        Ok(())
    }
}

struct Columns {
    times: ColumnReaderImpl<Int64Type>,
    job_ids: ColumnReaderImpl<ByteArrayType>,
    texts: [ColumnReaderImpl<ByteArrayType>; 4],
    values: ColumnReaderImpl<DoubleType>,
    counts: ColumnReaderImpl<Int64Type>,
    /// Least, greatest and sum.
    extents: [ColumnReaderImpl<DoubleType>; 3],
}

impl Columns {
    fn of(group: &dyn RowGroupReader) -> Result<Self, ReadError> {
        Ok(Self {
            times: column(group, 0)?,
            job_ids: column(group, 1)?,
            texts: [column(group, 2)?, column(group, 3)?, column(group, 4)?, column(group, 5)?],
            values: column(group, 6)?,
            counts: column(group, 7)?,
            extents: [column(group, 8)?, column(group, 9)?, column(group, 10)?],
        })
    }

    /// Returns the next rows; none at the end of the group.
    fn next(&mut self) -> Result<Option<Rows>, ReadError> {
        let (times_us, values) = (required(&mut self.times)?, required(&mut self.values)?);
        let job_ids = optional(&mut self.job_ids)?;
        let mut windows = windows(&mut self.counts, &mut self.extents)?.into_iter();
        let [nodes, metrics, units, labels] = &mut self.texts;
        let (nodes, metrics) = (required(nodes)?, required(metrics)?);
        let (units, labels) = (required(units)?, required(labels)?);
        if times_us.is_empty() {
            return Ok(None);
        }
        let mut rows = Rows::default();
        let mut last: Option<(TextsOfRow, Arc<SeriesTexts>)> = None;
        let texts = job_ids.zip(nodes).zip(metrics).zip(units).zip(labels);
        for ((time_us, value), texts) in times_us.into_iter().zip(values).zip(texts) {
            let series = match &last {
                Some((known, series)) if *known == texts => series,
                _ => {
                    let series = Arc::new(series(&texts)?);
                    &last.insert((texts, series)).1
                }
            };
            rows.add(series, time_us, value, windows.next().flatten());
        }
        Ok(Some(rows))
    }
}

/// Reads the windows of the next rows; none for samples.
fn windows(
    counts: &mut ColumnReaderImpl<Int64Type>,
    [min, max, sum]: &mut [ColumnReaderImpl<DoubleType>; 3],
) -> Result<Vec<Option<SampleWindow>>, ReadError> {
    let known = |number: Option<f64>| number.unwrap_or(f64::NAN);
    let (counts, min, max, sum) = (optional(counts)?, optional(min)?, optional(max)?, optional(sum)?);
    let windows = counts.zip(min).zip(max).zip(sum).map(|(((count, min), max), sum)| {
        let count = u64::try_from(count?).unwrap_or_default();
        Some(SampleWindow { count, min: known(min), max: known(max), sum: known(sum) })
    });
    Ok(windows.collect())
}

type TextsOfRow = ((((Option<ByteArray>, ByteArray), ByteArray), ByteArray), ByteArray);

fn series(((((job_id, node), metric), unit), labels): &TextsOfRow) -> Result<SeriesTexts, ReadError> {
    Ok(SeriesTexts {
        job_id: job_id.as_ref().map(text).transpose()?,
        node: text(node)?,
        metric: text(metric)?,
        unit: text(unit)?,
        labels: text(labels)?,
    })
}

fn text(bytes: &ByteArray) -> Result<String, ReadError> {
    bytes.as_utf8().map(str::to_owned).or(Err(ReadError::NoText))
}

fn column<T: DataType>(
    group: &dyn RowGroupReader,
    number: usize,
) -> Result<ColumnReaderImpl<T>, ParquetError> {
    Ok(get_typed_column_reader(group.get_column_reader(number)?))
}

/// Reads the next values of a column, which rows may lack.
fn optional<T: DataType>(
    column: &mut ColumnReaderImpl<T>,
) -> Result<impl Iterator<Item = Option<T::T>>, ReadError> {
    let (mut levels, mut present) = (Vec::new(), Vec::new());
    column.read_records(ROWS, Some(&mut levels), None, &mut present)?;
    let mut present = present.into_iter();
    Ok(levels.into_iter().map(move |level| if level > 0 { present.next() } else { None }))
}

/// Reads the next values of a column in which each row has one.
fn required<T: DataType>(column: &mut ColumnReaderImpl<T>) -> Result<Vec<T::T>, ReadError> {
    let mut values = Vec::new();
    column.read_records(ROWS, None, None, &mut values)?;
    Ok(values)
}
