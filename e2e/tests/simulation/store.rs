//! A database in memory: committed data persist, and a transaction is atomic.

use std::collections::{HashMap, HashSet};

use polymeter_proto::ledger::Tally;
use polymeter_proto::series::SessionId;
use polymeter_store::accepted::{Accepted, LedgerLine as Line, LossReason, MissingFrames, check_gaps};

/// A source: its session, the handle and the id of its job, and its name.
pub(crate) type Source = (SessionId, Option<(u32, String)>, String);

#[derive(Clone, Debug, Default)]
pub(crate) struct SourceLedger {
    pub(crate) tally: Tally,
    pub(crate) lost: u64,
    pub(crate) stored: u64,
    /// Greatest number by which a tally exceeded the samples that had arrived with its frame.
    pub(crate) excess: u64,
}

#[derive(Clone, Default)]
pub(crate) struct Store {
    pub(crate) last: HashMap<SessionId, u64>,
    /// Session of each row, whose value is its id, and the number of its samples.
    pub(crate) samples: HashMap<u64, (SessionId, u64)>,
    pub(crate) lost: HashMap<SessionId, u64>,
    pub(crate) ledger: HashMap<Source, SourceLedger>,
    pub(crate) events: HashMap<i64, SessionId>,
    pub(crate) incomplete: HashSet<SessionId>,
    /// A replaced file has another number.
    pub(crate) file: u64,
    /// Rows that were in the store before it was replaced.
    pub(crate) removed: HashMap<u64, (SessionId, u64)>,
    /// Sessions that existed when the store was replaced, and whether some of their samples were lost by
    /// then.
    pub(crate) replaced: HashMap<SessionId, bool>,
}

impl Store {
    /// Replaces the contents with `copy`, in the same file or another one.
    pub(crate) fn replace(&mut self, copy: &Self, is_same_file: bool) {
        let mut before = std::mem::replace(self, copy.clone());
        before.samples.retain(|sample, _| !self.samples.contains_key(sample));
        self.removed = before.removed;
        self.removed.extend(before.samples);
        self.replaced = before.replaced;
        for session in before.last.keys() {
            *self.replaced.entry(*session).or_default() |= before.lost.contains_key(session);
        }
        self.file = before.file + u64::from(!is_same_file);
    }

    pub(crate) fn last_sequence(&self, session: SessionId) -> u64 {
        self.last.get(&session).copied().unwrap_or_default()
    }

    /// Stores the frames that are not stored yet and returns the last stored sequence number of each session.
    /// Stores nothing if an earlier frame is missing.
    pub(crate) fn commit(&mut self, frames: &[Accepted]) -> Result<Vec<(SessionId, u64)>, MissingFrames> {
        check_gaps(frames, &self.last)?;
        let mut through = HashMap::new();
        for frame in frames {
            let last = self.last.entry(frame.session.id).or_default();
            if frame.sequence > *last {
                *last = frame.sequence;
                self.insert(frame);
            }
            through.insert(frame.session.id, self.last_sequence(frame.session.id));
        }
        let mut through: Vec<_> = through.into_iter().collect();
        through.sort_by_key(|(session, _)| session.0);
        Ok(through)
    }

    fn insert(&mut self, frame: &Accepted) {
        let session = frame.session.id;
        for samples in &frame.samples {
            let line = self.ledger.entry(source_of(session, &samples.line)).or_default();
            line.stored += samples.samples();
            let counts = samples.windows.as_ref().map(|windows| &windows.counts);
            for (position, value) in samples.values.iter().enumerate() {
                let count = counts.map_or(1, |counts| counts[position]);
                let known = self.samples.insert(*value, (session, count));
                assert_eq!(known, None, "sample {value} is stored twice");
            }
        }
        for loss in &frame.losses {
            if loss.reason == LossReason::StoreReplaced {
                self.incomplete.insert(session);
                continue;
            }
            *self.lost.entry(session).or_default() += loss.samples;
            let line = loss.line.as_ref().expect("an agent states the source of lost samples");
            self.ledger.entry(source_of(session, line)).or_default().lost += loss.samples;
        }
        for (line, tally) in &frame.tallies {
            let line = self.ledger.entry(source_of(session, line)).or_default();
            line.tally = *tally;
            let arrived = tally.dropped + line.lost + line.stored;
            line.excess = line.excess.max(tally.taken.saturating_sub(arrived));
        }
        for event in events_of(frame) {
            assert_eq!(self.events.insert(event, session), None, "event {event} is stored twice");
        }
    }
}

fn source_of(session: SessionId, line: &Line) -> Source {
    let job = line.job.as_ref().map(|job| (job.handle.0, job.descriptor.job_id.as_str().to_owned()));
    (session, job, line.source.as_str().to_owned())
}

fn events_of(frame: &Accepted) -> impl Iterator<Item = i64> {
    let times = frame.plan_changes.iter().map(|(_, change)| change.at_us);
    let times = times
        .chain(frame.job_ends.iter().map(|(_, at_us)| *at_us))
        .chain(frame.marks.iter().map(|(_, mark)| mark.at_us))
        .chain(frame.refused_requests.iter().map(|(_, refused)| refused.at_us));
    let names = frame.job_owners.iter().map(|(_, owner)| &owner.name);
    let names = names
        .chain(frame.job_facts.iter().map(|(_, facts)| &facts.account))
        .chain(frame.job_details.iter().map(|(_, details)| &details.display_id));
    times.chain(names.flatten().map(|name| name.as_str().parse().unwrap()))
}
