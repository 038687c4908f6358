//! Live values of the HTTP API. Rows are offered only while a client of the API watches a job.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polymeter_api::LiveValues;
use polymeter_service::clock::Clock;

use super::row_queue::{self, QueueBounds, SinkCounters, SinkQueue, SinkThread};
use super::sink::{AcceptedRows, Sink, SinkError};

#[derive(Debug)]
pub(super) struct LiveQueue {
    values: LiveValues,
    queue: SinkQueue,
    /// Rows were dropped since the sink last wrote.
    has_dropped: Arc<AtomicBool>,
}

impl LiveQueue {
    pub(super) fn start(
        values: LiveValues,
        counters: SinkCounters,
        bounds: QueueBounds,
        clock: Clock,
    ) -> io::Result<(Self, SinkThread)> {
        let has_dropped = Arc::new(AtomicBool::new(false));
        let sink =
            LiveSink { values: values.clone(), has_dropped: Arc::clone(&has_dropped), is_lowered: false };
        let (queue, thread) = row_queue::start("live", Box::new(sink), counters, bounds, clock)?;
        Ok((Self { values, queue, has_dropped }, thread))
    }

    pub(super) fn is_watched(&self) -> bool {
        self.values.is_watched()
    }

    /// Never waits: drops rows for which there is no room.
    pub(super) fn offer(&self, rows: &Arc<AcceptedRows>, now: Duration) {
        if !self.queue.offer(rows, now) {
            self.has_dropped.store(true, Ordering::Release);
        }
    }
}

struct LiveSink {
    values: LiveValues,
    has_dropped: Arc<AtomicBool>,
    is_lowered: bool,
}

impl Sink for LiveSink {
    fn accept(&mut self, rows: &AcceptedRows) -> Result<(), SinkError> {
        if !std::mem::replace(&mut self.is_lowered, true) {
            polymeter_api::lower_priority();
        }
        if self.has_dropped.swap(false, Ordering::AcqRel) {
            self.values.report_overflow();
        }
        self.values.publish(rows.frames());
        self.values.report_lost(rows.lost_jobs());
        Ok(())
    }
}
