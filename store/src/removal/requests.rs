//! Removal of requests without an effect, and of those for which there is no room.

use super::clock_check;
use super::old_rows::{ALL, OldRows};
use crate::StoreError;
use crate::backend::{Connection, Task};
use crate::error::{Context, DatabaseError};
use crate::stop::Stop;
use crate::value::Value;

pub(crate) const REMOVE: Task = Task { name: "remove requests that have expired", rounds: 1, run: remove };

/// Time for which a request stays after it has expired: its answers may be under way.
const MARGIN_US: i64 = 60_000_000;

/// Requests that expired before `{before}`, with their answers.
const REQUESTS: OldRows = OldRows {
    table: "control_request",
    key: "number",
    of: "expires < {before}",
    delete: &[("control_answer", &["number {keys}"]), ("control_request", &["number {keys}"])],
    ..ALL
};

fn remove(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    let before_us = clock_check::time_us(connection)? - MARGIN_US;
    let removed = REQUESTS.remove(connection, &[("{before}", before_us)], &[], stop);
    removed.map(drop).context("remove requests that have expired")
}

/// Removes requests without an effect at `now_us` and then those that expire first, until the others are
/// within both limits.
pub(crate) fn bound(
    connection: &mut dyn Connection,
    now_us: i64,
    requests_max: usize,
    bytes_max: u64,
) -> Result<(), DatabaseError> {
    let count = "SELECT count(*), coalesce(sum(length(line)), 0) FROM control_request";
    let (requests, bytes): (usize, u64) = connection.select_one(count, &[])?;
    if requests <= requests_max && bytes <= bytes_max {
        return Ok(());
    }
    // Those that have expired come last.
    let select = "SELECT number, length(line), expires >= $1 FROM control_request
         ORDER BY expires DESC, number DESC";
    let expires = Value::Time(now_us.saturating_sub(MARGIN_US));
    let (mut bytes, mut excess) = (0_u64, Vec::new());
    for (position, row) in connection.select(select, &[expires])?.into_iter().enumerate() {
        let (number, length, has_effect): (i64, u64, bool) = row;
        bytes = bytes.saturating_add(length);
        if !has_effect || position >= requests_max || bytes > bytes_max {
            excess.push(number);
        }
    }
    delete(connection, &excess)
}

pub(crate) fn delete(connection: &mut dyn Connection, numbers: &[i64]) -> Result<(), DatabaseError> {
    REQUESTS.delete_keys(connection, numbers)
}
