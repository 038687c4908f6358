//! Files of samples: Parquet, CSV and JSON lines, with a row for each sample.
//!
//! Every format has the same columns. Times have the resolution of samples, microseconds. The series of a
//! node have no job.
//!
//! Samples are read on the caller's thread, and encoded on another one, some hundred thousand rows at a time.

mod encoder;
mod format;
mod json_lines;
mod parquet;
mod reader;
mod rows;
mod stored;
#[cfg(test)]
mod tests;
mod text;
mod writer;

pub use self::encoder::Encoder;
pub use self::format::Format;
pub use self::reader::{ReadError, SamplesFile};
pub use self::rows::{Rows, SeriesTexts};
pub use self::stored::{
    SamplesError, SamplesOf, WrittenSeries, add_samples, series_texts, write_file, written_series,
};
pub use self::writer::{RowWriter, WriteError};
