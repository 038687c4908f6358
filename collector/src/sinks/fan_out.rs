//! All sinks of a collector.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use polymeter_service::clock::Clock;
use polymeter_store::accepted::Accepted;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::queue::{self, QueueBounds, SinkCounters, SinkQueue, SinkThread};
use super::registry::SinkUrl;
use super::sink::AcceptedRows;
use crate::limits;
use crate::metrics::Metrics;

/// The queues of all sinks, for a writer. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sinks(Arc<[SinkQueue]>);

impl Sinks {
    /// Offers committed frames to all sinks, which share them. Never waits, and copies nothing.
    pub(crate) fn offer(&self, frames: Vec<Accepted>, now: Duration) {
        if self.0.is_empty() {
            return;
        }
        let rows = Arc::new(AcceptedRows::new(frames));
        if rows.count() > 0 {
            self.0.iter().for_each(|sink| sink.offer(&rows, now));
        }
    }

    /// Makes all sinks reopen their outputs.
    pub(crate) fn reopen(&self) {
        self.0.iter().for_each(SinkQueue::reopen);
    }
}

/// The threads of all sinks.
#[derive(Debug, Default)]
pub(crate) struct SinkThreads(Vec<SinkThread>);

impl SinkThreads {
    /// Waits until the queues are empty, for a limited total time. All [`Sinks`] must have been dropped.
    pub(crate) fn stop(self, clock: Clock) {
        let deadline = clock.now().since_start + limits::SINK_STOP_TIMEOUT;
        for thread in self.0 {
            thread.stop(deadline.saturating_sub(clock.now().since_start));
        }
    }
}

/// Starts the sinks at `urls`, and registers their counters.
///
/// # Errors
/// Returns an error if a thread cannot be created.
pub(crate) fn start(urls: &[SinkUrl], metrics: &Metrics, clock: Clock) -> io::Result<(Sinks, SinkThreads)> {
    type BySink<M> = Family<[(&'static str, String); 1], M>;
    let (accepted, dropped, errors) =
        (BySink::<Counter>::default(), BySink::<Counter>::default(), BySink::<Counter>::default());
    let queued = BySink::<Gauge>::default();
    if !urls.is_empty() {
        metrics.register("sink_accepted_rows", "Rows that the sink has written", accepted.clone());
        metrics.register(
            "sink_dropped_rows",
            "Rows dropped because the sink was too slow or failed to write",
            dropped.clone(),
        );
        metrics.register("sink_errors", "Failed writes of the sink", errors.clone());
        metrics.register("sink_queued_rows", "Rows queued for the sink", queued.clone());
    }
    let (mut queues, mut threads) = (Vec::new(), Vec::new());
    for url in urls {
        let label = [("sink", url.to_string())];
        let counters = SinkCounters {
            accepted_rows: accepted.get_or_create_owned(&label),
            dropped_rows: dropped.get_or_create_owned(&label),
            errors: errors.get_or_create_owned(&label),
            queued_rows: queued.get_or_create_owned(&label),
        };
        let bounds = QueueBounds { batches: limits::SINK_BATCHES, rows: limits::SINK_ROWS };
        let (queue, thread) = queue::start(&url.to_string(), url.create(), counters, bounds, clock)?;
        queues.push(queue);
        threads.push(thread);
    }
    Ok((Sinks(queues.into()), SinkThreads(threads)))
}
