//! The state of a writer, and its loop.

use std::sync::mpsc;
use std::time::Duration;

use polymeter_service::clock::{Clock, Now};
use polymeter_store::accepted::Accepted;
use polymeter_store::{Store, StoreOrigin};

use super::totals::Totals;
use crate::agents::AgentDirectory;
use crate::clock_offsets::ClockOffsets;
use crate::clock_skew::ClockSkewLog;
use crate::config::CollectorConfig;
use crate::control::node_outcome::OutcomeReport;
use crate::ingest::{Ingest, UserSeries};
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
    /// The measured clocks of the agents.
    pub(crate) clock_offsets: ClockOffsets,
    /// The settings that may change at runtime.
    pub(crate) settings: SharedSettings,
    /// The sinks of committed rows.
    pub(crate) sinks: Sinks,
}

/// The frames of the next transaction.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) frames: Vec<Accepted>,
    pub(super) rows: usize,
    /// The time at which the first frame was gathered.
    pub(super) since: Duration,
}

/// One writer with its connection to the store.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(super) config: CollectorConfig,
    pub(super) clock: Clock,
    pub(super) shutdown: Shutdown,
    pub(super) links: WriterLinks,
    /// The open store; none while it is unreachable.
    pub(super) store: Option<Store>,
    /// The identity of the last open store.
    pub(super) origin: StoreOrigin,
    /// The time since which its file is missing.
    pub(super) missing_since: Option<Duration>,
    pub(super) ingest: Ingest,
    pub(super) user_series: UserSeries,
    pub(super) gathered: Gathered,
    /// The time that the last transaction took.
    pub(super) commit_duration: Duration,
    /// The time of the next search for silent sessions; none if another writer does it.
    pub(super) next_silence_check: Option<Duration>,
    /// The time of the last such search by the database's clock; none before the first.
    pub(super) silence_checked: Option<Now>,
    /// The time of the last clean-up.
    pub(super) cleaned_at: Duration,
    /// The time of the last look for offsets of clocks that have changed.
    pub(super) offsets_at: Duration,
    /// The number of bytes that were freed since memory was last released to the kernel.
    pub(super) freed_bytes: usize,
    /// True if the time for a shutdown has expired: further messages are left to the agents.
    pub(super) given_up: bool,
    pub(super) totals: Totals,
    /// The totals that were last added to the metrics.
    published: Totals,
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
        let settings = links.settings.get();
        let next_silence_check = checks_silence.then_some(Duration::ZERO);
        Self {
            config,
            clock,
            shutdown,
            links,
            origin: store.origin(),
            store: Some(store),
            missing_since: None,
            ingest: Ingest::new(settings.clock),
            user_series: UserSeries::default(),
            gathered: Gathered::default(),
            commit_duration: Duration::ZERO,
            next_silence_check,
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
