//! Offsets of the agents' clocks, which control measures and the HTTP API reports.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polymeter_api::ClockOffset;
use polymeter_proto::series::{Identifier, SessionId};
use polymeter_service::clock::Now;

use crate::agents::JobNode;
use crate::limits;

/// Newest measurement of each session. Bounded by the number of sessions in the directory of agents.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClockOffsets(Arc<Mutex<HashMap<SessionId, Measured>>>);

#[derive(Debug)]
struct Measured {
    node: Identifier,
    /// Time since the start of the collector.
    asked_at: Duration,
    /// Offset of the times by which the agent dates samples.
    dates: Option<ClockOffset>,
    /// Offset of the node's clock, which may have been set since the agent started.
    clock: Option<ClockOffset>,
    /// Offset that the store has, in microseconds; none if the clocks are not far apart.
    stored_us: Option<i64>,
}

impl Measured {
    fn change(&self) -> Option<Option<i64>> {
        let ClockOffset { offset_us, error_us, .. } = self.dates?;
        let least_us = offset_us.saturating_abs().saturating_sub(error_us);
        match self.stored_us {
            None => (least_us >= limits::CLOCK_OFFSET_US).then_some(Some(offset_us)),
            Some(_) if least_us < limits::CLOCK_OFFSET_US / 2 => Some(None),
            Some(stored_us) => {
                let is_other = offset_us.abs_diff(stored_us)
                    > (limits::CLOCK_OFFSET_US / 2).saturating_add(error_us).unsigned_abs();
                is_other.then_some(Some(offset_us))
            }
        }
    }
}

impl ClockOffsets {
    /// Returns the agents that must be asked now, and records that they are. Sessions that are not in
    /// `agents` are forgotten.
    pub(crate) fn due(&self, agents: Vec<JobNode>, now: Duration) -> Vec<JobNode> {
        let mut measured = self.lock();
        let sessions: HashSet<SessionId> = agents.iter().map(|agent| agent.session).collect();
        measured.retain(|session, _| sessions.contains(session));
        let due: Vec<JobNode> = agents
            .into_iter()
            .filter(|agent| {
                let asked = measured.get(&agent.session).map(|of_one| of_one.asked_at);
                asked.is_none_or(|asked| now.saturating_sub(asked) >= limits::CLOCK_INTERVAL)
            })
            .take(limits::CLOCK_REQUESTS)
            .collect();
        for agent in &due {
            let node = agent.node.clone();
            let new = Measured { node, asked_at: now, dates: None, clock: None, stored_us: None };
            measured.entry(agent.session).or_insert(new).asked_at = now;
        }
        due
    }

    pub(crate) fn record(&self, session: SessionId, dates: ClockOffset, clock: ClockOffset) {
        if let Some(measured) = self.lock().get_mut(&session) {
            (measured.dates, measured.clock) = (Some(dates), Some(clock));
        }
    }

    pub(crate) fn changes(&self) -> Vec<(SessionId, Option<i64>)> {
        let measured = self.lock();
        measured.iter().filter_map(|(session, of_one)| Some((*session, of_one.change()?))).collect()
    }

    /// Returns the node.
    pub(crate) fn set_stored(&self, session: SessionId, offset_us: Option<i64>) -> String {
        let mut measured = self.lock();
        let Some(of_one) = measured.get_mut(&session) else { return String::new() };
        of_one.stored_us = offset_us;
        of_one.node.to_string()
    }

    /// Offset of a session that the store has, in microseconds; 0 if there is none.
    pub(crate) fn stored_us(&self, session: SessionId) -> i64 {
        self.lock().get(&session).and_then(|of_one| of_one.stored_us).unwrap_or(0)
    }

    pub(crate) fn of(&self, session: SessionId) -> Option<ClockOffset> {
        self.lock().get(&session)?.clock
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Measured>> {
        // No panic leaves it in an inconsistent state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Offset of a clock that showed `node_us` at some time between a request and its answer. That time is
/// unknown: the middle is wrong by at most half of the time between both. The monotonic clock measures that,
/// since the other one may have been set meanwhile.
pub(crate) fn offset_between(sent: Now, received: Now, node_us: i64) -> ClockOffset {
    let way_us = received.since_start.saturating_sub(sent.since_start).as_micros();
    let way_us = i64::try_from(way_us).unwrap_or(i64::MAX);
    let middle_us = sent.wall_us.saturating_add(way_us / 2);
    ClockOffset {
        offset_us: node_us.saturating_sub(middle_us),
        // Times are cut to whole microseconds.
        error_us: way_us / 2 + 1,
        measured_us: received.wall_us,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_messages::Peer;

    const MS: i64 = 1000;

    const RIGHT: ClockOffset = ClockOffset { offset_us: 0, error_us: 1, measured_us: 5 };

    fn at(wall_us: i64, since_start_us: u64) -> Now {
        Now { wall_us, since_start: Duration::from_micros(since_start_us) }
    }

    fn agent(number: u64) -> JobNode {
        let name = format!("n{number}");
        JobNode {
            node: name.as_str().try_into().unwrap(),
            session: SessionId(number),
            peer: Peer::from(name.as_bytes()),
            owner_uid: None,
        }
    }

    #[test]
    fn the_true_offset_lies_within_the_error() {
        let sent = at(1_700_000_000_000_000, 5_000_000);
        // The node's clock is ahead by 3 s. The request takes 1 ms to the node, and its answer 9 ms; or the
        // other way round.
        for (to_us, from_us) in [(MS, 9 * MS), (9 * MS, MS), (5 * MS, 5 * MS), (0, 10 * MS), (10 * MS, 0)] {
            for true_us in [3_000_000, -3_000_000, 0] {
                let received =
                    at(sent.wall_us + to_us + from_us, 5_000_000 + (to_us + from_us).unsigned_abs());
                let found = offset_between(sent, received, sent.wall_us + to_us + true_us);
                assert!((found.offset_us - true_us).abs() <= found.error_us, "{found:?}");
                assert_eq!((found.error_us, found.measured_us), (5 * MS + 1, received.wall_us));
            }
        }
        // The collector's clock is set back by an hour meanwhile: the time of the way is unaffected.
        let received = at(sent.wall_us - 3_600_000_000, 5_010_000);
        assert_eq!(offset_between(sent, received, sent.wall_us + 5 * MS).offset_us, 0);
    }

    fn taken(offsets: &ClockOffsets, offset_us: i64, error_us: i64) -> Vec<Option<i64>> {
        let dates = ClockOffset { offset_us, error_us, measured_us: 0 };
        offsets.record(SessionId(3), dates, RIGHT);
        let changes = offsets.changes();
        changes.iter().for_each(|(session, offset_us)| drop(offsets.set_stored(*session, *offset_us)));
        changes.into_iter().map(|(_, offset_us)| offset_us).collect()
    }

    #[test]
    fn offsets_are_stored_once_they_are_large_and_when_they_change() {
        let offsets = ClockOffsets::default();
        assert_eq!(offsets.due(vec![agent(3)], Duration::ZERO).len(), 1);
        assert_eq!(offsets.changes(), [], "not measured");
        assert_eq!(
            (taken(&offsets, 999 * MS, 1), taken(&offsets, -1500 * MS, 600 * MS)),
            (vec![], vec![]),
            "it may be small"
        );
        assert_eq!(taken(&offsets, -600_000 * MS, MS), [Some(-600_000 * MS)]);
        assert_eq!((taken(&offsets, -600_300 * MS, MS), offsets.changes()), (vec![], vec![]));
        assert_eq!(taken(&offsets, -601_000 * MS, MS), [Some(-601_000 * MS)]);
        assert_eq!((taken(&offsets, 3 * MS, MS), taken(&offsets, 3 * MS, MS)), (vec![None], vec![]));
        assert_eq!(taken(&offsets, i64::MIN, 0), [Some(i64::MIN)]);
        assert_eq!(offsets.of(SessionId(3)), Some(RIGHT), "the clock was set since the agent started");
    }

    #[test]
    fn agents_are_asked_in_turn_and_forgotten_when_they_are_gone() {
        let offsets = ClockOffsets::default();
        let all: Vec<JobNode> = (0..limits::CLOCK_REQUESTS as u64 + 1).map(agent).collect();
        let at_s = Duration::from_secs;
        assert_eq!(offsets.due(all.clone(), at_s(1)).len(), limits::CLOCK_REQUESTS);
        assert_eq!(offsets.due(all.clone(), at_s(2)), [agent(limits::CLOCK_REQUESTS as u64)]);
        assert_eq!(offsets.due(all.clone(), at_s(3)), []);
        let measured = ClockOffset { offset_us: 7, error_us: 1, measured_us: 9 };
        offsets.record(SessionId(3), RIGHT, measured);
        assert_eq!((offsets.of(SessionId(3)), offsets.of(SessionId(4))), (Some(measured), None));
        assert_eq!(offsets.due(all, at_s(1) + limits::CLOCK_INTERVAL).len(), limits::CLOCK_REQUESTS);
        assert_eq!(offsets.of(SessionId(3)), Some(measured), "until there is a newer one");
        assert_eq!(offsets.due(vec![agent(4)], at_s(900)).len(), 1);
        assert_eq!(offsets.of(SessionId(3)), None);
        offsets.record(SessionId(3), RIGHT, measured);
        assert_eq!(offsets.of(SessionId(3)), None, "the answer of a session that is gone");
    }
}
