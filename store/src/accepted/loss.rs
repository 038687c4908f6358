//! Samples that are not stored, and those whose times are out of range.

use std::sync::Arc;

use super::records::LedgerLine;
use super::stacks::StackBlock;

#[derive(Debug, Clone)]
pub struct LossRecord {
    /// Line of the ledger that counts them; none where the source is unknown.
    pub line: Option<Arc<LedgerLine>>,
    pub samples: u64,
    pub reason: LossReason,
    /// Times of the oldest and the newest, in microseconds since the epoch.
    pub span_us: (i64, i64),
}

impl LossRecord {
    pub fn of_stacks(stacks: &StackBlock, reason: LossReason) -> Self {
        let line = Some(Arc::clone(&stacks.line));
        Self { line, samples: stacks.count(), reason, span_us: stacks.span_us }
    }

    /// Returns the sum of two losses that are alike.
    pub fn join(self, other: Self) -> Self {
        let span_us = (self.span_us.0.min(other.span_us.0), self.span_us.1.max(other.span_us.1));
        Self { samples: self.samples.saturating_add(other.samples), span_us, ..self }
    }

    pub fn is_alike(&self, other: &Self) -> bool {
        let line = |loss: &Self| loss.line.as_ref().map(Arc::as_ptr);
        line(self) == line(other) && self.reason == other.reason
    }
}

/// Samples whose times are out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfRange {
    pub samples: u64,
    /// Earliest and latest of the times, in microseconds since the epoch.
    pub span_us: (i64, i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossReason {
    OutboxFull,
    /// They were damaged in the agent's spool.
    SpoolDamaged,
    /// A collector refused their frame until the agent gave up.
    Refused,
    /// Their times are outside of the range that the collector allows.
    Clock,
    Contradiction,
    /// The agent did not announce their ids in spite of a request, or the dictionary would exceed its limits.
    UnknownId,
    UserSeries,
    /// They are about a node that their agent may not state values about.
    ServedNode,
    StoreRefused,
    /// They were acknowledged, but this store does not have them: it was lost or replaced since, it is a
    /// standby that took over before it had them, or another store has them.
    StoreReplaced,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Losses([u64; LossReason::ALL.len()]);

impl Losses {
    pub fn count(&mut self, loss: &LossRecord) {
        let counts = LossReason::ALL.iter().zip(&mut self.0);
        counts.filter(|(reason, _)| **reason == loss.reason).for_each(|(_, count)| *count += loss.samples);
    }

    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    /// Listed in the order of [`LossReason::ALL`].
    pub const fn counts(&self) -> [u64; LossReason::ALL.len()] {
        self.0
    }

    pub fn in_collector(&self) -> u64 {
        LossReason::ALL
            .iter()
            .zip(self.0)
            .filter(|(reason, _)| reason.is_in_collector())
            .map(|(_, count)| count)
            .sum()
    }
}

impl LossReason {
    pub const ALL: [Self; 10] = [
        Self::OutboxFull,
        Self::Refused,
        Self::SpoolDamaged,
        Self::Clock,
        Self::Contradiction,
        Self::UnknownId,
        Self::UserSeries,
        Self::ServedNode,
        Self::StoreRefused,
        Self::StoreReplaced,
    ];

    /// Returns the name in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OutboxFull => "outbox_full",
            Self::Refused => "refused",
            Self::SpoolDamaged => "spool_damaged",
            Self::Clock => "clock",
            Self::Contradiction => "contradiction",
            Self::UnknownId => "unknown_id",
            Self::UserSeries => "user_series",
            Self::ServedNode => "served_node",
            Self::StoreRefused => "store_refused",
            Self::StoreReplaced => "store_replaced",
        }
    }

    /// Returns true if the number of the lost samples may be unknown.
    pub const fn is_uncounted(self) -> bool {
        matches!(self, Self::SpoolDamaged | Self::StoreReplaced)
    }

    /// Returns true if the samples were lost in the collector, and not in the agent.
    pub const fn is_in_collector(self) -> bool {
        !matches!(self, Self::OutboxFull | Self::Refused | Self::SpoolDamaged)
    }
}
