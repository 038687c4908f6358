//! The book of tallies: what became of the samples of every source since the session began, and what of it the collector
//! was told. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::batch::Job;
use polymeter_proto::ledger::{LedgerEntry, Tally};
use polymeter_proto::series::{Identifier, JobHandle};

use crate::lanes::SourceReport;

/// How often tallies travel when nothing was lost. A loss travels at once.
const TELL_NS: u64 = 10_000_000_000;

/// The tally of one source.
#[derive(Debug, Default)]
struct Account {
    job: Option<Arc<Job>>,
    /// Of sources of this name that have ended: one that is opened again begins to count anew.
    ended: Tally,
    /// Of the one that is open.
    open: Tally,
    told: Tally,
    /// The first and the last of the frames one of which says what was told.
    told_in: (u64, u64),
    /// That frame is lost.
    is_untold: bool,
    /// A source has ended since.
    has_ended: bool,
}

impl Account {
    fn tally(&self) -> Tally {
        let mut tally = self.ended;
        tally.add(&self.open);
        tally
    }
}

/// A tally that must be told.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) entry: LedgerEntry,
    pub(super) job: Option<Arc<Job>>,
    /// It was told before, in a frame that is lost.
    pub(super) is_again: bool,
}

/// All tallies of a session.
#[derive(Debug, Default)]
pub(super) struct Book {
    accounts: BTreeMap<(Option<JobHandle>, Identifier), Account>,
    told_ns: u64,
}

impl Book {
    pub(super) const fn new(now_ns: u64) -> Self {
        Self { accounts: BTreeMap::new(), told_ns: now_ns }
    }

    /// Enters what the sampler reports. Returns the tallies that must travel with the frame `sequence`: of losses, of
    /// sources that end and of what was told in vain at once, of others now and then.
    pub(super) fn enter(&mut self, reports: &[SourceReport], sequence: u64, now_ns: u64) -> Vec<Line> {
        for report in reports {
            let key = (report.key.job.as_ref().map(|job| job.handle), report.key.name.clone());
            let account = self.accounts.entry(key).or_default();
            account.job.clone_from(&report.key.job);
            account.open = report.tally;
            if report.last {
                account.ended.add(&std::mem::take(&mut account.open));
                account.has_ended = true;
            }
        }
        let all = !reports.is_empty() && now_ns.saturating_sub(self.told_ns) >= TELL_NS;
        if all {
            self.told_ns = now_ns;
        }
        let lost = |tally: &Tally| tally.missed + tally.dropped + tally.absent;
        let mut lines = Vec::new();
        for (key, account) in &mut self.accounts {
            let tally = account.tally();
            let has_changed = tally != account.told;
            let is_urgent = account.has_ended || lost(&tally) != lost(&account.told);
            if !account.is_untold && !(has_changed && (all || is_urgent)) {
                continue;
            }
            let (job, source) = key.clone();
            let is_again = std::mem::take(&mut account.is_untold);
            account.has_ended = false;
            account.told = tally;
            account.told_in = (sequence, sequence);
            lines.push(Line {
                entry: LedgerEntry { job, source, tally },
                job: account.job.clone(),
                is_again,
            });
        }
        lines
    }

    /// What was to go into the frame `first` was divided among it and the following up to `last`.
    pub(super) fn divided(&mut self, first: u64, last: u64) {
        for account in self.accounts.values_mut().filter(|account| account.told_in.0 == first) {
            account.told_in.1 = last;
        }
    }

    /// The frames are lost, and what they said must be told again.
    pub(super) fn lost(&mut self, frames: &[u64]) {
        for account in self.accounts.values_mut() {
            let (first, last) = account.told_in;
            account.is_untold |= frames.iter().any(|frame| (first..=last).contains(frame));
        }
    }

    /// Whether something was told in vain.
    pub(super) fn has_untold(&self) -> bool {
        self.accounts.values().any(|account| account.is_untold)
    }

    /// Forgets what was told of a job that has ended.
    pub(super) fn retire(&mut self, job: JobHandle) {
        self.accounts.retain(|(of, _), account| {
            *of != Some(job) || account.is_untold || account.tally() != account.told
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::{Cost, SourceKey};

    fn report(taken: u64, last: bool) -> SourceReport {
        let key = Arc::new(SourceKey { job: None, name: "stat".try_into().unwrap() });
        let tally = Tally { due: taken, taken, ..Tally::default() };
        SourceReport { key, tally, cost: Cost::default(), last }
    }

    fn told(lines: &[Line]) -> Vec<u64> {
        lines.iter().map(|line| line.entry.tally.taken).collect()
    }

    #[test]
    fn a_source_that_is_opened_again_goes_on_counting() {
        let mut book = Book::new(0);
        assert!(book.enter(&[report(5, false)], 1, 0).is_empty());
        assert_eq!(told(&book.enter(&[report(7, true)], 2, 0)), [7]);
        assert_eq!(told(&book.enter(&[report(2, true)], 3, 0)), [9]);
        assert_eq!(told(&book.enter(&[report(1, false)], 4, TELL_NS)), [10]);
    }

    #[test]
    fn what_was_told_in_a_frame_that_is_lost_is_told_again() {
        let mut book = Book::new(0);
        assert_eq!(told(&book.enter(&[report(7, true)], 2, 0)), [7]);
        book.divided(2, 4);
        book.lost(&[1, 5]);
        assert!(!book.has_untold());
        book.lost(&[4]);
        assert!(book.has_untold());
        let again = book.enter(&[], 6, 0);
        assert!(again.iter().all(|line| line.is_again));
        assert_eq!(told(&again), [7]);
        assert!(book.enter(&[], 7, 0).is_empty());
    }
}
