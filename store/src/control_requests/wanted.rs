//! Sessions that shall answer a request.

use super::rows::AnsweringSession;
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::value::{Batch, Column, ColumnType, Value};

const WANTED: [Column; 4] = [
    ("number", ColumnType::Integer),
    ("session_id", ColumnType::Text),
    ("node", ColumnType::Text),
    ("collector_id", ColumnType::Text),
];

/// Inserts the sessions that other collectors shall ask.
pub(super) fn insert_wanted(
    connection: &mut dyn Connection,
    number: i64,
    wanted: &[AnsweringSession],
) -> Result<(), DatabaseError> {
    let batch = rows(number, wanted, &Value::Null);
    if !batch.is_empty() {
        connection.execute_batch(
            "INSERT INTO control_answer (number, session_id, node)
             SELECT number, session_id, node FROM {new} WHERE true ON CONFLICT DO NOTHING",
            &batch,
        )?;
    }
    Ok(())
}

pub(super) fn rows<'a>(number: i64, sessions: &'a [AnsweringSession], collector_id: &Value<'a>) -> Batch<'a> {
    Batch::new(
        &WANTED,
        sessions.iter().map(|wanted| {
            [
                number.into(),
                wanted.session.to_string().into(),
                wanted.node.as_str().into(),
                collector_id.clone(),
            ]
        }),
    )
}
