//! The state of a writer, and its loop.

use std::sync::mpsc;
use std::time::Duration;

use polymeter_service::clock::Clock;
use polymeter_store::accepted::Accepted;
use polymeter_store::{Store, StoreOrigin};

use super::totals::Totals;
use crate::agents::AgentDirectory;
use crate::clock_skew::ClockSkewLog;
use crate::config::CollectorConfig;
use crate::control::outcome::OutcomeReport;
use crate::ingest::Ingest;
use crate::metrics::WriterMetrics;
use crate::queues::{Dequeued, OutgoingSender, WriterQueue};
use crate::settings::{Settings, SharedSettings};
use crate::shutdown::Shutdown;
use crate::sinks::Sinks;

/// The queues and shared state that connect a writer with other threads.
#[derive(Debug)]
pub(crate) struct WriterLinks {
    /// Messages from agents.
    pub(crate) queue: WriterQueue,
    /// Messages to agents.
    pub(crate) outgoing: OutgoingSender,
    /// The agents and their jobs.
    pub(crate) directory: AgentDirectory,
    pub(crate) clock_skew: ClockSkewLog,
    pub(crate) metrics: WriterMetrics,
    /// The queue of outcomes of jobs; none if another writer stores them.
    pub(crate) outcomes: Option<mpsc::Receiver<OutcomeReport>>,
    /// The settings that may change at runtime.
    pub(crate) settings: SharedSettings,
    /// The sinks of committed rows.
    pub(crate) sinks: Sinks,
}

/// One writer with its connection to the store.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(super) config: CollectorConfig,
    pub(super) clock: Clock,
    pub(super) shutdown: Shutdown,
    pub(super) queue: WriterQueue,
    pub(super) outgoing: OutgoingSender,
    pub(super) directory: AgentDirectory,
    pub(super) clock_skew: ClockSkewLog,
    pub(super) sinks: Sinks,
    /// The open store; none while it is unreachable.
    pub(super) store: Option<Store>,
    /// The identity of the last open store.
    pub(super) origin: StoreOrigin,
    /// The time since which its file is missing.
    pub(super) missing_since: Option<Duration>,
    pub(super) ingest: Ingest,
    /// The frames of the next transaction.
    pub(super) gathered: Vec<Accepted>,
    pub(super) rows: usize,
    /// The time at which the first of them was gathered.
    pub(super) gathered_since: Duration,
    /// The time that the last transaction took.
    pub(super) commit_duration: Duration,
    /// The time of the next search for silent sessions; none if another writer does it.
    pub(super) next_silence_check: Option<Duration>,
    /// The time of the last clean-up.
    pub(super) cleaned_at: Duration,
    /// The number of bytes that were freed since memory was last released to the kernel.
    pub(super) freed_bytes: usize,
    /// True if the time for a shutdown has expired: further messages are left to the agents.
    pub(super) given_up: bool,
    pub(super) totals: Totals,
    /// The totals that were last added to the metrics.
    published: Totals,
    pub(super) metrics: WriterMetrics,
    pub(super) outcomes: Option<mpsc::Receiver<OutcomeReport>>,
    shared_settings: SharedSettings,
    /// The settings in force.
    pub(super) settings: Settings,
}

impl Writer {
    pub(crate) fn new(
        config: CollectorConfig,
        clock: Clock,
        shutdown: Shutdown,
        links: WriterLinks,
        store: Store,
        checks_silence: bool,
    ) -> Self {
        let WriterLinks { queue, outgoing, directory, clock_skew, metrics, outcomes, settings, sinks } =
            links;
        let (shared_settings, settings) = (settings.clone(), settings.get());
        let origin = store.origin();
        // Until then, agents can reconnect after an outage of the collector.
        let next_silence_check = checks_silence.then(|| clock.now().since_start + config.session_timeout);
        Self {
            config,
            clock,
            shutdown,
            queue,
            outgoing,
            directory,
            clock_skew,
            sinks,
            store: Some(store),
            origin,
            missing_since: None,
            ingest: Ingest::new(settings.clock),
            gathered: Vec::new(),
            rows: 0,
            gathered_since: Duration::ZERO,
            commit_duration: Duration::ZERO,
            next_silence_check,
            cleaned_at: Duration::ZERO,
            freed_bytes: 0,
            given_up: false,
            totals: Totals::default(),
            published: Totals::default(),
            metrics,
            outcomes,
            shared_settings,
            settings,
        }
    }

    /// Works until the receiver has ended and its queue is empty.
    pub(crate) fn run(mut self) -> Totals {
        loop {
            match self.queue.take(self.next_wake()) {
                Dequeued::Message(message) => {
                    self.refresh_settings();
                    let (peer, len) = (message.peer.clone(), message.bytes.len());
                    let is_useful = self.handle_message(message);
                    self.queue.note(&peer, len, is_useful, self.clock.now().since_start);
                    self.freed_bytes += if is_useful { 0 } else { len };
                }
                Dequeued::TimedOut => {}
                Dequeued::Closed => break,
            }
            if self.is_commit_due() {
                self.commit();
            }
            self.end_silent_sessions();
            self.store_outcomes();
            self.clean_up();
            self.publish_metrics();
        }
        self.commit();
        self.publish_metrics();
        self.totals
    }

    fn publish_metrics(&mut self) {
        self.metrics.sessions.set(i64::try_from(self.ingest.sessions()).unwrap_or(i64::MAX));
        if self.totals != self.published {
            self.totals.publish(&self.published, &self.metrics);
            self.published = self.totals;
        }
    }

    fn refresh_settings(&mut self) {
        let settings = self.shared_settings.get();
        if settings != self.settings {
            self.settings = settings;
            self.ingest.set_range(settings.clock);
        }
    }
}
