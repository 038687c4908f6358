//! Requests that must reach agents that were away, while they matter. Pure: no I/O and no clock.
//!
//! An agent that is told something twice does it once more with the same end, so that it is better told twice than never.

use std::collections::HashSet;

use polymeter_proto::series::{Identifier, SessionId};
use polymeter_proto::wire::control::ControlLine;

use super::request::Kind;
use crate::limits;

/// A request as it is sent once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Again {
    /// To know it by when it has been answered.
    pub(super) number: u64,
    pub(super) uid: u32,
    pub(super) at_us: i64,
    pub(super) line: ControlLine,
}

/// A request whose effect lasts.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) again: Again,
    pub(super) job: Identifier,
    pub(super) kind: Kind,
    pub(super) until_us: i64,
    /// The sessions that have answered.
    pub(super) told: HashSet<SessionId>,
}

/// What is pending, the oldest first.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    entries: Vec<Entry>,
    bytes: usize,
    next: u64,
}

/// A request that was passed on.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) job: Identifier,
    pub(super) kind: Kind,
    pub(super) uid: u32,
    pub(super) at_us: i64,
    pub(super) line: ControlLine,
    /// When its leases end, as the agents say.
    pub(super) until_us: Option<i64>,
    /// The sessions that have answered.
    pub(super) told: HashSet<SessionId>,
}

impl PendingRequests {
    /// Remembers a request that was passed on, in place of those that it replaces.
    pub(super) fn add(&mut self, passed: Passed, now_us: i64) {
        self.forget(|entry| entry.until_us <= now_us);
        let until_us = match &passed.kind {
            Kind::Once => None,
            Kind::Set { selectors, .. } => {
                let replaced = |kind: &Kind| match kind {
                    Kind::Set { selectors: of, .. } => of.iter().all(|selector| selectors.contains(selector)),
                    Kind::Once | Kind::Reset => false,
                };
                self.forget(|entry| {
                    entry.job == passed.job && entry.again.uid == passed.uid && replaced(&entry.kind)
                });
                passed.until_us
            }
            // As long as a lease would last that it ends: an agent that was away may have it. Root ends all leases.
            Kind::Reset => self.forget(|entry| {
                entry.job == passed.job && (passed.uid == 0 || entry.again.uid == passed.uid)
            }),
        };
        let Some(until_us) = until_us.filter(|until_us| *until_us > now_us) else { return };
        let Passed { job, kind, uid, at_us, line, told, .. } = passed;
        let again = Again { number: 0, uid, at_us, line };
        self.restore(Entry { again, job, kind, until_us, told });
    }

    /// What is pending, the oldest first.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Remembers behind all others what another life did. It gets a number of its own.
    pub(super) fn restore(&mut self, mut entry: Entry) {
        self.next += 1;
        entry.again.number = self.next;
        self.bytes += entry.again.line.as_str().len();
        self.entries.push(entry);
        while self.entries.len() > limits::REMEMBERED || self.bytes > limits::REMEMBERED_BYTES {
            let Some(first) = self.entries.iter().map(|entry| entry.until_us).min() else { break };
            self.forget(|entry| entry.until_us == first);
        }
    }

    /// What a session that follows the job has to be told, in the order in which it was asked.
    pub(super) fn missed(&self, job: &Identifier, session: SessionId, now_us: i64) -> Vec<Again> {
        let missed = self
            .entries
            .iter()
            .filter(|entry| entry.job == *job && entry.until_us > now_us && !entry.told.contains(&session));
        missed.map(|entry| entry.again.clone()).collect()
    }

    /// Notes that a session has answered.
    pub(super) fn told(&mut self, number: u64, session: SessionId) {
        let entry = self.entries.iter_mut().find(|entry| entry.again.number == number);
        if let Some(entry) = entry.filter(|entry| entry.told.len() < limits::NODES) {
            entry.told.insert(session);
        }
    }

    /// Forgets entries, and says when the last of them would have ended.
    fn forget(&mut self, which: impl Fn(&Entry) -> bool) -> Option<i64> {
        let (mut last, mut freed) = (None, 0);
        self.entries.retain(|entry| {
            let forget = which(entry);
            if forget {
                last = last.max(Some(entry.until_us));
                freed += entry.again.line.as_str().len();
            }
            !forget
        });
        self.bytes -= freed;
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: u32 = 1000;
    const BOB: u32 = 1001;

    fn said(kind: &Kind) -> String {
        match kind {
            Kind::Once => "once".to_owned(),
            Kind::Set { selectors, .. } => selectors.join(" "),
            Kind::Reset => "reset".to_owned(),
        }
    }

    fn passed(job: &str, uid: u32, kind: Kind, until_us: i64, told: &[u64]) -> Passed {
        Passed {
            job: job.try_into().unwrap(),
            line: said(&kind).try_into().unwrap(),
            kind,
            uid,
            at_us: 7,
            until_us: Some(until_us),
            told: told.iter().copied().map(SessionId).collect(),
        }
    }

    fn set(job: &str, uid: u32, selector: &str, until_us: i64, told: &[u64]) -> Passed {
        passed(job, uid, Kind::Set { selectors: vec![selector.to_owned()], lasts_us: None }, until_us, told)
    }

    fn lines(pending: &PendingRequests, session: u64, now_us: i64) -> Vec<String> {
        let missed = pending.missed(&"7".try_into().unwrap(), SessionId(session), now_us);
        missed.into_iter().map(|again| again.line.as_str().to_owned()).collect()
    }

    #[test]
    fn who_was_away_is_told_while_the_lease_lasts() {
        let mut pending = PendingRequests::default();
        pending.add(set("7", ADA, "cpu.*", 100, &[1]), 0);
        pending.add(set("8", ADA, "cpu.*", 100, &[]), 0);
        assert_eq!(lines(&pending, 1, 50), [""; 0], "it has answered");
        assert_eq!(lines(&pending, 2, 50), ["cpu.*"]);
        assert_eq!(lines(&pending, 2, 100), [""; 0], "the lease has ended");
        let again = pending.missed(&"7".try_into().unwrap(), SessionId(2), 50).remove(0);
        assert_eq!((again.uid, again.at_us), (ADA, 7));
        pending.told(again.number, SessionId(2));
        assert_eq!(lines(&pending, 2, 50), [""; 0]);
    }

    #[test]
    fn a_later_request_takes_the_place_of_an_earlier_one() {
        let mut pending = PendingRequests::default();
        pending.add(set("7", ADA, "cpu.*", 100, &[1]), 0);
        pending.add(set("7", ADA, "memory.*", 100, &[1]), 0);
        pending.add(set("7", ADA, "cpu.*", 90, &[]), 0);
        pending.add(set("7", BOB, "cpu.*", 120, &[]), 0);
        assert_eq!(lines(&pending, 1, 50), ["cpu.*", "cpu.*"]);
        pending.add(passed("7", ADA, Kind::Reset, 0, &[1]), 0);
        assert_eq!(lines(&pending, 2, 50), ["cpu.*", "reset"], "Bob's is not Ada's to end");
        assert_eq!(lines(&pending, 2, 101), ["cpu.*"], "what Ada had has ended by itself");
        pending.add(passed("7", 0, Kind::Reset, 0, &[1]), 0);
        assert_eq!(lines(&pending, 2, 50), ["reset"]);
        assert_eq!(lines(&pending, 2, 120), [""; 0]);
        pending.add(passed("7", 0, Kind::Reset, 0, &[]), 130);
        assert!(pending.entries.is_empty(), "there is nothing to end");
        assert_eq!(pending.bytes, 0);
    }

    #[test]
    fn the_memory_is_bounded_and_what_ends_first_goes() {
        let mut pending = PendingRequests::default();
        for number in 0..=limits::REMEMBERED {
            let until_us = 1000 + i64::try_from(number).unwrap();
            pending.add(set("7", ADA, &format!("m{number}"), until_us, &[]), 0);
        }
        let left = lines(&pending, 1, 0);
        assert_eq!(left.len(), limits::REMEMBERED);
        assert!(!left.contains(&"m0".to_owned()));
        let long = "x".repeat(200 * 1024);
        for number in 0..2 * limits::REMEMBERED_BYTES / long.len() {
            pending.add(set("7", ADA, &format!("{long}{number}"), 10_000, &[]), 0);
        }
        assert!(pending.bytes <= limits::REMEMBERED_BYTES);
    }
}
