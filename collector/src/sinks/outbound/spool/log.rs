//! Spool of a shard: a queue of requests in files, which outlives the process.
//!
//! Requests are appended to the newest file, and sent from the oldest one on. The position of the next one is
//! stored after each request that was sent. A file is removed when all of its requests were sent, except for
//! the newest one: its first record and its requests have the last time of each series, so that a restarted
//! collector sends no sample twice.
//!
//! A receiver that is killed may forget what it accepted in its last seconds. If a window is set, the
//! requests that were accepted within it are kept, and sent again after the receiver was lost, and after a
//! restart of the collector.
//!
//! While the disk refuses a request, it waits in bounded memory.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::bounds::{SpoolBounds, Stats, Tally};
use super::queue::{Queue, Request};
use super::recovery;

#[derive(Debug)]
pub(crate) struct Log {
    queue: Mutex<Queue>,
    appended: Notify,
}

impl Log {
    /// Opens the spool in `directory`, which is created if it is missing; then `initial` has the last times
    /// of its series. Returns it with the last time of each series, in milliseconds since the epoch, by the
    /// hash of its labels. Fails if another process uses the directory.
    pub(crate) fn open(
        directory: &Path,
        bounds: SpoolBounds,
        initial: &[u8],
    ) -> io::Result<(Self, HashMap<u64, i64>)> {
        let (queue, times) = recovery::open(directory, bounds, initial)?;
        Ok((Self { queue: Mutex::new(queue), appended: Notify::new() }, times))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `times` if a new file begins after the request: it returns the last time of each series in the
    /// spool.
    pub(crate) fn append(
        &self,
        payload: Vec<u8>,
        samples: u32,
        newest_ms: i64,
        times: impl FnOnce() -> Vec<u8>,
    ) {
        self.queue().append(payload, samples, newest_ms, times);
        self.appended.notify_one();
    }

    /// None if all were sent.
    pub(crate) fn next(&self) -> Option<Request> {
        self.queue().next()
    }

    /// Takes the result of [`Self::next`] after it was accepted or refused. `now` is the time since the start
    /// of the clock.
    pub(crate) fn finish(&self, request: &Request, now: Duration) {
        self.queue().finish(request, now);
    }

    /// Returns to the oldest accepted request that is kept: all from it on are sent again. Returns the number
    /// of their samples.
    pub(crate) fn rewind(&self) -> u64 {
        self.queue().rewind()
    }

    /// Waits until a request is appended. May return early.
    pub(crate) async fn wait(&self) {
        self.appended.notified().await;
    }

    /// Writes all requests through to the disk, so that they outlive a power failure.
    pub(crate) fn sync(&self) {
        self.queue().sync();
    }

    pub(crate) fn take_tally(&self) -> Tally {
        std::mem::take(&mut self.queue().tally)
    }

    /// Replaces the newest file, to simulate a full disk.
    #[cfg(test)]
    pub(super) fn replace_active(&self, file: std::fs::File) {
        self.queue().spool.replace_file(file);
    }

    pub(crate) fn stats(&self) -> Stats {
        self.queue().stats()
    }
}
