//! Files of samples: Parquet, CSV and JSON lines, with a row for each sample.
//!
//! Every format has the same columns. Times have the resolution of samples, microseconds. The series of a node have no job.
//!
//! Samples are read on the caller's thread, and encoded on another one, some hundred thousand rows at a time.

mod encoder;
mod format;
mod json_lines;
mod parquet;
mod rows;
mod stored;
mod text;
mod writer;

pub(crate) use self::encoder::Encoder;
pub(crate) use self::format::Format;
pub(crate) use self::stored::{SamplesError, WrittenSeries, add_samples, write_file, written_series};

#[cfg(test)]
mod tests;
