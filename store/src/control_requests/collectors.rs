//! Running collectors of a store, and the nodes of a job with their sessions.

use super::rows::{CollectorRow, StoredJobNode};
use super::table::ControlTable;
use crate::error::Context;
use crate::value::Value;
use crate::{StoreError, removal};

/// Time without a heartbeat after which a collector counts as away.
const AWAY_US: i64 = 10_000_000;

/// Time after the end of a job in which its agents may still hold its ring.
const ENDED_US: i64 = 3_600 * 1_000_000;

/// Time without a heartbeat after which the row of a collector is removed.
const FORGOTTEN_US: i64 = 86_400 * 1_000_000;

impl ControlTable {
    /// Records that a collector runs. Returns true if others run, too.
    pub fn beat(&mut self, collector: &CollectorRow) -> Result<bool, StoreError> {
        const ACTION: &str = "record that this collector runs";
        let connection = &mut *self.connection;
        // The clocks of collectors may differ.
        let now_us = removal::now_us(connection)?;
        connection.begin().context(ACTION)?;
        let upsert =
            "INSERT INTO collector (collector_id, host, version, started, heard) VALUES ($1, $2, $3, $4, $4)
             ON CONFLICT (collector_id) DO UPDATE SET heard = excluded.heard";
        let id = || Value::from(collector.collector_id.as_str());
        let parameters =
            [id(), collector.host.as_str().into(), collector.version.as_str().into(), Value::Time(now_us)];
        connection.execute(upsert, &parameters).context(ACTION)?;
        let forgotten = [Value::Time(now_us - FORGOTTEN_US)];
        connection.execute("DELETE FROM collector WHERE heard < $1", &forgotten).context(ACTION)?;
        let others = "SELECT count(*) FROM collector WHERE collector_id <> $1 AND heard >= $2";
        let others: u64 =
            connection.select_one(others, &[id(), Value::Time(now_us - AWAY_US)]).context(ACTION)?;
        connection.commit().context(ACTION)?;
        Ok(others > 0)
    }

    pub fn leave(&mut self, collector_id: &str) -> Result<(), StoreError> {
        const ACTION: &str = "record that this collector ends";
        self.connection.begin().context(ACTION)?;
        let delete = "DELETE FROM collector WHERE collector_id = $1";
        self.connection.execute(delete, &[collector_id.into()]).context(ACTION)?;
        self.connection.commit().context(ACTION)
    }

    /// Returns the nodes on which a job runs, with the sessions that have not ended; if it `may_have_ended`,
    /// also those on which it ended a while ago.
    pub fn job_nodes(
        &mut self,
        job_id: &str,
        may_have_ended: bool,
    ) -> Result<Vec<StoredJobNode>, StoreError> {
        let connection = &mut *self.connection;
        let now_us = removal::now_us(connection)?;
        let (ended, since) = if may_have_ended {
            (" OR job_node.ended >= $3", Some(Value::Time(now_us - ENDED_US)))
        } else {
            ("", None)
        };
        let select = format!(
            "SELECT job_node.node, session.session_id, job.owner_uid, session.collector_id,
                 EXISTS (SELECT 1 FROM collector WHERE collector.collector_id = session.collector_id AND heard >= $2)
             FROM job JOIN job_node ON job_node.job_key = job.job_key
             JOIN session ON session.session_id = job_node.session_id
             WHERE job.job_id = $1 AND (job.ended IS NULL AND job_node.ended IS NULL{ended}) AND session.ended IS NULL
             ORDER BY job_node.node, job.started"
        );
        let mut parameters = vec![job_id.into(), Value::Time(now_us - AWAY_US)];
        parameters.extend(since);
        connection.select(&select, &parameters).context("read the nodes of a job")
    }
}
