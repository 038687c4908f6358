//! Formats of files, and the choice of one by its name.

use std::io::Write;

use crate::json_lines::JsonLinesWriter;
use crate::parquet::ParquetWriter;
use crate::text::CsvWriter;
use crate::writer::{RowWriter, WriteError};

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

    pub const fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
        }
    }

    pub fn with_extension(extension: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.extension() == extension)
    }

    /// Returns a writer, which has written the head of the file. `properties` are stored in formats that have
    /// a place for them.
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
