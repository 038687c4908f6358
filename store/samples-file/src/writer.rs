//! Interface of the formats.

use std::io;

use parquet::errors::ParquetError;

use crate::rows::Rows;

pub(crate) const COLUMNS: [&str; 11] =
    ["time", "job_id", "node", "metric", "unit", "labels", "value", "count", "min", "max", "sum"];

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    #[error("the thread that writes the file ended unexpectedly")]
    Thread,
}

impl WriteError {
    /// Returns true if the reader of a pipe went away.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

pub trait RowWriter: Send {
    fn write(&mut self, rows: &Rows) -> Result<(), WriteError>;

    fn finish(self: Box<Self>) -> Result<(), WriteError>;
}
