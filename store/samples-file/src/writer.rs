//! The interface of the formats.

use std::io;

use parquet::errors::ParquetError;

use crate::rows::Rows;

/// The names of the columns.
pub(crate) const COLUMNS: [&str; 7] = ["time", "job_id", "node", "metric", "unit", "labels", "value"];

/// An error of a file of samples.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
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
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// A file of samples in one format.
pub trait RowWriter: Send {
    /// Writes rows.
    ///
    /// # Errors
    /// Returns an error if the output cannot be written.
    fn write(&mut self, rows: &Rows) -> Result<(), WriteError>;

    /// Completes the file.
    ///
    /// # Errors
    /// Returns an error if the output cannot be written.
    fn finish(self: Box<Self>) -> Result<(), WriteError>;
}
