//! Changes that a transaction makes to the ledger. Pure.
//!
//! A tally is sent at most every ten seconds, samples with every frame. So that `ledger_balance` agrees with
//! the rows at any time, even after an agent was killed, the stores count the rows that they write.
//! PostgreSQL adds the counts to the row of the session, which every transaction updates anyway, and moves
//! them to the ledger when a tally arrives: an update per source and second would cost more than the samples.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use polymeter_proto::ledger::Tally;
use polymeter_proto::series::{Identifier, SessionId};

use crate::accepted::{Accepted, LedgerLine};
use crate::row::Field;
use crate::value::Value;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct LineChange {
    /// Newest tally, if one arrived.
    pub(super) tally: Option<Tally>,
    /// Samples that were stored and not quarantined.
    pub(super) stored: u64,
    pub(super) skipped: u64,
    pub(super) rejected: u64,
    pub(super) quarantined: u64,
}

impl LineChange {
    const fn is_only_stored(&self) -> bool {
        self.tally.is_none() && self.skipped + self.rejected + self.quarantined == 0
    }
}

/// Identity of a line: its session, its handle of the job, and its source.
pub(super) type Identity = (SessionId, Option<i64>, Identifier);

#[derive(Debug, Default)]
pub(super) struct LineChanges {
    /// Changes of lines with an id, by session and id.
    pub(super) known: BTreeMap<(SessionId, i64), LineChange>,
    pub(super) new: BTreeMap<Identity, (Arc<LedgerLine>, LineChange)>,
}

impl LineChanges {
    fn of(&mut self, line: &Arc<LedgerLine>) -> &mut LineChange {
        match line.id.get() {
            Some(id) => self.known.entry((line.session.id, id)).or_default(),
            None => {
                &mut self
                    .new
                    .entry(identity(line))
                    .or_insert_with(|| (Arc::clone(line), LineChange::default()))
                    .1
            }
        }
    }
}

pub(super) fn identity(line: &LedgerLine) -> Identity {
    (line.session.id, line.handle(), line.source.clone())
}

pub(super) fn line_changes(frames: &[&Accepted]) -> LineChanges {
    let mut changes = LineChanges::default();
    for frame in frames {
        for samples in frame.samples.iter().chain(&frame.kept) {
            add(&mut changes.of(&samples.line).stored, samples.samples());
        }
        for stacks in &frame.stacks {
            add(&mut changes.of(&stacks.line).stored, stacks.count());
        }
        for samples in &frame.quarantined {
            add(&mut changes.of(&samples.line).quarantined, samples.samples());
        }
        for loss in &frame.losses {
            let Some(line) = &loss.line else { continue };
            let change = changes.of(line);
            add(
                if loss.reason.is_in_collector() { &mut change.rejected } else { &mut change.skipped },
                loss.samples,
            );
        }
        for (line, tally) in &frame.tallies {
            changes.of(line).tally = Some(*tally);
        }
    }
    changes
}

const fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}

/// Stored samples that the ledger does not count yet, by the ids of the lines: the column `pending` of a
/// session.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Pending(BTreeMap<i64, u64>);

impl Pending {
    /// Parses a JSON object of counts by ledger id; none for other text.
    fn parse(json: &str) -> Option<Self> {
        let counts: BTreeMap<String, u64> = serde_json::from_str(json).ok()?;
        let counts = counts.into_iter().map(|(id, count)| Some((id.parse().ok()?, count)));
        counts.collect::<Option<_>>().map(Self)
    }

    pub(super) fn to_json(&self) -> String {
        let counts: Vec<_> = self.0.iter().map(|(id, count)| format!("\"{id}\":{count}")).collect();
        format!("{{{}}}", counts.join(","))
    }
}

impl Field for Pending {
    const EXPECTED: &'static str = "an object of counts";

    fn from_value(value: Value<'static>) -> Option<Self> {
        Self::parse(&String::from_value(value)?)
    }
}

/// Divides `changes` into those that are written to the ledger now, together with the pending counts of their
/// lines, and those that become pending, if the store defers them.
pub(super) fn settle(
    changes: BTreeMap<(SessionId, i64), LineChange>,
    pending: &mut HashMap<SessionId, Pending>,
    defers: bool,
) -> Vec<(i64, LineChange)> {
    let mut settled = Vec::new();
    for ((session, id), mut change) in changes {
        let pending = &mut pending.entry(session).or_default().0;
        if defers && change.is_only_stored() {
            add(pending.entry(id).or_default(), change.stored);
        } else {
            add(&mut change.stored, pending.remove(&id).unwrap_or_default());
            settled.push((id, change));
        }
    }
    settled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_samples_wait_for_a_tally() {
        let session = SessionId(7);
        let mut pending = HashMap::from([(session, Pending::parse(r#"{"3":10,"4":1}"#).unwrap())]);
        let stored = |stored| LineChange { stored, ..LineChange::default() };
        assert!(settle(BTreeMap::from([((session, 3), stored(5))]), &mut pending, true).is_empty());
        assert_eq!(pending[&session].to_json(), r#"{"3":15,"4":1}"#);
        let reported = LineChange { tally: Some(Tally::default()), ..stored(2) };
        let settled = settle(BTreeMap::from([((session, 3), reported.clone())]), &mut pending, true);
        assert_eq!(settled, [(3, LineChange { stored: 17, ..reported })]);
        assert_eq!(pending[&session].to_json(), r#"{"4":1}"#);
        let at_once = settle(BTreeMap::from([((session, 4), stored(1))]), &mut pending, false);
        assert_eq!(at_once, [(4, stored(2))]);
        assert_eq!(Pending::parse("{}"), Some(Pending::default()));
        assert_eq!(["garbage", r#"{"a":1}"#].map(Pending::parse), [None, None]);
        assert_eq!(Pending::default().to_json(), "{}");
    }
}
