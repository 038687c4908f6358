//! The ledger, losses, changes of plan, refused requests and marks.

use polymeter_proto::ledger::Tally;

use super::connection::Reader;
use super::rows::{LedgerRow, LossRow, MarkRow, PlanChangeRow, RefusedRow};
use crate::StoreError;
use crate::accepted::REFUSED;
use crate::value::Value;

impl Reader {
    /// Returns the balance of the due samples of a job or of the nodes' own sources.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn ledger(&mut self, job_key: Option<i64>) -> Result<Vec<LedgerRow>, StoreError> {
        let condition = if job_key.is_some() {
            "job_key = CAST($1 AS bigint)"
        } else {
            "job_key IS NULL AND CAST($1 AS bigint) = 0"
        };
        let select = format!(
            "SELECT ledger_balance.session_id, node, source, due, taken, late, missed, absent, dropped, skipped, rejected,
                 quarantined, ledger_balance.stored, unknown
             FROM ledger_balance JOIN session ON session.session_id = ledger_balance.session_id
             WHERE {condition} ORDER BY node, source, ledger_balance.session_id, handle"
        );
        self.rows(&select, &[key_or_zero(job_key)], |row| LedgerRow {
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

    /// Returns the changes of the sampling plan of a job or of the nodes' own metrics, in the order of their times.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn plan_changes(&mut self, job_key: Option<i64>) -> Result<Vec<PlanChangeRow>, StoreError> {
        let select = format!(
            "SELECT time, node, metric, old_period_us, new_period_us, cause, actor, until FROM plan_change
             WHERE coalesce(job_key, 0) = $1 AND cause <> '{REFUSED}' ORDER BY time, node, metric"
        );
        self.rows(&select, &[key_or_zero(job_key)], |row| PlanChangeRow {
            time_ns: row.time_ns(),
            node: row.text(),
            metric: row.text(),
            old_period_us: row.optional_integer(),
            new_period_us: row.optional_integer(),
            cause: row.text(),
            actor: row.optional_text(),
            until_ns: row.optional_time_ns(),
        })
    }

    /// Returns the refused requests of a job's submission, in the order of their times.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn refused_requests(&mut self, job_key: i64) -> Result<Vec<RefusedRow>, StoreError> {
        let select = format!(
            "SELECT time, node, metric, new_period_us, actor, coalesce(reason, '') FROM plan_change
             WHERE coalesce(job_key, 0) = $1 AND cause = '{REFUSED}' ORDER BY time, node, metric"
        );
        self.rows(&select, &[Value::Integer(job_key)], |row| RefusedRow {
            time_ns: row.time_ns(),
            node: row.text(),
            request: row.text(),
            period_us: row.optional_integer(),
            actor: row.optional_text(),
            reason: row.text(),
        })
    }

    /// Returns the marks of a job or of the nodes, in the order of their times.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn marks(&mut self, job_key: Option<i64>) -> Result<Vec<MarkRow>, StoreError> {
        let select = "SELECT time, node, name, coalesce(detail ->> 'kind', 'instant'), actor FROM mark
             WHERE coalesce(job_key, 0) = $1 ORDER BY time, node, name";
        self.rows(select, &[key_or_zero(job_key)], |row| MarkRow {
            time_ns: row.time_ns(),
            node: row.text(),
            name: row.text(),
            kind: row.text(),
            actor: row.optional_text(),
        })
    }

    /// Returns the losses of a job, including losses of unknown sources on its nodes while it ran; without a
    /// job, all losses.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn losses(&mut self, job_key: Option<i64>) -> Result<Vec<LossRow>, StoreError> {
        let select = "SELECT time, node, session_id, job_key, source, samples, reason, first_time, last_time FROM loss
             WHERE CAST($1 AS bigint) = 0 OR job_key = CAST($1 AS bigint) OR source IS NULL AND reason <> 'unknown' AND EXISTS (
                 SELECT 1 FROM job_node WHERE job_node.job_key = CAST($1 AS bigint) AND job_node.node = loss.node
                     AND loss.last_time >= job_node.started AND loss.first_time <= coalesce(job_node.ended, loss.first_time))
             ORDER BY time, node, session_id";
        self.rows(select, &[key_or_zero(job_key)], |row| LossRow {
            time_ns: row.time_ns(),
            node: row.text(),
            session_id: row.text(),
            job_key: row.optional_integer(),
            source: row.optional_text(),
            samples: row.count(),
            reason: row.text(),
            first_time_ns: row.time_ns(),
            last_time_ns: row.time_ns(),
        })
    }
}

/// Returns the key of a job, or 0 for the nodes' own rows. Keys begin at 1.
fn key_or_zero(job_key: Option<i64>) -> Value<'static> {
    Value::Integer(job_key.unwrap_or(0))
}
