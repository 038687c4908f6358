//! The removal of requests without an effect, and of those for which there is no room.

use crate::StoreError;
use crate::backend::{Connection, Task};
use crate::error::{Context, DatabaseError};
use crate::removal;
use crate::stop::Stop;
use crate::value::{Batch, Column, ColumnType, Row, Value};

/// Removes requests that have expired.
pub(crate) const REMOVE: Task = Task { name: "remove requests that have expired", rounds: 1, run: remove };

/// The time for which a request stays after it has expired, in microseconds: its answers may be under way.
const MARGIN_US: i64 = 60_000_000;

const NUMBER: [Column; 1] = [("number", ColumnType::Integer)];

fn remove(connection: &mut dyn Connection, _stop: &Stop) -> Result<(), StoreError> {
    const ACTION: &str = "remove requests that have expired";
    let before_us = removal::now_us(connection)? - MARGIN_US;
    let select = "SELECT number FROM control_request WHERE expires < $1";
    let expired = numbers(connection, select, &[Value::Time(before_us)]).context(ACTION)?;
    if expired.is_empty() {
        return Ok(());
    }
    connection.begin().context(ACTION)?;
    delete(connection, &expired).context(ACTION)?;
    connection.commit().context(ACTION)
}

/// Removes requests without an effect at `now_us` and then those that expire first, until the others are within both limits.
pub(crate) fn bound(
    connection: &mut dyn Connection,
    now_us: i64,
    requests_max: usize,
    bytes_max: u64,
) -> Result<(), DatabaseError> {
    let count = "SELECT count(*), coalesce(sum(length(line)), 0) FROM control_request";
    let mut counted = connection.query(count, &[])?;
    let is_over = |row: &mut Row| row.count() > requests_max as u64 || row.count() > bytes_max;
    if !counted.first_mut().is_some_and(is_over) {
        return Ok(());
    }
    let select = "SELECT number, length(line) FROM control_request WHERE expires >= $1 ORDER BY expires DESC, number DESC";
    let margin_us = now_us.saturating_sub(MARGIN_US);
    let rows = connection.query(select, &[Value::Time(margin_us)])?;
    let (mut bytes, mut excess) = (0_u64, Vec::new());
    for (position, mut row) in rows.into_iter().enumerate() {
        let number = row.integer();
        bytes = bytes.saturating_add(row.count());
        if position >= requests_max || bytes > bytes_max {
            excess.push(number);
        }
    }
    let select = "SELECT number FROM control_request WHERE expires < $1";
    excess.extend(numbers(connection, select, &[Value::Time(margin_us)])?);
    delete(connection, &excess)
}

fn numbers(
    connection: &mut dyn Connection,
    select: &str,
    parameters: &[Value<'_>],
) -> Result<Vec<i64>, DatabaseError> {
    Ok(connection.query(select, parameters)?.into_iter().map(|mut row| row.integer()).collect())
}

/// Deletes requests and their answers.
pub(crate) fn delete(connection: &mut dyn Connection, numbers: &[i64]) -> Result<(), DatabaseError> {
    let batch = Batch::new(&NUMBER, numbers.iter().map(|number| [(*number).into()]));
    if batch.is_empty() {
        return Ok(());
    }
    for table in ["control_answer", "control_request"] {
        let delete = format!("DELETE FROM {table} WHERE number IN (SELECT number FROM {{new}})");
        connection.execute_batch(&delete, &batch)?;
    }
    Ok(())
}
