//! Cores in use of several jobs over their time, in a few points each: a list of jobs asks once for all
//! of its rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_analysis::charts::MAIN_QUANTITIES;
use polymeter_store::reader::{JobRow, JobUsage, Read, Rollup, SeriesRow, SeriesScope};
use serde_json::{Value, json};

use super::parameters::{find_job, now_ns};
use super::parts::{self, Wanted};
use crate::answer::{Cores, Failure, KeptCores, level, number};
use crate::limits;
use crate::request::{Endpoint, Kind, OBJECT, Parameter};

const KEYS: Parameter = Parameter::query(
    "key",
    Kind::Integers(limits::LISTED_JOBS),
    "The keys of jobs, at most 100, with commas.",
);

pub(super) static JOB_CORES: Endpoint = Endpoint {
    path: "/api/v1/job-cores",
    id: "job_cores",
    summary: "The cores in use of jobs in 24 equal parts of their time, summed over their nodes, and the core-seconds that ended \
        ones wasted (see `usage`). Jobs that the user may not see are left out.",
    parameters: &[KEYS],
    formats: OBJECT,
    answer: || {
        let amount = json!({"type": ["number", "null"]});
        json!({"type": "object", "required": ["jobs"], "properties": {"jobs": {"type": "array", "items": {
            "type": "object",
            "required": ["key", "cores", "mean", "wasted_core_s"],
            "properties": {
                "key": {"type": "integer"}, "cores": {"type": "array", "items": amount.clone()}, "mean": amount.clone(), "wasted_core_s": amount,
            },
        }}}})
    },
    body: None,
    handler: |call| {
        let keys = call.arguments.integers(KEYS.name).unwrap_or_default().to_vec();
        let services = Arc::clone(&call.services);
        Box::pin(call.object(move |reader, _| {
            let mut jobs = Vec::new();
            for key in keys {
                match find_job(reader, key) {
                    Ok(job) => jobs.push(object(&job, &*cores_of(reader, &services.cores, &job)?)),
                    Err(Failure::Problem(_unknown)) => {}
                    Err(failure) => return Err(failure),
                }
            }
            Ok(json!({"jobs": jobs}))
        }))
    },
};

fn object(job: &JobRow, cores: &Cores) -> Value {
    let rounded =
        |value: &f64| if value.is_finite() { number((value * 1e4).round() / 1e4) } else { Value::Null };
    // An ended job has the mean of its report.
    let mean = job.usage.as_ref().and_then(JobUsage::cores_used).unwrap_or_else(|| cores.mean());
    json!({
        "key": job.job_key,
        "cores": cores.0.iter().map(rounded).collect::<Vec<_>>(),
        "mean": rounded(&mean),
        "wasted_core_s": wasted_core_s(job).map(f64::round).map(number),
    })
}

/// The user must be permitted to see the job.
fn cores_of(reader: &mut dyn Read, kept: &KeptCores, job: &JobRow) -> Result<Arc<Cores>, Failure> {
    // The last samples of a job may arrive after its end.
    let settled_ns = now_ns().saturating_sub(limits::SETTLED_NS);
    let is_settled = job.ended_ns.is_some_and(|ended_ns| ended_ns < settled_ns);
    if let Some(cores) = kept.get(job.job_key).filter(|_| is_settled) {
        return Ok(cores);
    }
    let cores = Arc::new(read(reader, job)?);
    if is_settled {
        kept.put(job.job_key, &cores);
    }
    Ok(cores)
}

/// Reads the series of the whole job of the first metric that measures cores and was sampled.
fn series(reader: &mut dyn Read, job_key: i64) -> Result<BTreeMap<i64, SeriesRow>, Failure> {
    let quantity = MAIN_QUANTITIES.iter().find(|quantity| quantity.id() == "cores");
    let metrics: Vec<&str> = quantity.map(|quantity| quantity.first_metrics().collect()).unwrap_or_default();
    let rows = reader.job_series(job_key, &metrics)?;
    let metric =
        metrics.iter().find(|metric| rows.iter().any(|row| row.metric == **metric && level(row).is_none()));
    let metric = metric.copied().unwrap_or_default();
    let wanted = rows.iter().filter(|row| row.metric == metric && level(row).is_none());
    Ok(wanted.map(|row| (row.series_id, row.clone())).collect())
}

fn read(reader: &mut dyn Read, job: &JobRow) -> Result<Cores, Failure> {
    let rows = series(reader, job.job_key)?;
    let end_ns = job.ended_ns.unwrap_or_else(now_ns).max(job.started_ns.saturating_add(1000));
    let span_ns = job.started_ns..end_ns;
    let width_ns = parts::width_ns(&span_ns, limits::SPARK_PARTS);
    let left = reader.finest_rollup(job)?;
    let mut rollup = parts::rollup(width_ns, left, false);
    // A job on many nodes is read in coarser intervals, so that a list costs little.
    let intervals = |rollup: Option<Rollup>| {
        let length_ns = rollup.map_or(1_000_000_000, Rollup::length_ns);
        (end_ns.saturating_sub(job.started_ns) / length_ns)
            .saturating_mul(i64::try_from(rows.len()).unwrap_or(i64::MAX))
    };
    while intervals(rollup) > limits::SPARK_INTERVALS {
        let length_ns = rollup.map_or(0, Rollup::length_ns);
        let coarser = Rollup::ALL.into_iter().filter(|one| one.length_ns() > length_ns);
        let Some(coarser) = coarser.min_by_key(|one| one.length_ns()) else { break };
        rollup = Some(coarser);
    }
    let width_ns = width_ns.max(rollup.map_or(0, Rollup::length_ns));
    let parts =
        usize::try_from((end_ns.saturating_sub(job.started_ns) + width_ns - 1) / width_ns).unwrap_or(1);
    let mut sums = vec![f64::NAN; parts.max(1)];
    let wanted = Wanted { of: SeriesScope::Job(job.job_key), rows: &rows, span_ns, width_ns, rollup };
    wanted.read(reader, |_, of_series| {
        for part in of_series {
            let position = usize::try_from((part.time_ns - job.started_ns) / width_ns).unwrap_or(usize::MAX);
            if let Some(sum) = sums.get_mut(position) {
                *sum = if sum.is_finite() { *sum + part.mean } else { part.mean };
            }
        }
        Ok(())
    })?;
    Ok(Cores(sums))
}

/// None if it is unknown.
pub(super) fn wasted_core_s(job: &JobRow) -> Option<f64> {
    job.usage.as_ref().and_then(JobUsage::wasted_core_s)
}
