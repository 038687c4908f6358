//! All sinks of a collector.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use polymeter_api::LiveValues;
use polymeter_service::clock::Clock;
use polymeter_store::StoreUrl;
use polymeter_store::accepted::Accepted;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::federation::FederationSink;
use super::live::LiveQueue;
use super::outbound::{OutboundConfig, OutboundSink};
use super::registry::SinkUrl;
use super::row_queue::{self, QueueBounds, SinkCounters, SinkQueue, SinkThread};
use super::sink::AcceptedRows;
use super::stragglers::{StragglerSink, StragglerWatch};
use crate::federation::NewestValues;
use crate::limits;
use crate::metrics::Metrics;

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sinks(Arc<Queues>);

#[derive(Debug, Default)]
struct Queues {
    sinks: Vec<SinkQueue>,
    /// Queues of sinks that send to other databases, and that of `/federate`.
    senders: Vec<SinkQueue>,
    live: Option<LiveQueue>,
    stragglers: Option<SinkQueue>,
}

impl Sinks {
    /// Offers committed frames to all sinks, which share them. Never waits, and copies nothing.
    pub(crate) fn offer(&self, frames: Vec<Accepted>, now: Duration) {
        let Queues { sinks, senders, live, stragglers } = &*self.0;
        let live = live.as_ref().filter(|live| live.is_watched());
        if sinks.is_empty() && senders.is_empty() && live.is_none() && stragglers.is_none() {
            return;
        }
        let rows = Arc::new(AcceptedRows::new(frames));
        if rows.count() > 0 {
            for sink in sinks {
                sink.offer(&rows, now);
            }
        }
        // They need ends and facts of jobs, too.
        for sink in senders.iter().chain(stragglers) {
            sink.offer(&rows, now);
        }
        if let Some(live) = live {
            live.offer(&rows, now);
        }
    }

    /// Reports jobs that ended in the store, since their agents were lost.
    pub(crate) fn report_lost(&self, job_keys: Vec<i64>, now: Duration) {
        let Queues { senders, live, stragglers, .. } = &*self.0;
        let live = live.as_ref().filter(|live| live.is_watched());
        if job_keys.is_empty() || (senders.is_empty() && live.is_none() && stragglers.is_none()) {
            return;
        }
        let rows = Arc::new(AcceptedRows::of_lost_jobs(job_keys));
        for sink in senders.iter().chain(stragglers) {
            sink.offer(&rows, now);
        }
        if let Some(live) = live {
            live.offer(&rows, now);
        }
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.0.live.as_ref().is_some_and(LiveQueue::is_watched)
    }

    pub(crate) fn reopen(&self) {
        self.0.sinks.iter().for_each(SinkQueue::reopen);
    }
}

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

const LIVE: &str = "live";

const STRAGGLERS: &str = "stragglers";

const FEDERATION: &str = "federation";

/// Sinks that have no URL.
pub(crate) struct OtherSinks {
    pub(crate) live: Option<LiveValues>,
    /// Sinks that send to other databases, with the store whose rows all of these get.
    pub(crate) senders: (Vec<OutboundConfig>, StoreUrl),
    pub(crate) stragglers: Option<StragglerWatch>,
    /// Values for `/federate`.
    pub(crate) federation: Option<NewestValues>,
}

/// Starts the sinks at `urls` and the others, and registers their counters.
pub(crate) fn start(
    urls: &[SinkUrl],
    OtherSinks { live, senders: (senders, store), stragglers, federation }: OtherSinks,
    metrics: &Metrics,
    clock: Clock,
) -> io::Result<(Sinks, SinkThreads)> {
    type BySink<M> = Family<[(&'static str, String); 1], M>;
    let (accepted, dropped, errors) =
        (BySink::<Counter>::default(), BySink::<Counter>::default(), BySink::<Counter>::default());
    let queued = BySink::<Gauge>::default();
    let has_senders = !senders.is_empty() || federation.is_some();
    if !urls.is_empty() || live.is_some() || has_senders || stragglers.is_some() {
        metrics.register("sink_accepted_rows", "Rows that the sink has written", accepted.clone());
        metrics.register(
            "sink_dropped_rows",
            "Rows dropped because the sink was too slow or failed to write",
            dropped.clone(),
        );
        metrics.register("sink_errors", "Failed writes of the sink", errors.clone());
        metrics.register("sink_queued_rows", "Rows queued for the sink", queued.clone());
    }
    let counters = |name: &str| {
        let label = [("sink", name.to_owned())];
        SinkCounters {
            accepted_rows: accepted.get_or_create_owned(&label),
            dropped_rows: dropped.get_or_create_owned(&label),
            errors: errors.get_or_create_owned(&label),
            queued_rows: queued.get_or_create_owned(&label),
        }
    };
    let bounds = QueueBounds { batches: limits::SINK_BATCHES, rows: limits::SINK_ROWS };
    let straggler_store = store.clone();
    let (mut sinks, mut threads) = (Vec::new(), Vec::new());
    for url in urls {
        let name = url.to_string();
        let (queue, thread) = row_queue::start(&name, url.create(), counters(&name), bounds, clock)?;
        sinks.push(queue);
        threads.push(thread);
    }
    let mut queues = Vec::new();
    for config in senders {
        let name = config.protocol.sink;
        let sink = Box::new(OutboundSink::new(config, store.clone(), metrics, clock));
        let bounds = QueueBounds { batches: limits::OUTBOUND_BATCHES, ..bounds };
        let (queue, thread) = row_queue::start(name, sink, counters(name), bounds, clock)?;
        queues.push(queue);
        threads.push(thread);
    }
    if let Some(values) = federation {
        let sink = Box::new(FederationSink::new(values, store, metrics, clock));
        let (queue, thread) = row_queue::start(FEDERATION, sink, counters(FEDERATION), bounds, clock)?;
        queues.push(queue);
        threads.push(thread);
    }
    let live = live.map(|values| LiveQueue::start(values, counters(LIVE), bounds, clock)).transpose()?;
    let (live, thread) = live.unzip();
    threads.extend(thread);
    let stragglers = stragglers.map(|watch| {
        let sink = StragglerSink::start(watch, straggler_store, metrics, clock)?;
        row_queue::start(STRAGGLERS, Box::new(sink), counters(STRAGGLERS), bounds, clock)
    });
    let (stragglers, thread) = stragglers.transpose()?.unzip();
    threads.extend(thread);
    Ok((Sinks(Arc::new(Queues { sinks, senders: queues, live, stragglers })), SinkThreads(threads)))
}
