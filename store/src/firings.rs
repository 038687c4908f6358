//! Triggers that fired: which nodes of the job could not keep the interval.

use std::collections::BTreeMap;

use polymeter_proto::ledger::Firing;
use polymeter_proto::series::Identifier;

use crate::backend::Connection;
use crate::error::{Context, DatabaseError};
use crate::value::Value;
use crate::writer::firings::{insert_rows, row};
use crate::{StoreError, StoreUrl, removal};

const DAY_US: i64 = 86_400_000_000;

/// Age at which the last firing of a rule is forgotten: those of a day are counted.
const FORGOTTEN_US: i64 = 2 * DAY_US;

/// Time within which a rule fires once on a node: collectors that find it do not see the same intervals. A
/// node that recovered can be found again after 30 s at the earliest.
const SAME_NODE_US: i64 = 25_000_000;

/// Bounds on the firings of a rule of collectors for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiringBounds {
    pub hold_off_us: i64,
    /// Firings on a day.
    pub firings: u32,
}

/// Connection to the firings. After an error its state is unknown, and it must be dropped.
#[derive(Debug)]
pub struct FiringTable(Box<dyn Connection>);

impl FiringTable {
    /// Connects to a store of this version, and changes nothing.
    pub fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Ok(Self(url.open_current_version()?.connection))
    }

    /// Adds a firing of a collector on a node. Returns false if the rule has fired for this job too recently,
    /// or too often on that day, in any collector.
    pub fn add(
        &mut self,
        job_key: i64,
        node: &Identifier,
        firing: &Firing,
        bounds: FiringBounds,
    ) -> Result<bool, StoreError> {
        const ACTION: &str = "store that a trigger fired";
        let connection = &mut *self.0;
        let now_us = removal::now_us(connection)?;
        connection.begin().context(ACTION)?;
        let is_first = claim(connection, job_key, node, firing, bounds).context(ACTION)?;
        if is_first {
            insert_rows(connection, vec![row(job_key, node, firing)]).context(ACTION)?;
            let old = "DELETE FROM straggler_firing WHERE fired < $1";
            connection.execute(old, &[Value::Time(now_us - FORGOTTEN_US)]).context(ACTION)?;
        }
        connection.commit().context(ACTION)?;
        Ok(is_first)
    }

    /// Records that `asked` nodes of a job were asked to keep an interval, and those that did not, with the
    /// reasons.
    pub fn record(
        &mut self,
        job_key: i64,
        trigger: u64,
        asked: usize,
        missing: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        const ACTION: &str = "record the nodes of a trigger";
        let missing = serde_json::json!(missing).to_string();
        let asked = i64::try_from(asked).unwrap_or(i64::MAX);
        let (trigger, connection) = (trigger.cast_signed(), &mut *self.0);
        let update = "UPDATE trigger_firing SET nodes_asked = $3, nodes_missing = $4
             WHERE job_key = $1 AND trigger_id = $2";
        connection.begin().context(ACTION)?;
        let parameters = [job_key.into(), trigger.into(), asked.into(), missing.as_str().into()];
        connection.execute(update, &parameters).context(ACTION)?;
        connection.commit().context(ACTION)
    }
}

/// Records the last firing of a rule for a job, in one statement, so that one of several collectors succeeds.
/// A collector may find a node long after another one did: earlier firings count as later ones.
fn claim(
    connection: &mut dyn Connection,
    job_key: i64,
    node: &Identifier,
    firing: &Firing,
    bounds: FiringBounds,
) -> Result<bool, DatabaseError> {
    let upsert = "INSERT INTO straggler_firing AS old (job_key, rule, node, fired, day, firings)
         VALUES ($1, $2, $3, $4, $5, 1)
         ON CONFLICT (job_key, rule) DO UPDATE SET node = excluded.node, fired = excluded.fired,
             day = excluded.day, firings = CASE WHEN old.day = excluded.day THEN old.firings + 1 ELSE 1 END
         WHERE (old.fired <= $6 OR old.fired >= $7)
             AND (old.node <> excluded.node OR old.fired <= $8 OR old.fired >= $9)
             AND (old.day <> excluded.day OR old.firings < $10)";
    let at_us = firing.at_us;
    let parameters = [
        job_key.into(),
        firing.rule.as_str().into(),
        node.as_str().into(),
        Value::time(at_us),
        at_us.div_euclid(DAY_US).into(),
        Value::time(at_us.saturating_sub(bounds.hold_off_us)),
        Value::time(at_us.saturating_add(bounds.hold_off_us)),
        Value::time(at_us.saturating_sub(SAME_NODE_US)),
        Value::time(at_us.saturating_add(SAME_NODE_US)),
        i64::from(bounds.firings).into(),
    ];
    Ok(connection.execute(upsert, &parameters)? > 0)
}

#[cfg(test)]
mod tests {
    use polymeter_proto::series::JobHandle;
    use polymeter_proto::text::Text;

    use super::*;
    use crate::sqlite;

    const SECOND_US: i64 = 1_000_000;
    fn firing(at_us: i64) -> Firing {
        Firing {
            job: JobHandle(1),
            trigger: at_us.unsigned_abs(),
            rule: "slow".try_into().unwrap(),
            by: None,
            at_us,
            keeps_us: None,
            notice: false,
            why: Text::of("why"),
            actions: Text::of("none"),
        }
    }

    #[test]
    fn a_rule_fires_once_for_all_collectors() {
        let (_directory, connection) = sqlite::new_store();
        let mut table = FiringTable(connection);
        // What is older than two days is forgotten.
        let day_us = removal::now_us(&mut *table.0).unwrap() / DAY_US * DAY_US;
        let begin_us = day_us + 3600 * SECOND_US;
        let (one, other) = ("n1".try_into().unwrap(), "n2".try_into().unwrap());
        let mut add = |job_key, node, at_s: i64, hold_off_s: i64, firings| {
            let bounds = FiringBounds { hold_off_us: hold_off_s * SECOND_US, firings };
            table.add(job_key, node, &firing(begin_us + at_s * SECOND_US), bounds).unwrap()
        };
        assert!(add(1, &one, 0, 60, 5));
        for at_s in [0, 5, -5, 59, -59] {
            assert!(!add(1, &one, at_s, 60, 5), "{at_s}");
            assert!(!add(1, &other, at_s, 60, 5), "{at_s}");
        }
        assert!(add(2, &one, 0, 60, 5), "of another job");
        assert!(add(1, &other, 60, 60, 5));
        assert!(add(1, &one, 61, 1, 5), "another node, and a short hold-off");
        for at_s in [61, 63, 85] {
            assert!(!add(1, &one, at_s, 1, 5), "the same node");
        }
        assert!(add(1, &one, 86, 1, 5));
        assert!(!add(1, &one, 200, 1, 4), "four on a day");
        assert!(add(1, &one, 86_400, 1, 4), "the next day");
        let stored: i64 = table.0.select_one("SELECT count(*) FROM trigger_firing", &[]).unwrap();
        assert_eq!(stored, 6);
    }
}
