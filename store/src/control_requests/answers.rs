//! Answers of sessions to a request.

use polymeter_proto::series::SessionId;

use super::rows::{AnswerRow, AnsweringSession};
use super::table::ControlTable;
use super::wanted::rows;
use crate::StoreError;
use crate::error::Context;
use crate::value::{Batch, Column, ColumnType, Value};

const ANSWER: [Column; 5] = [
    ("number", ColumnType::Integer),
    ("session_id", ColumnType::Text),
    ("node", ColumnType::Text),
    ("answer", ColumnType::Text),
    ("answered", ColumnType::Time),
];

impl ControlTable {
    /// Returns the sessions, among `sessions`, to which this collector shall forward a request. A request
    /// without a lasting effect is forwarded only to the sessions that were wanted, and only by the first
    /// collector that claims them.
    pub fn claim(
        &mut self,
        number: i64,
        sessions: &[AnsweringSession],
        collector_id: &str,
        is_lasting: bool,
    ) -> Result<Vec<SessionId>, StoreError> {
        const ACTION: &str = "forward a request";
        let batch = rows(number, sessions, &collector_id.into());
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let connection = &mut *self.connection;
        connection.begin().context(ACTION)?;
        let statement = if is_lasting {
            "INSERT INTO control_answer (number, session_id, node, collector_id)
             SELECT number, session_id, node, collector_id FROM {new} WHERE true
             ON CONFLICT (number, session_id) DO UPDATE SET collector_id = excluded.collector_id
             WHERE control_answer.answered IS NULL"
        } else {
            "UPDATE control_answer SET collector_id = new.collector_id FROM {new}
             WHERE control_answer.number = new.number AND control_answer.session_id = new.session_id
                 AND control_answer.collector_id IS NULL"
        };
        connection.execute_batch(statement, &batch).context(ACTION)?;
        let select = "SELECT session_id FROM control_answer
             WHERE number = $1 AND collector_id = $2 AND answered IS NULL AND answer IS NULL";
        let claimed = connection.select(select, &[number.into(), collector_id.into()]).context(ACTION)?;
        connection.commit().context(ACTION)?;
        Ok(claimed)
    }

    /// Stores answers at `now_us`, and keeps the request until `until_us`, the end of the granted leases, if
    /// that is later. Drops answers to a request that was removed.
    pub fn answer(
        &mut self,
        number: i64,
        answers: &[AnswerRow],
        until_us: Option<i64>,
        now_us: i64,
    ) -> Result<(), StoreError> {
        const ACTION: &str = "store answers";
        let batch = Batch::new(
            &ANSWER,
            answers.iter().map(|given| {
                [
                    number.into(),
                    given.session.to_string().into(),
                    given.node.clone().into(),
                    given.answer.clone().into(),
                    if given.is_final { Value::Time(now_us) } else { Value::Null },
                ]
            }),
        );
        if batch.is_empty() {
            return Ok(());
        }
        let connection = &mut *self.connection;
        connection.begin().context(ACTION)?;
        connection
            .execute_batch(
                "INSERT INTO control_answer (number, session_id, node, answer, answered)
                 SELECT number, session_id, node, answer, answered FROM {new}
                 WHERE EXISTS (SELECT 1 FROM control_request AS request WHERE request.number = new.number)
                 ON CONFLICT (number, session_id) DO UPDATE SET
                     answer = coalesce(excluded.answer, control_answer.answer),
                     answered = coalesce(excluded.answered, control_answer.answered)",
                &batch,
            )
            .context(ACTION)?;
        if let Some(until_us) = until_us {
            let update = "UPDATE control_request SET expires = $2 WHERE number = $1 AND expires < $2";
            connection.execute(update, &[number.into(), Value::time(until_us)]).context(ACTION)?;
        }
        connection.commit().context(ACTION)
    }

    /// Returns the answers with a text, and the time until which the request is kept, in microseconds since
    /// the epoch.
    pub fn answers(&mut self, number: i64) -> Result<Vec<AnswerRow>, StoreError> {
        let select = "SELECT session_id, node, answer, answered IS NOT NULL FROM control_answer
             WHERE number = $1 AND answer IS NOT NULL";
        self.connection.select(select, &[number.into()]).context("read answers")
    }
}
