//! Summaries of jobs that have ended.
//!
//! A writer adds a row without figures in the transaction that stores the end of a job. A collector claims it
//! for a limited time, and adds the figures. A collector that ends meanwhile leaves a claim that expires.

use polymeter_proto::read::JobUsage;

use crate::backend::Connection;
use crate::error::{Context, DatabaseError};
use crate::value::{Batch, Column, ColumnType, Value};
use crate::{StoreError, StoreUrl, removal};

/// Claims of a job, after which it stays without figures: perhaps it ends the collector each time.
const ATTEMPTS_MAX: i64 = 5;

const KEY: [Column; 1] = [("job_key", ColumnType::Integer)];

/// Energy of a node of a job by one source.
#[derive(Debug, Clone, PartialEq)]
pub struct JobEnergy {
    pub node: String,
    /// `node` for the whole node, `processors`, `memory`, `gpus` or `unknown`.
    pub part: String,
    /// Metric, behind that of the device if a device measured it.
    pub source: String,
    /// Names of the devices, separated by blanks; empty for the node's own counters.
    pub devices: String,
    pub joules: f64,
    /// Half the length of the error bar; none if it is unknown.
    pub error_joules: Option<f64>,
    pub delay_s: Option<f64>,
    /// True if it is a part of the energy of the job.
    pub is_counted: bool,
    /// True if the node's energy was divided between jobs.
    pub is_estimate: bool,
}

const ENERGY: [Column; 10] = [
    ("job_key", ColumnType::Integer),
    ("node", ColumnType::Text),
    ("part", ColumnType::Text),
    ("source", ColumnType::Text),
    ("devices", ColumnType::Text),
    ("joules", ColumnType::Real),
    ("error_joules", ColumnType::Real),
    ("delay_s", ColumnType::Real),
    ("is_counted", ColumnType::Bool),
    ("is_estimate", ColumnType::Bool),
];

const CLAIM: [Column; 2] = [("job_key", ColumnType::Integer), ("at", ColumnType::Time)];

/// Connection to the summaries. After an error its state is unknown, and it must be dropped.
#[derive(Debug)]
pub struct JobUsageTable(Box<dyn Connection>);

/// Adds jobs that have ended, in the transaction that stores their ends. Removes the figures of an earlier
/// end of a job.
pub(crate) fn add(connection: &mut dyn Connection, mut keys: Vec<i64>) -> Result<(), DatabaseError> {
    if keys.is_empty() {
        return Ok(());
    }
    keys.sort_unstable();
    connection.execute_batch(
        "INSERT INTO job_usage (job_key, ended) SELECT job_key, ended FROM job
             WHERE job_key IN (SELECT job_key FROM {new}) AND ended IS NOT NULL
         ON CONFLICT (job_key) DO UPDATE
             SET ended = excluded.ended, elapsed_s = NULL, claimed_until = NULL, attempts = 0",
        &Batch::new(&KEY, keys.into_iter().map(|key| [key.into()])),
    )?;
    Ok(())
}

impl JobUsageTable {
    /// Connects to a store of this version, and changes nothing.
    pub fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Ok(Self(url.open_current_version()?.connection))
    }

    /// Claims at most `limit` jobs without figures that ended `delay_us` ago, for `lease_us`. Returns their
    /// keys, those that ended last first.
    pub fn claim(&mut self, limit: u32, delay_us: i64, lease_us: i64) -> Result<Vec<i64>, StoreError> {
        const ACTION: &str = "claim jobs to summarise";
        let connection = &mut *self.0;
        let now_us = removal::now_us(connection)?;
        let parameters = [Value::Time(now_us.saturating_sub(delay_us)), Value::Time(now_us)];
        let is_due = format!(
            "old.elapsed_s IS NULL AND old.ended <= $1 AND old.attempts < {ATTEMPTS_MAX}
                 AND (old.claimed_until IS NULL OR old.claimed_until <= $2)"
        );
        // Most of the time there is none: a transaction of SQLite would lock the file.
        let is_one = format!("SELECT old.job_key FROM job_usage AS old WHERE {is_due} LIMIT 1");
        if connection.select_first::<i64>(&is_one, &parameters).context(ACTION)?.is_none() {
            return Ok(Vec::new());
        }
        connection.begin().context(ACTION)?;
        let select = format!(
            "SELECT old.job_key FROM job_usage AS old WHERE {is_due}
             ORDER BY old.ended DESC, old.job_key LIMIT {limit}{{skip_locked}}"
        );
        let select = connection.dialect().fill(&select);
        let keys: Vec<i64> = connection.select(&select, &parameters).context(ACTION)?;
        let until_us = now_us.saturating_add(lease_us);
        let claims = keys.iter().map(|key| [(*key).into(), Value::Time(until_us)]);
        connection
            .execute_batch(
                "UPDATE job_usage SET claimed_until = new.at, attempts = job_usage.attempts + 1
                 FROM {new} WHERE job_usage.job_key = new.job_key",
                &Batch::new(&CLAIM, claims),
            )
            .context(ACTION)?;
        connection.commit().context(ACTION)?;
        Ok(keys)
    }

    /// Adds the figures of a job, and its energy by source, that ended at `ended_us`, in microseconds since the epoch. `array_id` is the
    /// array or heterogeneous job to which it belongs. A job that ended anew since it was claimed is left as
    /// it is.
    pub fn put(
        &mut self,
        job_key: i64,
        ended_us: i64,
        array_id: Option<&str>,
        usage: &JobUsage,
        energy: &[JobEnergy],
    ) -> Result<(), StoreError> {
        const ACTION: &str = "store the summary of a job";
        let update =
            "UPDATE job_usage SET ended = $2, array_id = CAST($3 AS text), elapsed_s = $4, nodes = $5,
                 cores = $6, cpu_s = $7, cores_peak = $8, memory_request_bytes = $9, memory_used_bytes = $10,
                 memory_bound_bytes = $11, gpus = $12, gpus_used = $13, gpu_s = $14, energy_j = $15
             WHERE job_key = $1 AND claimed_until IS NOT NULL";
        let parameters = [
            job_key.into(),
            Value::time(ended_us),
            array_id.into(),
            usage.elapsed_s.into(),
            usage.nodes.into(),
            usage.cores.into(),
            usage.cpu_s.into(),
            usage.cores_peak.into(),
            usage.memory_request_bytes.into(),
            usage.memory_used_bytes.into(),
            usage.memory_bound_bytes.into(),
            usage.gpus.into(),
            usage.gpus_used.into(),
            usage.gpu_s.into(),
            usage.energy_j.into(),
        ];
        self.0.begin().context(ACTION)?;
        let updated = self.0.execute(update, &parameters).context(ACTION)?;
        if updated > 0 {
            put_energy(&mut *self.0, job_key, energy).context(ACTION)?;
        }
        self.0.commit().context(ACTION)
    }
}

fn put_energy(
    connection: &mut dyn Connection,
    job_key: i64,
    energy: &[JobEnergy],
) -> Result<(), DatabaseError> {
    connection.execute("DELETE FROM job_energy WHERE job_key = $1", &[job_key.into()])?;
    if energy.is_empty() {
        return Ok(());
    }
    let rows = energy.iter().map(|row| {
        [
            job_key.into(),
            row.node.as_str().into(),
            row.part.as_str().into(),
            row.source.as_str().into(),
            Some(row.devices.as_str()).filter(|devices| !devices.is_empty()).into(),
            row.joules.into(),
            row.error_joules.into(),
            row.delay_s.into(),
            Value::Bool(row.is_counted),
            Value::Bool(row.is_estimate),
        ]
    });
    connection.execute_batch(
        "INSERT INTO job_energy (job_key, node, part, source, devices, joules, error_joules, delay_s, is_counted, is_estimate)
         SELECT job_key, node, part, source, devices, joules, error_joules, delay_s, is_counted, is_estimate FROM {new}",
        &Batch::new(&ENERGY, rows),
    )?;
    Ok(())
}
