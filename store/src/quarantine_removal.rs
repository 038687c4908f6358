//! The removal of samples in quarantine. Their times say nothing about their age: it is counted from their arrival.

use tracing::info;

use crate::StoreError;
use crate::backend::Connection;
use crate::error::Context;
use crate::stop::Stop;
use crate::value::{Row, Value};

const ACTION: &str = "remove samples in quarantine";

/// The number of samples that one transaction examines. Those of a series are examined together.
const STEP_ROWS: u32 = 10_000;

/// Removes the samples that arrived before `before_us`, except for those of jobs that are kept at `now_us`.
pub(crate) fn remove(
    connection: &mut dyn Connection,
    stop: &Stop,
    before_us: i64,
    now_us: i64,
) -> Result<(), StoreError> {
    let next = format!(
        "SELECT series_id FROM samples_quarantine WHERE series_id > $1 ORDER BY series_id LIMIT 1 OFFSET {STEP_ROWS}"
    );
    let now = Value::Time(now_us);
    let (mut last_id, mut removed) = (i64::MIN, 0);
    while !stop.is_requested() {
        let end = connection.query(&next, &[last_id.into()]).context(ACTION)?.first_mut().map(Row::integer);
        let range = [last_id.into(), end.unwrap_or(i64::MAX).into(), Value::Time(before_us), now.clone()];
        connection.begin().context(ACTION)?;
        let rows = connection.execute(DELETE, &range).context(ACTION)?;
        connection.commit().context(ACTION)?;
        removed += rows;
        let Some(end) = end else { break };
        last_id = end;
    }
    if removed > 0 {
        info!("removed {removed} samples in quarantine");
    }
    Ok(())
}

/// Removes the samples of the series after `$1` up to `$2` that arrived before `$3`. `$4` is the present.
const DELETE: &str =
    "DELETE FROM samples_quarantine WHERE series_id > $1 AND series_id <= $2 AND received < $3
     AND series_id NOT IN (SELECT series_id FROM series WHERE job_key IN (
         SELECT job_key FROM kept_job WHERE until IS NULL OR until > $4))";
