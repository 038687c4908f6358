//! The formats.

use std::io::Write;

use crate::json_lines::JsonLinesWriter;
use crate::parquet::ParquetWriter;
use crate::text::CsvWriter;
use crate::writer::{RowWriter, WriteError};

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Apache Parquet, compressed with zstd.
    Parquet,
    /// Comma-separated values with a head line.
    Csv,
    /// A JSON object on each line.
    Jsonl,
}

impl Format {
    pub(crate) const ALL: [Self; 3] = [Self::Parquet, Self::Csv, Self::Jsonl];

    /// Returns the extension of its files.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
        }
    }

    /// Returns the format of files with this extension.
    pub fn with_extension(extension: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.extension() == extension)
    }

    /// Returns a writer of this format. `properties` are stored in formats that have a place for them.
    ///
    /// # Errors
    /// Returns an error if the head of the file cannot be written.
    pub fn writer(
        self,
        output: impl Write + Send + 'static,
        properties: Vec<(String, String)>,
    ) -> Result<Box<dyn RowWriter>, WriteError> {
        Ok(match self {
            Self::Parquet => Box::new(ParquetWriter::new(output, properties)?),
            Self::Csv => Box::new(CsvWriter::new(output)?),
            Self::Jsonl => Box::new(JsonLinesWriter::new(output)),
        })
    }
}
