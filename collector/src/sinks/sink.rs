//! Interface of a sink.

use std::time::Duration;

use polymeter_store::accepted::{Accepted, SeriesRecord};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the path is not absolute")]
pub struct RelativePath;

/// Best-effort output of committed rows, which runs on its own thread, and may wait. It must not panic:
/// release builds abort on a panic, which stops the collector. An error costs only the rows of the call.
pub(crate) trait Sink: Send {
    /// Rows are not offered again after an error.
    fn accept(&mut self, rows: &AcceptedRows) -> Result<(), SinkError>;

    /// Longest time between two calls of [`Self::tick`]; none if it is never called.
    fn tick_interval(&self) -> Option<Duration> {
        None
    }

    fn tick(&mut self) {}

    /// Reopens the output after log rotation. A sink without a file has nothing to do.
    fn reopen(&mut self) {}
}

/// Cause of an error, and the remedy if there is one, as in "no such file; create the directory".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SinkError(pub(crate) String);

impl From<std::io::Error> for SinkError {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Shared by all sinks.
#[derive(Debug)]
pub(crate) struct AcceptedRows {
    frames: Vec<Accepted>,
    count: u64,
    lost_jobs: Vec<i64>,
}

impl AcceptedRows {
    pub(crate) fn new(frames: Vec<Accepted>) -> Self {
        let count = frames.iter().map(|frame| frame.rows() as u64).sum();
        Self { frames, count, lost_jobs: Vec::new() }
    }

    pub(super) const fn of_lost_jobs(lost_jobs: Vec<i64>) -> Self {
        Self { frames: Vec::new(), count: 0, lost_jobs }
    }

    pub(super) fn frames(&self) -> &[Accepted] {
        &self.frames
    }

    /// Store's keys of jobs that ended since their agents were lost.
    pub(super) fn lost_jobs(&self) -> &[i64] {
        &self.lost_jobs
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Each series with its samples: times in microseconds since the epoch, and values. Quarantined samples
    /// are excluded.
    pub(crate) fn series(&self) -> impl Iterator<Item = (&SeriesRecord, impl Iterator<Item = (i64, f64)>)> {
        let blocks = self.frames.iter().flat_map(|frame| &frame.samples);
        blocks.flat_map(|block| block.iter()).map(|(series, samples)| (&**series, samples))
    }
}
