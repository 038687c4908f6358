//! What the collector counts about itself. Atomics, which threads at work add to and nobody waits for; and their
//! exposition at `/metrics`.

mod histogram;
mod http;
mod text;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) use self::histogram::Histogram;
pub(crate) use self::http::Server;
#[cfg(fuzzing)]
pub use self::http::is_answered;
use crate::gate::Turned;
use crate::inbox::Depth;
use crate::refusal::RefusalKind;
use crate::writer::Totals;

/// A number that threads add to or set, and others read.
#[derive(Debug, Default)]
pub(crate) struct Number(AtomicU64);

impl Number {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What all threads of one collector count.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Messages that came, frames and others.
    pub(crate) received: Number,
    /// Their bytes.
    pub(crate) received_bytes: Number,
    /// Messages that were dropped unread, because their peer sends too much.
    pub(crate) dropped: Number,
    /// Messages that were sent to agents.
    pub(crate) sent: Number,
    /// Connections whose key was found to be authorised.
    pub(crate) admitted: Number,
    /// Keys that are authorised now.
    pub(crate) authorised: Number,
    refused: [(RefusalKind, Number); RefusalKind::ALL.len()],
    turned: [(Turned, Number); Turned::ALL.len()],
    writers: Vec<Arc<WriterMetrics>>,
    /// How samples are written.
    way: String,
}

/// What one writer counts.
#[derive(Debug, Default)]
pub(crate) struct WriterMetrics {
    inbox: Depth,
    /// What it did, as it was when it last looked up from its work.
    frames: Number,
    samples: Number,
    quarantined: Number,
    repeated: Number,
    losses: [Number; polymeter_store::accepted::LossReason::ALL.len()],
    sessions: Number,
    /// How often the store failed.
    pub(crate) store_failures: Number,
    /// 1 while the store does not answer.
    pub(crate) store_away: Number,
    /// How long commits took, in which the store may have been away.
    pub(crate) commits: Histogram,
}

impl Metrics {
    /// Of a collector that writes in the way `way`, with a writer for each inbox.
    pub(crate) fn new(way: String, inboxes: Vec<Depth>) -> Self {
        let of_writer = |inbox| Arc::new(WriterMetrics { inbox, ..WriterMetrics::default() });
        Self {
            received: Number::default(),
            received_bytes: Number::default(),
            dropped: Number::default(),
            sent: Number::default(),
            admitted: Number::default(),
            authorised: Number::default(),
            refused: RefusalKind::ALL.map(|kind| (kind, Number::default())),
            turned: Turned::ALL.map(|turned| (turned, Number::default())),
            writers: inboxes.into_iter().map(of_writer).collect(),
            way,
        }
    }

    /// Counts a message that was refused.
    pub(crate) fn refused(&self, kind: RefusalKind) {
        self.refused.iter().filter(|(of, _)| *of == kind).for_each(|(_, count)| count.add(1));
    }

    /// Counts a connection that came to nothing.
    pub(crate) fn turned(&self, turned: Turned) {
        self.turned.iter().filter(|(of, _)| *of == turned).for_each(|(_, count)| count.add(1));
    }

    /// What each writer counts.
    pub(crate) fn writers(&self) -> &[Arc<WriterMetrics>] {
        &self.writers
    }
}

impl WriterMetrics {
    /// Shows what the writer has done until now, and how many sessions it knows.
    pub(crate) fn show(&self, totals: &Totals, sessions: usize) {
        self.frames.set(totals.frames);
        self.samples.set(totals.samples);
        self.quarantined.set(totals.quarantined);
        self.repeated.set(totals.repeated);
        self.sessions.set(sessions as u64);
        self.losses.iter().zip(totals.losses.counts()).for_each(|(shown, count)| shown.set(count));
    }
}
