//! Changes of plan, including refused requests.
//!
//! The changes of one time, node, job, level and cause are an event: a row that refers to a set of metrics
//! with their periods. Jobs share these sets, since a job begins with the periods of the baseline.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::ledger::Cause;
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::step_level::StepLevel;

use super::progress::key_of;
use super::shared_lists::{self, ListTables, Lists};
use crate::accepted::{Accepted, JobRecord, REFUSED};
use crate::backend::Connection;
use crate::bounds::stored_count;
use crate::digest::digest;
use crate::error::DatabaseError;
use crate::value::{Batch, Column, ColumnType, Value};

/// Reason of a period that is longer than requested because of [`Cause::RefreshInterval`].
const REFRESHED: &str = "the hardware does not update it more often";

const EVENT: [Column; 10] = [
    ("time", ColumnType::Time),
    ("until", ColumnType::Time),
    ("job_key", ColumnType::Integer),
    ("set_id", ColumnType::Integer),
    ("node", ColumnType::Text),
    ("job_id", ColumnType::Text),
    ("cause", ColumnType::Text),
    ("actor", ColumnType::Text),
    ("reason", ColumnType::Text),
    ("level", ColumnType::Text),
];

const SETS: ListTables<7> = ListTables {
    table: "plan_change_set",
    id: "set_id",
    columns: &[
        ("set_id", ColumnType::Integer),
        ("position", ColumnType::Integer),
        ("metric", ColumnType::Text),
        ("old_period_us", ColumnType::Integer),
        ("new_period_us", ColumnType::Integer),
        ("old_window_us", ColumnType::Integer),
        ("new_window_us", ColumnType::Integer),
    ],
    insert_members: "INSERT INTO plan_change_set_member
            (set_id, position, metric, old_period_us, new_period_us, old_window_us, new_window_us)
        SELECT set_id, position, metric, old_period_us, new_period_us, old_window_us, new_window_us FROM {new}",
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event<'a> {
    at_us: i64,
    node: &'a str,
    job_key: Option<i64>,
    job_id: Option<&'a str>,
    cause: &'a str,
    actor: Option<&'a str>,
    until_us: Option<i64>,
    reason: Option<&'a str>,
    level: Option<&'a str>,
}

/// Metric with its old and its new sampling.
type Change<'a> = (&'a str, Micros, Micros);

/// Period and length of the windows, in microseconds.
type Micros = (Option<i64>, Option<i64>);

/// Inserts the changes of plan of `frames`, including refused requests.
pub(super) fn insert(connection: &mut dyn Connection, frames: &[&Accepted]) -> Result<u64, DatabaseError> {
    let events = events(frames);
    if events.is_empty() {
        return Ok(0);
    }
    let mut sets: Lists<'_, 7> = BTreeMap::new();
    let mut digests = Vec::with_capacity(events.len());
    for changes in events.values() {
        let key = digest(&serde_json::json!(changes).to_string());
        sets.entry(key.clone()).or_insert_with(|| {
            changes
                .iter()
                .map(|(metric, old, new)| {
                    let [old, new, old_window, new_window] = [old.0, new.0, old.1, new.1].map(Value::from);
                    let metric = (*metric).to_owned().into();
                    [Value::Null, Value::Null, metric, old, new, old_window, new_window]
                })
                .collect()
        });
        digests.push(key);
    }
    let set_ids = shared_lists::ids(connection, &SETS, sets)?;
    let rows = events.keys().zip(&digests).map(|(event, digest)| {
        [
            Value::time(event.at_us),
            event.until_us.map_or(Value::Null, Value::time),
            event.job_key.into(),
            set_ids.get(digest).copied().into(),
            event.node.into(),
            event.job_id.into(),
            event.cause.into(),
            event.actor.into(),
            event.reason.into(),
            event.level.into(),
        ]
    });
    connection.execute_batch(
        "INSERT INTO plan_change_event (time, until, job_key, set_id, node, job_id, cause, actor, reason, level)
         SELECT time, until, job_key, set_id, node, job_id, cause, actor, reason, level FROM {new}",
        &Batch::new(&EVENT, rows),
    )
}

/// Returns the events of `frames`, each with its changes in a fixed order.
fn events<'a>(frames: &[&'a Accepted]) -> BTreeMap<Event<'a>, Vec<Change<'a>>> {
    let job_id = |job: Option<&'a Arc<JobRecord>>| job.map(|job| job.descriptor.job_id.as_str());
    let mut events: BTreeMap<Event<'a>, Vec<Change<'a>>> = BTreeMap::new();
    for frame in frames {
        let node = frame.session.descriptor.node.as_str();
        for (job, change) in &frame.plan_changes {
            let event = Event {
                at_us: change.at_us,
                node,
                job_key: key_of(job.as_ref()),
                job_id: job_id(job.as_ref()),
                cause: change.cause.as_str(),
                actor: change.by.as_ref().map(|user| user.as_str()),
                until_us: change.until_us,
                reason: (change.cause == Cause::RefreshInterval).then_some(REFRESHED),
                level: change.level.map(StepLevel::as_str),
            };
            let change = (change.metric.as_str(), micros(change.old), micros(change.new));
            events.entry(event).or_default().push(change);
        }
        for (job, refused) in &frame.refused_requests {
            let event = Event {
                at_us: refused.at_us,
                node,
                job_key: key_of(Some(job)),
                job_id: job_id(Some(job)),
                cause: REFUSED,
                actor: refused.by.as_ref().map(|user| user.as_str()),
                until_us: None,
                reason: Some(refused.reason.as_str()),
                level: None,
            };
            let change = (refused.request.as_str(), (None, None), micros(refused.period));
            events.entry(event).or_default().push(change);
        }
    }
    events.values_mut().for_each(|changes| changes.sort_unstable());
    events
}

fn micros(sampling: Option<Sampling>) -> Micros {
    let stored = |period: Period| stored_count(period.as_micros());
    let window = sampling.and_then(|sampling| sampling.window);
    (sampling.map(|sampling| stored(sampling.period)), window.map(stored))
}
