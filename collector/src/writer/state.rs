//! State of a writer, and its loop.

use std::sync::mpsc;
use std::time::Duration;

use polymeter_service::clock::{Clock, Now};
use polymeter_service::log_throttle::LogThrottle;
use polymeter_store::accepted::Accepted;
use polymeter_store::{Store, StoreOrigin};

use super::totals::Totals;
use crate::agents::AgentDirectory;
use crate::clock_offsets::ClockOffsets;
use crate::clock_skew::ClockSkewLog;
use crate::config::CollectorConfig;
use crate::control::firings::FiringSender;
use crate::control::node_outcome::OutcomeReport;
use crate::ingest::{Ingest, MetricUnits, ServedSeries, UserSeries};
use crate::limits;
use crate::metrics::WriterMetrics;
use crate::queues::{Dequeued, OutgoingSender, WriterQueue};
use crate::settings::{Settings, SharedSettings};
use crate::shutdown::Shutdown;
use crate::sinks::Sinks;

#[derive(Debug)]
pub(crate) struct WriterLinks {
    pub(crate) queue: WriterQueue,
    pub(crate) outgoing: OutgoingSender,
    pub(crate) directory: AgentDirectory,
    pub(crate) clock_skew: ClockSkewLog,
    pub(crate) metrics: WriterMetrics,
    /// None if another writer stores the outcomes.
    pub(crate) outcomes: Option<mpsc::Receiver<OutcomeReport>>,
    pub(crate) clock_offsets: ClockOffsets,
    pub(crate) settings: SharedSettings,
    pub(crate) sinks: Sinks,
    pub(crate) firings: FiringSender,
}

#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) frames: Vec<Accepted>,
    pub(super) rows: usize,
    pub(super) since: Duration,
}

/// One writer with its connection to the store.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(super) config: CollectorConfig,
    pub(super) clock: Clock,
    pub(super) shutdown: Shutdown,
    pub(super) links: WriterLinks,
    /// None while the store is unreachable.
    pub(super) store: Option<Store>,
    pub(super) origin: StoreOrigin,
    /// Time since which the store's file is missing.
    pub(super) missing_since: Option<Duration>,
    pub(super) ingest: Ingest,
    pub(super) user_series: UserSeries,
    pub(super) metric_units: MetricUnits,
    pub(super) served_series: ServedSeries,
    pub(super) unit_log: LogThrottle,
    pub(super) served_log: LogThrottle,
    pub(super) gathered: Gathered,
    pub(super) commit_duration: Duration,
    /// Next search for silent sessions; none if another writer does it.
    pub(super) next_silence_check: Option<Duration>,
    /// Time from which silence counts: before it the agents could not be heard.
    pub(super) silence_counts_from: Duration,
    /// Last such search by the database's clock; none before the first.
    pub(super) silence_checked: Option<Now>,
    pub(super) cleaned_at: Duration,
    /// Last look for changed offsets of clocks.
    pub(super) offsets_at: Duration,
    /// Freed since memory was last released to the kernel.
    pub(super) freed_bytes: usize,
    /// The time for a shutdown has expired: further messages are left to the agents.
    pub(super) given_up: bool,
    pub(super) totals: Totals,
    /// Totals that were last added to the metrics.
    published: Totals,
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
        let settings = links.settings.get();
        Self {
            served_series: ServedSeries::new(config.device_agents.clone()),
            served_log: LogThrottle::new(limits::LOG_INTERVAL, limits::LOG_MESSAGES),
            config,
            clock,
            shutdown,
            links,
            origin: store.origin(),
            store: Some(store),
            missing_since: None,
            ingest: Ingest::new(settings.clock),
            user_series: UserSeries::default(),
            metric_units: MetricUnits::default(),
            unit_log: LogThrottle::new(limits::LOG_INTERVAL, limits::LOG_MESSAGES),
            gathered: Gathered::default(),
            commit_duration: Duration::ZERO,
            next_silence_check: checks_silence.then_some(Duration::ZERO),
            silence_counts_from: Duration::ZERO,
            silence_checked: None,
            cleaned_at: Duration::ZERO,
            offsets_at: Duration::ZERO,
            freed_bytes: 0,
            given_up: false,
            totals: Totals::default(),
            published: Totals::default(),
            settings,
        }
    }

    /// Works until the receiver has ended and its queue is empty.
    pub(crate) fn run(mut self) -> Totals {
        loop {
            match self.links.queue.take(self.next_wake()) {
                Dequeued::Message(message) => {
                    self.refresh_settings();
                    let (peer, len) = (message.peer.clone(), message.bytes.len());
                    let is_useful = self.handle_message(message);
                    self.links.queue.note(&peer, len, is_useful, self.clock.now().since_start);
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
            self.store_clock_offsets();
            self.clean_up();
            self.publish_metrics();
        }
        self.commit();
        self.publish_metrics();
        self.totals
    }

    fn publish_metrics(&mut self) {
        self.links.metrics.sessions.set(i64::try_from(self.ingest.sessions()).unwrap_or(i64::MAX));
        if self.totals != self.published {
            self.totals.publish(&self.published, &self.links.metrics);
            self.published = self.totals;
        }
    }

    fn refresh_settings(&mut self) {
        let settings = self.links.settings.get();
        if settings != self.settings {
            self.settings = settings;
            self.ingest.set_range(settings.clock);
        }
    }
}
