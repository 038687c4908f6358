//! The ledger of tallies: the fate of the samples of every source since the session began, and the part of it
//! that was reported to the collector. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::batch::{Job, Shape};
use polymeter_proto::ledger::{LedgerEntry, Tally};
use polymeter_proto::series::{Identifier, JobHandle};

use crate::lanes::SourceReport;

/// How often tallies without new losses are reported. A loss is reported at once.
const REPORT_NS: u64 = 10_000_000_000;

#[derive(Debug, Default)]
struct SourceTallies {
    job: Option<Arc<Job>>,
    /// Sum over sources of this name that have ended: a source that is opened again counts from zero.
    ended: Tally,
    open: Tally,
    /// Samples of all of them that a ring did not keep.
    not_kept: u64,
    reported: Tally,
    /// First and last of the frames among which the last report was divided.
    reported_in: (u64, u64),
    /// True if one of those frames is lost.
    is_unreported: bool,
    has_ended: bool,
}

impl SourceTallies {
    fn tally(&self) -> Tally {
        let mut tally = self.ended;
        tally.add(&self.open);
        tally.not_kept += self.not_kept;
        tally
    }
}

#[derive(Debug)]
pub(super) struct DueEntry {
    pub(super) entry: LedgerEntry,
    pub(super) job: Option<Arc<Job>>,
    /// True if it was reported before, in a frame that is lost.
    pub(super) is_again: bool,
}

#[derive(Debug, Default)]
pub(super) struct LossLedger {
    tallies: BTreeMap<(Option<JobHandle>, Identifier), SourceTallies>,
    reported_ns: u64,
}

impl LossLedger {
    pub(super) const fn new(now_ns: u64) -> Self {
        Self { tallies: BTreeMap::new(), reported_ns: now_ns }
    }

    /// Takes the sampler's reports. Returns the tallies for frame `sequence`: those with new losses, of ended
    /// sources and of lost frames at once, all changed ones every `REPORT_NS`.
    pub(super) fn enter(&mut self, reports: &[SourceReport], sequence: u64, now_ns: u64) -> Vec<DueEntry> {
        for report in reports {
            let key = (report.key.job.as_ref().map(|job| job.handle), report.key.name.clone());
            let tallies = self.tallies.entry(key).or_default();
            tallies.job.clone_from(&report.key.job);
            tallies.open = report.tally;
            if report.last {
                tallies.ended.add(&std::mem::take(&mut tallies.open));
                tallies.has_ended = true;
            }
        }
        let all = !reports.is_empty() && now_ns.saturating_sub(self.reported_ns) >= REPORT_NS;
        if all {
            self.reported_ns = now_ns;
        }
        let mut lines = Vec::new();
        for (key, tallies) in &mut self.tallies {
            let tally = tallies.tally();
            let has_changed = tally != tallies.reported;
            let is_urgent = tallies.has_ended || tally.lost() != tallies.reported.lost();
            if !tallies.is_unreported && !(has_changed && (all || is_urgent)) {
                continue;
            }
            let (job, source) = key.clone();
            let is_again = std::mem::take(&mut tallies.is_unreported);
            tallies.has_ended = false;
            tallies.reported = tally;
            tallies.reported_in = (sequence, sequence);
            lines.push(DueEntry {
                entry: LedgerEntry { job, source, tally },
                job: tallies.job.clone(),
                is_again,
            });
        }
        lines
    }

    /// Counts samples that a ring did not keep. What `is_final` is reported at once.
    pub(super) fn count_not_kept(&mut self, shape: &Shape, samples: u64, is_final: bool) {
        let key = (shape.job.as_ref().map(|job| job.handle), shape.source.clone());
        let tallies = self.tallies.entry(key).or_default();
        tallies.job.clone_from(&shape.job);
        tallies.not_kept += samples;
        tallies.has_ended |= is_final;
    }

    /// Records that the tallies of frame `first` were divided among the frames `first` to `last`.
    pub(super) fn divided(&mut self, first: u64, last: u64) {
        for tallies in self.tallies.values_mut().filter(|tallies| tallies.reported_in.0 == first) {
            tallies.reported_in.1 = last;
        }
    }

    pub(super) fn lost(&mut self, frames: &[u64]) {
        for tallies in self.tallies.values_mut() {
            let (first, last) = tallies.reported_in;
            tallies.is_unreported |= frames.iter().any(|frame| (first..=last).contains(frame));
        }
    }

    pub(super) fn has_unreported(&self) -> bool {
        self.tallies.values().any(|tallies| tallies.is_unreported)
    }

    pub(super) fn retire(&mut self, job: JobHandle) {
        self.tallies.retain(|(of, _), tallies| {
            *of != Some(job) || tallies.is_unreported || tallies.tally() != tallies.reported
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::{ReadCost, SourceKey};

    fn report(taken: u64, last: bool) -> SourceReport {
        let key = Arc::new(SourceKey { job: None, name: "stat".try_into().unwrap() });
        let tally = Tally { due: taken, taken, ..Tally::default() };
        SourceReport { key, tally, cost: ReadCost::default(), last }
    }

    fn reported(lines: &[DueEntry]) -> Vec<u64> {
        lines.iter().map(|line| line.entry.tally.taken).collect()
    }

    #[test]
    fn a_reopened_source_continues_to_count() {
        let mut ledger = LossLedger::new(0);
        assert!(ledger.enter(&[report(5, false)], 1, 0).is_empty());
        assert_eq!(reported(&ledger.enter(&[report(7, true)], 2, 0)), [7]);
        assert_eq!(reported(&ledger.enter(&[report(2, true)], 3, 0)), [9]);
        assert_eq!(reported(&ledger.enter(&[report(1, false)], 4, REPORT_NS)), [10]);
    }

    #[test]
    fn tallies_of_a_lost_frame_are_reported_again() {
        let mut ledger = LossLedger::new(0);
        assert_eq!(reported(&ledger.enter(&[report(7, true)], 2, 0)), [7]);
        ledger.divided(2, 4);
        ledger.lost(&[1, 5]);
        assert!(!ledger.has_unreported());
        ledger.lost(&[4]);
        assert!(ledger.has_unreported());
        let again = ledger.enter(&[], 6, 0);
        assert!(again.iter().all(|line| line.is_again));
        assert_eq!(reported(&again), [7]);
        assert!(ledger.enter(&[], 7, 0).is_empty());
    }
}
