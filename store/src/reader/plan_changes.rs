//! Changes of the sampling plan as the store keeps them: events of one node, each with a set of changes,
//! which nodes share. A set is read once, whatever the number of nodes.

use std::collections::{BTreeSet, HashMap};

use polymeter_proto::read::PlanChangeRow;

use super::recorded_statements::Reader;
use crate::StoreError;
use crate::accepted::REFUSED;
use crate::row::from_row;

/// Changes of the same time, node and cause.
#[derive(Debug)]
struct Event {
    time_ns: i64,
    node: String,
    level: Option<String>,
    cause: String,
    actor: Option<String>,
    until_ns: Option<i64>,
    set_id: i64,
}

from_row!(Event { time_ns: TimeNs, node, level, cause, actor, until_ns: TimeNs, set_id });

impl Event {
    /// Returns the parts of the order of changes that precede the metric.
    fn order(&self) -> (i64, &str, Option<&str>) {
        (self.time_ns, &self.node, self.level.as_deref())
    }
}

#[derive(Debug)]
struct Member {
    set_id: i64,
    metric: String,
    old_period_us: Option<i64>,
    new_period_us: Option<i64>,
    old_window_us: Option<i64>,
    new_window_us: Option<i64>,
}

from_row!(Member { set_id, metric, old_period_us, new_period_us, old_window_us, new_window_us });

#[derive(Debug)]
pub(super) struct PlanChanges {
    events: Vec<Event>,
    sets: HashMap<i64, Vec<Member>>,
}

impl Reader {
    /// Returns the changes of the sampling plan of a job, in the order of their times.
    pub fn plan_changes(&mut self, job_key: i64) -> Result<Vec<PlanChangeRow>, StoreError> {
        Ok(self.plan_change_events(job_key)?.rows().collect())
    }

    pub(super) fn plan_change_events(&mut self, job_key: i64) -> Result<PlanChanges, StoreError> {
        let statement = format!(
            "SELECT time, node, level, cause, actor, until, set_id FROM plan_change_event
             WHERE job_key = $1 AND cause <> '{REFUSED}'"
        );
        let events = self.rows::<Event>(&statement, &[job_key.into()])?;
        let sets: BTreeSet<i64> = events.iter().map(|event| event.set_id).collect();
        let members = self.members_of_sets(&sets.into_iter().collect::<Vec<_>>())?;
        Ok(PlanChanges::new(events, members))
    }

    /// Returns the members of sets, which are named: a planner might look for the events of each member,
    /// which all jobs share.
    fn members_of_sets(&mut self, sets: &[i64]) -> Result<Vec<Member>, StoreError> {
        if sets.is_empty() {
            return Ok(Vec::new());
        }
        let statement = format!(
            "SELECT set_id, metric, old_period_us, new_period_us, old_window_us, new_window_us
             FROM plan_change_set_member WHERE set_id {}",
            (self.dialect().is_one_of)(sets)
        );
        self.rows(&statement, &[])
    }
}

impl PlanChanges {
    fn new(mut events: Vec<Event>, members: Vec<Member>) -> Self {
        events.sort_by(|one, other| one.order().cmp(&other.order()));
        let mut sets: HashMap<i64, Vec<Member>> = HashMap::new();
        for member in members {
            sets.entry(member.set_id).or_default().push(member);
        }
        Self { events, sets }
    }

    /// Returns the changes, sorted by time, node, level and metric; those of the whole job before those of
    /// its steps and tasks.
    pub(super) fn rows(&self) -> impl Iterator<Item = PlanChangeRow> {
        let alike = self.events.chunk_by(|one, next| one.order() == next.order());
        alike.flat_map(|events| {
            let mut changes: Vec<(&Event, &Member)> = Vec::new();
            for event in events {
                changes
                    .extend(self.sets.get(&event.set_id).into_iter().flatten().map(|member| (event, member)));
            }
            changes.sort_by(|one, other| one.1.metric.cmp(&other.1.metric));
            changes.into_iter().map(|(event, member)| PlanChangeRow {
                time_ns: event.time_ns,
                node: event.node.clone(),
                metric: member.metric.clone(),
                old_period_us: member.old_period_us,
                new_period_us: member.new_period_us,
                old_window_us: member.old_window_us,
                new_window_us: member.new_window_us,
                cause: event.cause.clone(),
                actor: event.actor.clone(),
                until_ns: event.until_ns,
                level: event.level.clone(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ns: i64, node: &str, level: Option<&str>, cause: &str, set_id: i64) -> Event {
        Event {
            time_ns,
            node: node.to_owned(),
            level: level.map(str::to_owned),
            cause: cause.to_owned(),
            actor: None,
            until_ns: None,
            set_id,
        }
    }

    fn member(set_id: i64, metric: &str) -> Member {
        Member {
            set_id,
            metric: metric.to_owned(),
            old_period_us: None,
            new_period_us: Some(1),
            old_window_us: None,
            new_window_us: None,
        }
    }

    #[test]
    fn changes_are_sorted_by_time_node_level_and_metric() {
        let events = vec![
            event(2, "a", None, "baseline", 1),
            event(1, "b", Some("step"), "lease", 2),
            event(1, "b", None, "baseline", 1),
            event(1, "b", None, "lease", 2),
            event(1, "a", None, "baseline", 3),
        ];
        let members = vec![member(1, "x"), member(1, "z"), member(2, "y")];
        let rows = PlanChanges::new(events, members);
        let found: Vec<_> = rows
            .rows()
            .map(|row| {
                format!(
                    "{} {} {} {} {}",
                    row.time_ns,
                    row.node,
                    row.level.unwrap_or_default(),
                    row.metric,
                    row.cause
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                "1 b  x baseline",
                "1 b  y lease",
                "1 b  z baseline",
                "1 b step y lease",
                "2 a  x baseline",
                "2 a  z baseline"
            ]
        );
    }
}
