//! Jobs that devices outside the nodes name.

use polymeter_proto::series::{Identifier, JobName};

use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::row::from_row;

/// Rows of one name: runs of a job on their nodes, the newest first.
const ROWS: usize = 4096;

/// Run of a job on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceJob {
    pub job_key: i64,
    pub cluster: Option<String>,
    pub owner_uid: Option<i64>,
    pub owner: Option<String>,
    pub node: String,
    /// Microseconds since the epoch.
    pub started_us: i64,
    pub ended_us: Option<i64>,
}

from_row!(DeviceJob { job_key, cluster, owner_uid, owner, node, started_us: TimeUs, ended_us: TimeUs });

/// Runs of the jobs of some names.
pub type DeviceJobs = Vec<(JobName, Vec<DeviceJob>)>;

pub(super) fn find(connection: &mut dyn Connection, names: &[JobName]) -> Result<DeviceJobs, DatabaseError> {
    let statement = format!(
        "SELECT job.job_key, job.cluster, job.owner_uid, job.owner, job_node.node, job_node.started, job_node.ended
         FROM job JOIN job_node ON job_node.job_key = job.job_key
         WHERE job.job_id = $1 AND (CAST($2 AS text) IS NULL OR job_node.node = $2)
         ORDER BY job.started DESC, job.job_key, job_node.node LIMIT {ROWS}"
    );
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let node = name.node.as_ref().map(Identifier::as_str);
        let jobs = connection.select(&statement, &[name.job_id.as_str().into(), node.into()])?;
        found.push((name.clone(), jobs));
    }
    Ok(found)
}

/// Returns true if a job has run on a node.
pub(super) fn had_jobs(connection: &mut dyn Connection, node: &Identifier) -> Result<bool, DatabaseError> {
    let select = "SELECT job_key FROM job_node WHERE node = $1 LIMIT 1";
    let found: Option<i64> = connection.select_first(select, &[node.as_str().into()])?;
    Ok(found.is_some())
}
