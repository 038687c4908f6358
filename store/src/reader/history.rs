//! The ledger, losses, refused requests and marks.

use polymeter_proto::ledger::Tally;
use polymeter_proto::read::{LedgerRow, LossRow, MarkRow, RefusedRow};

use super::connection::{Reader, Selection};
use crate::StoreError;
use crate::accepted::REFUSED;
use crate::value::Row;

impl Reader {
    /// Returns the balance of the due samples of a job.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn ledger(&mut self, job_key: i64) -> Result<Vec<LedgerRow>, StoreError> {
        self.collect(&ledger_of(job_key))
    }

    /// Returns the refused requests of a job's submission, in the order of their times.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn refused_requests(&mut self, job_key: i64) -> Result<Vec<RefusedRow>, StoreError> {
        self.collect(&refused_requests_of(job_key))
    }

    /// Returns the marks of a job, in the order of their times.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn marks(&mut self, job_key: i64) -> Result<Vec<MarkRow>, StoreError> {
        self.collect(&marks_of(job_key))
    }

    /// Returns the losses of a job, including losses of unknown sources on its nodes while it ran, in the order of their
    /// times.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn losses(&mut self, job_key: i64) -> Result<Vec<LossRow>, StoreError> {
        self.collect(&losses_of(job_key))
    }

    /// Returns the losses that were detected last, of all jobs and nodes, at most `limit`, in the order of their times.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn last_losses(&mut self, limit: u32) -> Result<Vec<LossRow>, StoreError> {
        let select = format!("SELECT {LOSS} FROM loss ORDER BY time DESC LIMIT {limit}");
        let mut losses = self.rows(&select, &[], read_loss)?;
        losses.sort_by(|one, other| {
            (one.time_ns, &one.node, &one.session_id).cmp(&(other.time_ns, &other.node, &other.session_id))
        });
        Ok(losses)
    }
}

fn of_job<T>(statement: String, job_key: i64, read: fn(&mut Row) -> T) -> Selection<'static, T> {
    Selection { statement, parameters: vec![job_key.into()], read }
}

/// Selects the balance of the due samples of a job.
pub(super) fn ledger_of(job_key: i64) -> Selection<'static, LedgerRow> {
    let select = "SELECT ledger_balance.session_id, node, source, due, taken, late, missed, absent, dropped, skipped, rejected,
             quarantined, ledger_balance.stored, unknown
         FROM ledger_balance JOIN session ON session.session_id = ledger_balance.session_id
         WHERE job_key = $1 ORDER BY node, source, ledger_balance.session_id, handle";
    of_job(select.to_owned(), job_key, |row| LedgerRow {
        session_id: row.text(),
        node: row.text(),
        source: row.text(),
        tally: Tally {
            due: row.count(),
            taken: row.count(),
            late: row.count(),
            missed: row.count(),
            absent: row.count(),
            dropped: row.count(),
        },
        skipped: row.count(),
        rejected: row.count(),
        quarantined: row.count(),
        stored: row.count(),
        unknown: row.count(),
    })
}

/// Selects the refused requests of a job's submission.
pub(super) fn refused_requests_of(job_key: i64) -> Selection<'static, RefusedRow> {
    let select = format!(
        "SELECT time, node, metric, new_period_us, actor, coalesce(reason, '') FROM plan_change
         WHERE job_key = $1 AND cause = '{REFUSED}' ORDER BY time, node, metric"
    );
    of_job(select, job_key, |row| RefusedRow {
        time_ns: row.time_ns(),
        node: row.text(),
        request: row.text(),
        period_us: row.optional_integer(),
        actor: row.optional_text(),
        reason: row.text(),
    })
}

/// Selects the marks of a job.
pub(super) fn marks_of(job_key: i64) -> Selection<'static, MarkRow> {
    let select = "SELECT time, node, name, coalesce(detail ->> 'kind', 'instant'), actor FROM mark
         WHERE job_key = $1 ORDER BY time, node, name";
    of_job(select.to_owned(), job_key, |row| MarkRow {
        time_ns: row.time_ns(),
        node: row.text(),
        name: row.text(),
        kind: row.text(),
        actor: row.optional_text(),
    })
}

/// Selects the losses of a job, and of unknown sources on its nodes while it ran.
pub(super) fn losses_of(job_key: i64) -> Selection<'static, LossRow> {
    let select = format!(
        "SELECT {LOSS} FROM loss WHERE job_key = $1
         UNION ALL
         SELECT {LOSS} FROM job_node JOIN loss ON loss.node = job_node.node AND loss.last_time >= job_node.started
             AND (job_node.ended IS NULL OR loss.first_time <= job_node.ended)
         WHERE job_node.job_key = $1 AND loss.source IS NULL AND loss.reason <> 'unknown'
             AND loss.job_key IS DISTINCT FROM job_node.job_key
         ORDER BY 1, 2, 3"
    );
    of_job(select, job_key, read_loss)
}

/// The columns of a loss.
const LOSS: &str =
    "loss.time, loss.node, loss.session_id, loss.job_key, loss.source, loss.samples, loss.reason,
     loss.first_time, loss.last_time";

fn read_loss(row: &mut Row) -> LossRow {
    LossRow {
        time_ns: row.time_ns(),
        node: row.text(),
        session_id: row.text(),
        job_key: row.optional_integer(),
        source: row.optional_text(),
        samples: row.count(),
        reason: row.text(),
        first_time_ns: row.time_ns(),
        last_time_ns: row.time_ns(),
    }
}
