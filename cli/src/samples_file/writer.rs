//! The interface of the formats.

use std::io;

use parquet::errors::ParquetError;

use super::rows::Rows;

/// The names of the columns.
pub(super) const COLUMNS: [&str; 7] = ["time", "job_id", "node", "metric", "unit", "labels", "value"];

/// An error of a file of samples.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The file cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file cannot be written as Parquet.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    /// The thread that writes it ended.
    #[error("the thread that writes the file ended unexpectedly")]
    Thread,
}

impl WriteError {
    /// Returns true if the reader of a pipe went away.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// A file of samples in one format.
pub(crate) trait RowWriter: Send {
    /// Writes rows.
    fn write(&mut self, rows: &Rows) -> Result<(), WriteError>;

    /// Completes the file.
    fn finish(self: Box<Self>) -> Result<(), WriteError>;
}
