//! A database in memory: what is committed stays, and a transaction is all or nothing.

use std::collections::HashMap;

use polymeter_collector::commit::Accepted;
use polymeter_proto::series::SessionId;

#[derive(Default)]
pub(crate) struct Store {
    /// The last sequence number of each session.
    pub(crate) last: HashMap<SessionId, u64>,
    /// The session of each sample, whose value is its name.
    pub(crate) samples: HashMap<u64, SessionId>,
    /// How many samples of each session are said to be lost.
    pub(crate) lost: HashMap<SessionId, u64>,
    /// Each event, by its time, which is its name.
    pub(crate) events: HashMap<i64, SessionId>,
}

impl Store {
    pub(crate) fn last_sequence(&self, session: SessionId) -> u64 {
        self.last.get(&session).copied().unwrap_or_default()
    }

    /// Stores what is not stored yet, and says up to where each session is stored.
    pub(crate) fn commit(&mut self, frames: &[Accepted]) -> Vec<(SessionId, u64)> {
        let mut through = HashMap::new();
        for frame in frames {
            let last = self.last.entry(frame.session.id).or_default();
            if frame.sequence > *last {
                *last = frame.sequence;
                self.put(frame);
            }
            through.insert(frame.session.id, self.last_sequence(frame.session.id));
        }
        let mut through: Vec<_> = through.into_iter().collect();
        through.sort_by_key(|(session, _)| session.0);
        through
    }

    fn put(&mut self, frame: &Accepted) {
        let session = frame.session.id;
        for value in frame.samples.iter().flat_map(|samples| &samples.values) {
            assert_eq!(self.samples.insert(*value, session), None, "sample {value} is stored twice");
        }
        for loss in &frame.losses {
            *self.lost.entry(session).or_default() += loss.samples;
        }
        let changes = frame.plan_changes.iter().map(|(_, change)| change.at_us);
        for at_us in changes.chain(frame.job_ends.iter().map(|(_, at_us)| *at_us)) {
            assert_eq!(self.events.insert(at_us, session), None, "event {at_us} is stored twice");
        }
    }
}
