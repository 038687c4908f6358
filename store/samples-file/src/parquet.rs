//! Samples as Apache Parquet.

use std::io::Write;
use std::iter::repeat_n;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use polymeter_store::reader::SampleWindow;

use crate::rows::{Rows, SeriesTexts};
use crate::writer::{RowWriter, WriteError};

pub(crate) const SCHEMA: &str = "message sample {
    required int64 time (TIMESTAMP(MICROS, true));
    optional binary job_id (STRING);
    required binary node (STRING);
    required binary metric (STRING);
    required binary unit (STRING);
    required binary labels (JSON);
    required double value;
    optional int64 count;
    optional double min;
    optional double max;
    optional double sum;
}";

const TEXTS: usize = 1024;

pub(crate) struct ParquetWriter<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> ParquetWriter<W> {
    pub(crate) fn new(output: W, properties: Vec<(String, String)>) -> Result<Self, ParquetError> {
        let column = |name: &str| ColumnPath::from(name);
        let pairs = properties.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect();
        // Successive samples are similar: differences of times and transposed bytes of values compress well.
        let properties = WriterProperties::builder()
            .set_created_by(format!("polymeter {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(pairs))
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .set_column_dictionary_enabled(column("time"), false)
            .set_column_encoding(column("time"), Encoding::DELTA_BINARY_PACKED)
            .set_column_dictionary_enabled(column("value"), false)
            .set_column_encoding(column("value"), Encoding::BYTE_STREAM_SPLIT)
            .build();
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        Ok(Self(SerializedFileWriter::new(output, schema, Arc::new(properties))?))
    }
}

impl<W: Write + Send> RowWriter for ParquetWriter<W> {
    fn write(&mut self, rows: &Rows) -> Result<(), WriteError> {
        let mut group = self.0.next_row_group()?;
        column(&mut group, |column| column.typed::<Int64Type>().write_batch(&rows.times_us, None, None))?;
        texts(&mut group, rows, |series| series.job_id.as_deref(), true)?;
        texts(&mut group, rows, |series| Some(&series.node), false)?;
        texts(&mut group, rows, |series| Some(&series.metric), false)?;
        texts(&mut group, rows, |series| Some(&series.unit), false)?;
        texts(&mut group, rows, |series| Some(&series.labels), false)?;
        column(&mut group, |column| column.typed::<DoubleType>().write_batch(&rows.values, None, None))?;
        let count = |window: &SampleWindow| Some(i64::try_from(window.count).unwrap_or(i64::MAX));
        windows::<_, Int64Type>(&mut group, rows, count)?;
        let known = |number: f64| Some(number).filter(|number| !number.is_nan());
        windows::<_, DoubleType>(&mut group, rows, |window| known(window.min))?;
        windows::<_, DoubleType>(&mut group, rows, |window| known(window.max))?;
        windows::<_, DoubleType>(&mut group, rows, |window| known(window.sum))?;
        group.close()?;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), WriteError> {
        self.0.close()?.file_metadata();
        Ok(())
    }
}

fn column<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    write: impl FnOnce(&mut SerializedColumnWriter<'_>) -> Result<usize, ParquetError>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("the Parquet schema has fewer columns than a row".to_owned()));
    };
    write(&mut column)?;
    column.close()
}

/// Writes a column that only windows have, and may lack.
fn windows<W: Write + Send, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &Rows,
    number: impl Fn(&SampleWindow) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let mut levels = vec![0_i16; rows.len()];
    let mut values = Vec::new();
    for (row, window) in &rows.windows {
        if let (Some(level), Some(value)) = (levels.get_mut(*row), number(window)) {
            *level = 1;
            values.push(value);
        }
    }
    column(group, |column| column.typed::<T>().write_batch(&values, Some(&levels), None))
}

/// Writes a column whose text is the same for all samples of a series.
fn texts<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &Rows,
    text: impl Fn(&SeriesTexts) -> Option<&str>,
    is_optional: bool,
) -> Result<(), ParquetError> {
    column(group, |column| {
        let column = column.typed::<ByteArrayType>();
        let mut written = 0;
        for (series, count) in rows.runs() {
            let text = text(series);
            let value = text.map(ByteArray::from);
            let level = [i16::from(text.is_some()); TEXTS];
            let values: Vec<ByteArray> =
                value.into_iter().flat_map(|value| repeat_n(value, count.min(TEXTS))).collect();
            for begin in (0..count).step_by(TEXTS) {
                let part = (count - begin).min(TEXTS);
                let levels = is_optional.then(|| level.get(..part)).flatten();
                written += column.write_batch(values.get(..part).unwrap_or_default(), levels, None)?;
            }
        }
        Ok(written)
    })
}
