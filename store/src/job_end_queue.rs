//! Queue of ends of jobs for which a collector has to run a command.
//!
//! A writer adds the end of a job in the transaction that stores it. A collector claims it for a limited
//! time, and removes it after the command. So no end is lost with a collector, and of several collectors one
//! runs the command.

use crate::backend::Connection;
use crate::error::{Context, DatabaseError};
use crate::removal::clock_check;
use crate::row::{TimeUs, from_row};
use crate::value::{Batch, Column, ColumnType, Value};
use crate::{StoreError, StoreUrl, removal};

/// Claims of an end, after which it is dropped: perhaps it ends the collector each time.
const ATTEMPTS_MAX: i64 = 3;

const KEY: [Column; 1] = [("job_key", ColumnType::Integer)];

const TIMED: [Column; 2] = [("job_key", ColumnType::Integer), ("at", ColumnType::Time)];

/// Condition that the end `old` was noticed before `$1`, and is not claimed at `$2`.
const IS_DUE: &str = "old.noticed <= $1 AND (old.claimed_until IS NULL OR old.claimed_until <= $2)";

/// True if a writer adds the ends of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndQueue {
    On,
    Off,
}

/// End for which this collector runs the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimedEnd {
    pub job_key: i64,
    /// Time at which the end was stored, in microseconds since the epoch.
    noticed_us: i64,
}

from_row!(ClaimedEnd { job_key, noticed_us: TimeUs });

#[derive(Debug, Default)]
pub struct Claims {
    /// Oldest first.
    pub ends: Vec<ClaimedEnd>,
    /// Jobs that were claimed too often, and are dropped.
    pub dropped: Vec<i64>,
}

/// Connection to the queue. After an error its state is unknown, and it must be dropped.
#[derive(Debug)]
pub struct JobEndQueue(Box<dyn Connection>);

/// Adds the ends of jobs, in the transaction that stores them. An end that waits is noticed anew.
pub(crate) fn add(connection: &mut dyn Connection, mut keys: Vec<i64>) -> Result<(), DatabaseError> {
    if keys.is_empty() {
        return Ok(());
    }
    keys.sort_unstable();
    let TimeUs(now_us) = connection.select_one("SELECT {now}", &[])?;
    connection.execute_batch(
        "INSERT INTO job_end (job_key, noticed) SELECT job_key, at FROM {new} WHERE true
         ON CONFLICT (job_key) DO UPDATE SET noticed = excluded.noticed",
        &timed(keys.into_iter(), now_us),
    )?;
    Ok(())
}

impl JobEndQueue {
    /// Connects to a store of this version, and changes nothing.
    pub fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Ok(Self(url.open_current_version()?.connection))
    }

    pub fn count(&mut self) -> Result<u64, StoreError> {
        self.0.select_one("SELECT count(*) FROM job_end", &[]).context("count the ends of jobs")
    }

    /// Claims at most `limit` ends that were stored `delay_us` ago, for `lease_us`. Removes a job that runs
    /// again from the queue: its next end is added again.
    pub fn claim(&mut self, limit: usize, delay_us: i64, lease_us: i64) -> Result<Claims, StoreError> {
        const ACTION: &str = "claim ends of jobs";
        let connection = &mut *self.0;
        let now_us = removal::now_us(connection)?;
        let parameters = [Value::Time(now_us.saturating_sub(delay_us)), Value::Time(now_us)];
        // Most of the time there is none: a transaction of SQLite would lock the file.
        let is_one = format!("SELECT count(*) FROM job_end AS old WHERE {IS_DUE}");
        let due: u64 = connection.select_one(&is_one, &parameters).context(ACTION)?;
        if due == 0 || limit == 0 {
            return Ok(Claims::default());
        }
        connection.begin().context(ACTION)?;
        let select = format!(
            "SELECT old.job_key, old.noticed, old.attempts,
                 (SELECT job.ended FROM job WHERE job.job_key = old.job_key) IS NOT NULL
             FROM job_end AS old WHERE {IS_DUE} ORDER BY old.noticed, old.job_key LIMIT {limit}{{skip_locked}}"
        );
        let select = connection.dialect().fill(&select);
        let rows: Vec<(ClaimedEnd, i64, bool)> = connection.select(&select, &parameters).context(ACTION)?;
        let (mut claims, mut resumed) = (Claims::default(), Vec::new());
        for (end, attempts, has_ended) in rows {
            if !has_ended {
                resumed.push(end.job_key);
            } else if attempts >= ATTEMPTS_MAX {
                claims.dropped.push(end.job_key);
            } else {
                claims.ends.push(end);
            }
        }
        let until_us = now_us.saturating_add(lease_us);
        connection
            .execute_batch(
                "UPDATE job_end SET claimed_until = new.at, attempts = job_end.attempts + 1
                 FROM {new} WHERE job_end.job_key = new.job_key",
                &timed(claims.ends.iter().map(|end| end.job_key), until_us),
            )
            .context(ACTION)?;
        resumed.extend(&claims.dropped);
        delete(connection, &resumed).context(ACTION)?;
        connection.commit().context(ACTION)?;
        Ok(claims)
    }

    /// Removes an end after its command. If the job has ended once more meanwhile, that end stays.
    pub fn finish(&mut self, end: &ClaimedEnd) -> Result<(), StoreError> {
        const ACTION: &str = "remove the end of a job";
        let parameters = [end.job_key.into(), Value::Time(end.noticed_us)];
        self.0.begin().context(ACTION)?;
        self.0
            .execute("DELETE FROM job_end WHERE job_key = $1 AND noticed = $2", &parameters)
            .context(ACTION)?;
        let unclaim =
            "UPDATE job_end SET claimed_until = NULL, attempts = 0 WHERE job_key = $1 AND noticed <> $2";
        self.0.execute(unclaim, &parameters).context(ACTION)?;
        self.0.commit().context(ACTION)
    }

    /// Leaves an end claimed for `delay_us`, after which it is tried again.
    pub fn postpone(&mut self, end: &ClaimedEnd, delay_us: i64) -> Result<(), StoreError> {
        const ACTION: &str = "postpone the end of a job";
        let until_us = removal::now_us(&mut *self.0)?.saturating_add(delay_us);
        let update = "UPDATE job_end SET claimed_until = $2 WHERE job_key = $1";
        self.0.begin().context(ACTION)?;
        self.0.execute(update, &[end.job_key.into(), Value::Time(until_us)]).context(ACTION)?;
        self.0.commit().context(ACTION)
    }

    /// Returns an end to the queue, whose command did not end since the collector stops.
    pub fn release(&mut self, end: &ClaimedEnd) -> Result<(), StoreError> {
        const ACTION: &str = "return the end of a job";
        let update = "UPDATE job_end SET claimed_until = NULL, attempts = attempts - 1 WHERE job_key = $1";
        self.0.begin().context(ACTION)?;
        self.0.execute(update, &[end.job_key.into()]).context(ACTION)?;
        self.0.commit().context(ACTION)
    }

    /// Drops the oldest ends that are not claimed, except for `keep` of them, and those stored more than
    /// `age_us` ago. Returns their number.
    pub fn drop_old(&mut self, keep: u64, age_us: i64) -> Result<u64, StoreError> {
        const ACTION: &str = "drop ends of jobs";
        let connection = &mut *self.0;
        let now_us = removal::now_us(connection)?;
        let is_free = "(old.claimed_until IS NULL OR old.claimed_until <= $1)";
        let oldest = format!(
            "SELECT count(*), coalesce(sum(CASE WHEN old.noticed < $2 THEN 1 ELSE 0 END), 0) FROM job_end AS old WHERE {is_free}"
        );
        let oldest_us = clock_check::time_us(connection)?.saturating_sub(age_us);
        let parameters = [Value::Time(now_us), Value::Time(oldest_us)];
        let (free, expired): (u64, u64) = connection.select_one(&oldest, &parameters).context(ACTION)?;
        let excess = free.saturating_sub(keep).max(expired);
        if excess == 0 {
            return Ok(0);
        }
        connection.begin().context(ACTION)?;
        let select = format!(
            "SELECT old.job_key FROM job_end AS old WHERE {is_free} ORDER BY old.noticed, old.job_key LIMIT {excess}{{skip_locked}}"
        );
        let select = connection.dialect().fill(&select);
        let keys: Vec<i64> = connection.select(&select, &[Value::Time(now_us)]).context(ACTION)?;
        delete(connection, &keys).context(ACTION)?;
        connection.commit().context(ACTION)?;
        Ok(keys.len() as u64)
    }
}

fn delete(connection: &mut dyn Connection, keys: &[i64]) -> Result<(), DatabaseError> {
    let keys = Batch::new(&KEY, keys.iter().map(|key| [(*key).into()]));
    if !keys.is_empty() {
        connection
            .execute_batch("DELETE FROM job_end WHERE job_key IN (SELECT job_key FROM {new})", &keys)?;
    }
    Ok(())
}

fn timed(keys: impl Iterator<Item = i64>, at_us: i64) -> Batch<'static> {
    Batch::new(&TIMED, keys.map(|key| [key.into(), Value::Time(at_us)]))
}
