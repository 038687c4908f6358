//! Totals of the writers.

use polymeter_store::accepted::{LossReason, Losses};

use crate::metrics::WriterMetrics;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    pub frames: u64,
    pub samples: u64,
    /// Samples quarantined because of their times.
    pub quarantined: u64,
    /// Samples of devices with a label of a job that they do not belong to.
    pub unattributed: u64,
    /// Frames received again after they were accepted.
    pub repeated: u64,
    /// Samples that are not stored and never will be; the store has the sessions and times.
    pub losses: Losses,
    /// Marks, changes of plan, facts of jobs and other events that are not stored and never will be.
    pub lost_events: u64,
    /// Messages that could not be decoded or were refused.
    pub refused: u64,
    /// Accepted frames that could not be committed before the end. They were not acknowledged: the agents
    /// have them.
    pub given_up: u64,
}

impl Totals {
    pub fn add(&mut self, other: &Self) {
        self.frames += other.frames;
        self.samples += other.samples;
        self.quarantined += other.quarantined;
        self.unattributed += other.unattributed;
        self.repeated += other.repeated;
        self.losses.add(&other.losses);
        self.lost_events += other.lost_events;
        self.refused += other.refused;
        self.given_up += other.given_up;
    }

    /// Adds the difference to `published` to the metrics.
    pub(super) fn publish(&self, published: &Self, metrics: &WriterMetrics) {
        metrics.stored_frames.inc_by(self.frames.saturating_sub(published.frames));
        metrics.stored_samples.inc_by(self.samples.saturating_sub(published.samples));
        metrics.quarantined_samples.inc_by(self.quarantined.saturating_sub(published.quarantined));
        metrics.unattributed_samples.inc_by(self.unattributed.saturating_sub(published.unattributed));
        metrics.repeated_frames.inc_by(self.repeated.saturating_sub(published.repeated));
        metrics.lost_events.inc_by(self.lost_events.saturating_sub(published.lost_events));
        let counts = self.losses.counts().into_iter().zip(published.losses.counts());
        for (reason, (now, then)) in LossReason::ALL.into_iter().zip(counts) {
            if now > then {
                metrics.lost_samples.add(reason.as_str(), now - then);
            }
        }
    }
}
