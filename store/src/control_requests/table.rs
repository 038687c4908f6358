//! Connection to the tables, and the requests.

use polymeter_proto::series::SessionId;

use super::rows::{NewControlRequest, Replaced, StoredControlRequest, Taken};
use super::wanted;
use crate::backend::Connection;
use crate::error::{Context, DatabaseError};
use crate::removal::requests;
use crate::value::Value;
use crate::{StoreError, StoreUrl};

/// Stored requests that still have an effect. Beyond these, and [`BYTES_MAX`], those that expire first are
/// removed.
const REQUESTS_MAX: usize = 4096;

/// Bytes of these requests.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Time for which a replaced request stays: longer than its user waits for answers.
const REPLACED_US: i64 = 60_000_000;

const ROWS: usize = 256;

const COLUMNS: &str =
    "old.number, old.collector_id, old.job_id, old.uid, old.line, old.is_lasting, old.at, old.expires";

/// Connection to the tables. After an error its state is unknown, and it must be dropped.
#[derive(Debug)]
pub struct ControlTable {
    pub(super) connection: Box<dyn Connection>,
}

impl ControlTable {
    /// Connects to a store of this version, and changes nothing.
    pub fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Ok(Self { connection: url.open_current_version()?.connection })
    }

    /// Stores a request at `now_us`. `replaces` gets the lasting requests of the job, the oldest first, and
    /// selects what the new one replaces.
    pub fn take(
        &mut self,
        new: &NewControlRequest,
        now_us: i64,
        replaces: impl FnOnce(&[StoredControlRequest]) -> Replaced,
    ) -> Result<Taken, StoreError> {
        const ACTION: &str = "store a request";
        let connection = &mut *self.connection;
        connection.begin().context(ACTION)?;
        connection.lock_requests().context(ACTION)?;
        let find = "SELECT number, at FROM control_request WHERE request_id = $1";
        let stored = connection.select_first(find, &[new.request_id.as_str().into()]).context(ACTION)?;
        if let Some(taken) = stored {
            connection.commit().context(ACTION)?;
            return Ok(taken);
        }
        let earlier = pending(connection, &new.request.job_id, now_us).context(ACTION)?;
        let replaced = if new.request.is_lasting { replaces(&earlier) } else { Replaced::default() };
        for number in &replaced.numbers {
            // Its user may still wait for answers.
            let update = "UPDATE control_request SET is_replaced = true,
                     expires = CASE WHEN expires > $2 THEN $2 ELSE expires END WHERE number = $1";
            let expires = Value::Time(now_us.saturating_add(REPLACED_US));
            connection.execute(update, &[(*number).into(), expires]).context(ACTION)?;
        }
        let after_us = earlier.iter().map(|earlier| earlier.request.at_us.saturating_add(1)).max();
        let at_us = after_us.filter(|_| new.request.is_lasting).unwrap_or(i64::MIN).max(new.request.at_us);
        let expires_us = replaced.until_us.unwrap_or(i64::MIN).max(new.request.expires_us);
        insert(connection, new, (at_us, expires_us), now_us).context(ACTION)?;
        let taken: Taken = connection.select_one(find, &[new.request_id.as_str().into()]).context(ACTION)?;
        wanted::insert_wanted(connection, taken.number, &new.wanted).context(ACTION)?;
        requests::bound(connection, now_us, REQUESTS_MAX, BYTES_MAX).context(ACTION)?;
        connection.commit().context(ACTION)?;
        Ok(taken)
    }

    /// Returns the requests after `number` that have an effect at `now_us`, in their order: at most some
    /// hundreds.
    pub fn after(&mut self, number: i64, now_us: i64) -> Result<Vec<StoredControlRequest>, StoreError> {
        let select = format!(
            "SELECT {COLUMNS} FROM control_request AS old
             WHERE old.number > $1 AND old.expires > $2 AND NOT old.is_replaced ORDER BY old.number LIMIT {ROWS}"
        );
        self.connection.select(&select, &[number.into(), Value::Time(now_us)]).context("read requests")
    }

    /// Returns the lasting requests about a job that a session has not answered finally, in their order.
    pub fn unanswered(
        &mut self,
        job_id: &str,
        session: SessionId,
        now_us: i64,
    ) -> Result<Vec<StoredControlRequest>, StoreError> {
        let select = format!(
            "SELECT {COLUMNS} FROM control_request AS old
             WHERE old.job_id = $1 AND old.expires > $2 AND old.is_lasting AND NOT old.is_replaced
                 AND NOT EXISTS (SELECT 1 FROM control_answer AS given WHERE given.number = old.number
                                 AND given.session_id = $3 AND given.answered IS NOT NULL)
             ORDER BY old.number"
        );
        let parameters = [job_id.into(), Value::Time(now_us), session.to_string().into()];
        self.connection.select(&select, &parameters).context("read requests")
    }

    /// Forgets the texts of a request's answers, since the user has them. Sets the time after which it has no
    /// effect, if there is a new one.
    pub fn settle(&mut self, number: i64, expires_us: Option<i64>) -> Result<(), StoreError> {
        const ACTION: &str = "store the end of a request";
        let connection = &mut *self.connection;
        connection.begin().context(ACTION)?;
        if let Some(expires_us) = expires_us {
            let update = "UPDATE control_request SET expires = $2 WHERE number = $1";
            connection.execute(update, &[number.into(), Value::time(expires_us)]).context(ACTION)?;
        }
        let forget = "UPDATE control_answer SET answer = NULL WHERE number = $1 AND answer IS NOT NULL";
        connection.execute(forget, &[number.into()]).context(ACTION)?;
        connection.commit().context(ACTION)
    }

    /// Removes a request without a lasting effect, and its answers.
    pub fn remove(&mut self, number: i64) -> Result<(), StoreError> {
        const ACTION: &str = "remove a request";
        let connection = &mut *self.connection;
        connection.begin().context(ACTION)?;
        requests::delete(connection, &[number]).context(ACTION)?;
        connection.commit().context(ACTION)
    }
}

/// Returns the lasting requests about a job that have an effect at `now_us`, the oldest first.
fn pending(
    connection: &mut dyn Connection,
    job_id: &str,
    now_us: i64,
) -> Result<Vec<StoredControlRequest>, DatabaseError> {
    let select = format!(
        "SELECT {COLUMNS} FROM control_request AS old
         WHERE old.job_id = $1 AND old.expires > $2 AND old.is_lasting AND NOT old.is_replaced ORDER BY old.number"
    );
    connection.select(&select, &[job_id.into(), Value::Time(now_us)])
}

fn insert(
    connection: &mut dyn Connection,
    NewControlRequest { request_id, request, .. }: &NewControlRequest,
    (at_us, expires_us): (i64, i64),
    now_us: i64,
) -> Result<(), DatabaseError> {
    let statement = "INSERT INTO control_request
             (request_id, collector_id, job_id, uid, line, is_lasting, at, created, expires)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let parameters = [
        request_id.as_str().into(),
        request.collector_id.as_str().into(),
        request.job_id.as_str().into(),
        i64::from(request.uid).into(),
        request.line.as_str().into(),
        request.is_lasting.into(),
        Value::time(at_us),
        Value::Time(now_us),
        Value::time(expires_us),
    ];
    connection.execute(statement, &parameters).map(drop)
}
