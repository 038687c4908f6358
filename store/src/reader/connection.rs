//! The connection of a reader, and the list of jobs.

use std::collections::HashMap;

use super::rows::JobRow;
use crate::backend::Connection;
use crate::value::{Row, Value};
use crate::{SCHEMA_VERSION, StoreError, StoreUrl};

/// A read-only connection.
#[derive(Debug)]
pub struct Reader {
    connection: Box<dyn Connection>,
}

impl Reader {
    /// Connects. Nothing is created or changed.
    ///
    /// # Errors
    /// Returns an error if the store cannot be reached, has no tables of Polymeter, or was made by another
    /// version of the program.
    pub fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        let mut reader = Self { connection: url.open_to_read()? };
        let version = match reader.schema_version() {
            Ok(Some(version)) => version,
            Ok(None) => return Err(url.without_tables()),
            Err(error) if error.is_missing_table() => return Err(url.without_tables()),
            Err(error) => return Err(error),
        };
        if version != i64::from(SCHEMA_VERSION) {
            let found = i32::try_from(version).unwrap_or(i32::MAX);
            let is_newer = found > SCHEMA_VERSION;
            return Err(if is_newer {
                StoreError::NewerSchema { found }
            } else {
                StoreError::OlderSchema { found }
            });
        }
        reader.connection.check()?;
        Ok(reader)
    }

    fn schema_version(&mut self) -> Result<Option<i64>, StoreError> {
        let versions =
            self.rows("SELECT CAST(max(version) AS bigint) FROM schema_version", &[], Row::optional_integer)?;
        Ok(versions.first().copied().flatten())
    }

    /// Returns all rows of a statement, converted by `read`.
    pub(super) fn rows<T>(
        &mut self,
        statement: &str,
        parameters: &[Value<'_>],
        mut read: impl FnMut(&mut Row) -> T,
    ) -> Result<Vec<T>, StoreError> {
        let rows = self.connection.read(statement, parameters)?;
        Ok(rows.into_iter().map(|mut row| read(&mut row)).collect())
    }

    /// Returns all jobs, the earliest first.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn jobs(&mut self) -> Result<Vec<JobRow>, StoreError> {
        let select =
            "SELECT job_key, job_id, cluster, owner, owner_uid, started, ended, account, queue, cores, state,
                 exit_code, exit_signal
             FROM job ORDER BY started, job_key";
        let mut jobs = self.rows(select, &[], |row| JobRow {
            job_key: row.integer(),
            job_id: row.text(),
            cluster: row.optional_text(),
            owner: row.optional_text(),
            owner_uid: row.optional_integer(),
            started_ns: row.time_ns(),
            ended_ns: row.optional_time_ns(),
            nodes: Vec::new(),
            lost_nodes: Vec::new(),
            account: row.optional_text(),
            queue: row.optional_text(),
            cores: row.optional_integer(),
            state: row.optional_text(),
            exit_code: row.optional_integer(),
            exit_signal: row.optional_integer(),
        })?;
        let nodes =
            self.rows("SELECT job_key, node, lost FROM job_node ORDER BY job_key, node", &[], |row| {
                (row.integer(), row.text(), row.boolean())
            })?;
        let positions: HashMap<i64, usize> = jobs.iter().map(|job| job.job_key).zip(0..).collect();
        for (key, node, is_lost) in nodes {
            let Some(job) = positions.get(&key).and_then(|position| jobs.get_mut(*position)) else {
                continue;
            };
            if is_lost {
                job.lost_nodes.push(node.clone());
            }
            job.nodes.push(node);
        }
        Ok(jobs)
    }
}
