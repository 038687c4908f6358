//! What must hold once everything has arrived.

use std::collections::HashSet;

use polymeter_proto::ledger::Tally;
use polymeter_proto::series::SessionId;

use super::World;
use crate::agent::Agent;
use crate::disk::SpooledFrame;

impl World {
    pub(super) fn check(&self) {
        for agent in &self.agents {
            if self.store.replaced.contains_key(&agent.session) {
                self.check_replaced(agent);
                continue;
            }
            let stored = self.stored(agent.session);
            let lost = self.store.lost.get(&agent.session).copied().unwrap_or_default();
            assert_eq!(stored + lost, agent.samples, "session {}: {stored} + {lost}", agent.session);
            let counts = agent.delivery.counts();
            assert_eq!(lost, counts.samples_dropped + counts.samples_refused, "{counts:?}");
            for ((job, source), expected) in &agent.expected {
                let account = &self.store.ledger[&(agent.session, job.clone(), source.clone())];
                let Tally { due, taken, missed, absent, dropped, .. } = account.tally;
                assert_eq!(account.tally, *expected, "{job:?} {source}");
                assert_eq!(due, missed + absent + dropped + account.lost + account.stored, "{account:?}");
                assert_eq!(taken, dropped + account.lost + account.stored, "{account:?}");
            }
            // A tally may never include samples that have not arrived: the session may be killed at that
            // point.
            for (source, account) in self.store.ledger.iter().filter(|(source, _)| source.0 == agent.session)
            {
                assert!(account.excess == 0, "{source:?} {account:?}");
            }
            let missing = agent.events.iter().filter(|event| !self.store.events.contains_key(event));
            assert_eq!(missing.count() as u64, counts.events_dropped, "session {}", agent.session);
        }
        self.check_spooled();
        for (session, samples) in &self.killed {
            let lost = self.store.lost.get(session).copied().unwrap_or_default();
            assert!(self.stored(*session) + lost <= *samples, "session {session} has too much");
            // The tally continues from the value that the store had before it was replaced.
            let is_whole = !self.store.replaced.contains_key(session);
            for (source, account) in
                self.store.ledger.iter().filter(|(source, _)| is_whole && source.0 == *session)
            {
                assert!(account.excess == 0, "{source:?} {account:?}");
            }
        }
    }

    /// Checks that what was on the disk of an agent without a successor in its session is stored, except for
    /// frames that the collectors refuse.
    fn check_spooled(&self) {
        let mut refused = HashSet::new();
        let spooled = self.spooled.iter().filter(|frame| !self.store.replaced.contains_key(&frame.session));
        for SpooledFrame { session, sequence, samples, events } in spooled {
            let is_poisoned = self.poisoned.contains(&(*session, *sequence));
            assert!(
                samples.iter().all(|sample| is_poisoned != self.store.samples.contains_key(sample)),
                "frame {sequence} of session {session} was on the disk"
            );
            assert!(
                is_poisoned || events.iter().all(|event| self.store.events.contains_key(event)),
                "frame {sequence} of session {session}"
            );
            refused.extend(events.iter().copied().filter(|_| is_poisoned));
        }
        let ended = self.ended.iter().filter(|(session, _)| !self.store.replaced.contains_key(session));
        for (session, events) in ended {
            assert!(
                events.iter().all(|event| self.store.events.contains_key(event) || refused.contains(event)),
                "session {session} ended and lacks events"
            );
        }
    }

    /// Checks that only samples from before the replacement are missing, and that the store knows that some
    /// are.
    fn check_replaced(&self, agent: &Agent) {
        let session = agent.session;
        let stored = self.stored(session);
        let lost = self.store.lost.get(&session).copied().unwrap_or_default();
        let removed = self
            .store
            .removed
            .iter()
            .filter(|(sample, (of, _))| *of == session && !self.store.samples.contains_key(*sample));
        let removed: u64 = removed.map(|(_, (_, count))| count).sum();
        assert!(stored + lost + removed <= agent.samples, "session {session} has too much");
        if !self.store.replaced[&session] {
            assert_eq!(
                stored + lost + removed,
                agent.samples,
                "session {session}: {stored} + {lost} + {removed}"
            );
        }
        assert!(removed == 0 || !agent.keeps_all, "session {session} has kept its frames");
        assert!(removed == 0 || self.store.incomplete.contains(&session), "session {session} is incomplete");
        let is_known = self.store.incomplete.contains(&session);
        assert!(
            is_known || agent.events.iter().all(|event| self.store.events.contains_key(event)),
            "session {session} lacks events"
        );
    }

    fn stored(&self, session: SessionId) -> u64 {
        let own = self.store.samples.values().filter(|(of, _)| *of == session);
        own.map(|(_, count)| count).sum()
    }
}
