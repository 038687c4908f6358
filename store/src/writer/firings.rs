//! Triggers that fired.

use polymeter_proto::ledger::Firing;
use polymeter_proto::series::Identifier;

use super::progress::key_of;
use crate::accepted::Accepted;
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::value::{Batch, Column, ColumnType, Value};

const FIRING: [Column; 10] = [
    ("trigger_id", ColumnType::Integer),
    ("job_key", ColumnType::Integer),
    ("node", ColumnType::Text),
    ("time", ColumnType::Time),
    ("rule", ColumnType::Text),
    ("actor", ColumnType::Text),
    ("started", ColumnType::Time),
    ("ended", ColumnType::Time),
    ("why", ColumnType::Text),
    ("actions", ColumnType::Text),
];

pub(crate) type Row<'a> = [Value<'a>; 10];

pub(super) fn insert(connection: &mut dyn Connection, frames: &[&Accepted]) -> Result<(), DatabaseError> {
    let mut rows = Vec::new();
    for frame in frames {
        for (job, firing) in &frame.fired {
            let Some(job_key) = key_of(Some(job)) else { continue };
            rows.push(row(job_key, &frame.session.descriptor.node, firing));
        }
    }
    insert_rows(connection, rows)
}

pub(crate) fn row<'a>(job_key: i64, node: &'a Identifier, firing: &'a Firing) -> Row<'a> {
    let [started, ended] = firing.keeps_us.map_or([Value::Null, Value::Null], |(begin_us, end_us)| {
        [Value::time(begin_us), Value::time(end_us)]
    });
    [
        firing.trigger.cast_signed().into(),
        job_key.into(),
        node.as_str().into(),
        Value::time(firing.at_us),
        firing.rule.as_str().into(),
        firing.by.as_ref().map(|by| by.as_str()).into(),
        started,
        ended,
        firing.why.as_str().into(),
        firing.actions.as_str().into(),
    ]
}

pub(crate) fn insert_rows(connection: &mut dyn Connection, rows: Vec<Row<'_>>) -> Result<(), DatabaseError> {
    if rows.is_empty() {
        return Ok(());
    }
    let columns = "trigger_id, job_key, node, time, rule, actor, started, ended, why, actions";
    let statement = format!("INSERT INTO trigger_firing ({columns}) SELECT {columns} FROM {{new}}");
    connection.execute_batch(&statement, &Batch::new(&FIRING, rows)).map(drop)
}
