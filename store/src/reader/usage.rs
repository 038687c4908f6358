//! Summaries of jobs that have ended, their sums, and notices about jobs.

use std::collections::HashMap;
use std::ops::Range;

use polymeter_proto::read::{JobFilter, JobRow, JobUsage, NoticeRow, UsageGroup, UsageRow};

use super::jobs;
use super::recorded_statements::{Reader, Selection};
use crate::StoreError;
use crate::backend::Dialect;
use crate::row::from_row;
use crate::value::Value;

/// Final states of jobs that failed, by themselves or with their node, in the terms of Slurm and OAR.
pub const FAILED_STATES: [&str; 5] = ["FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "ERROR"];

/// Columns of the figures, in the order of the fields.
const FIGURES: &str = "elapsed_s, nodes, cores, cpu_s, cores_peak, memory_request_bytes, memory_used_bytes,
     memory_bound_bytes, gpus, gpus_used, gpu_s, energy_j";

struct Figures {
    job_key: i64,
    usage: JobUsage,
}

from_row!(JobUsage {
    elapsed_s,
    nodes,
    cores,
    cpu_s,
    cores_peak,
    memory_request_bytes,
    memory_used_bytes,
    memory_bound_bytes,
    gpus,
    gpus_used,
    gpu_s,
    energy_j,
});

from_row!(Figures { job_key, usage });

from_row!(UsageRow {
    group,
    user,
    jobs,
    failed,
    unknown,
    core_s,
    cpu_s,
    wasted_core_s,
    gpu_s,
    wasted_gpu_s,
    memory_byte_s,
    memory_used_byte_s,
});

from_row!(NoticeRow {
    number,
    time_ns: TimeNs,
    rule,
    job_id,
    job_key,
    uid,
    recipient,
    subject,
    text,
    result,
});

impl Reader {
    /// Adds the figures of jobs that have ended. `jobs` have the keys `keys`.
    pub(super) fn add_usage(&mut self, jobs: &mut [JobRow], keys: &[i64]) -> Result<(), StoreError> {
        let select = format!(
            "SELECT job_key, {FIGURES} FROM job_usage WHERE job_key {} AND elapsed_s IS NOT NULL",
            (self.dialect().is_one_of)(keys)
        );
        let figures: Vec<Figures> = self.rows(&select, &[])?;
        let mut by_key: HashMap<i64, JobUsage> =
            figures.into_iter().map(|Figures { job_key, usage }| (job_key, usage)).collect();
        for job in jobs.iter_mut().filter(|job| job.ended_ns.is_some()) {
            job.usage = by_key.remove(&job.job_key);
        }
        Ok(())
    }
}

/// Selects the sums over the jobs of a filter that ended in a span, by an attribute.
pub(super) fn usage_of<'a>(
    dialect: &Dialect,
    by: UsageGroup,
    ended_ns: &Range<i64>,
    filter: &'a JobFilter,
) -> Selection<'a, UsageRow> {
    let (condition, mut parameters) = jobs::condition(dialect, filter);
    let first = parameters.len() + 1;
    parameters.extend([ended_ns.start, ended_ns.end].map(|ns| Value::time(ns.div_euclid(1000))));
    let owner = "coalesce(job.owner, CAST(job.owner_uid AS text))";
    let (group, user, groups) = match by {
        UsageGroup::All => ("CAST(NULL AS text)", "CAST(NULL AS text)", ""),
        UsageGroup::User => (owner, "CAST(NULL AS text)", "GROUP BY 1"),
        UsageGroup::Account => ("job.account", "CAST(NULL AS text)", "GROUP BY 1"),
        UsageGroup::Queue => ("job.queue", "CAST(NULL AS text)", "GROUP BY 1"),
        UsageGroup::Array => ("used.array_id", owner, "GROUP BY 1, 2, job.cluster"),
        UsageGroup::Job => ("coalesce(job.display_id, job.job_id)", owner, "GROUP BY job.job_key, 1, 2"),
    };
    let is_in_group = if by == UsageGroup::Array { "AND used.array_id IS NOT NULL" } else { "" };
    let known = "used.cores IS NOT NULL AND used.cpu_s IS NOT NULL";
    let is_of_gpus = "coalesce(used.gpus, 0) > 0";
    let sum = |value: &str, of: &str| {
        format!("coalesce(sum({value}) FILTER (WHERE used.elapsed_s IS NOT NULL AND {of}), 0.0)")
    };
    let sums = [
        sum("used.cores * used.elapsed_s", known),
        sum("used.cpu_s", known),
        sum(
            "CASE WHEN used.cores * used.elapsed_s > used.cpu_s THEN used.cores * used.elapsed_s - used.cpu_s ELSE 0.0 END",
            &format!("{known} AND NOT {is_of_gpus}"),
        ),
        sum("used.gpus * used.elapsed_s", &format!("{is_of_gpus} AND used.gpu_s IS NOT NULL")),
        sum(
            "CASE WHEN used.gpus * used.elapsed_s > used.gpu_s THEN used.gpus * used.elapsed_s - used.gpu_s ELSE 0.0 END",
            is_of_gpus,
        ),
        sum("used.memory_request_bytes * used.elapsed_s", "used.memory_used_bytes IS NOT NULL"),
        sum("used.memory_used_bytes * used.elapsed_s", "used.memory_request_bytes IS NOT NULL"),
    ];
    let failed = FAILED_STATES.map(|state| format!("'{state}'")).join(", ");
    let statement = format!(
        "SELECT {group}, {user}, count(*), count(*) FILTER (WHERE upper(job.state) IN ({failed})),
             count(*) FILTER (WHERE used.elapsed_s IS NULL OR NOT ({known})), {}
         FROM (SELECT job_key, job_id, display_id, cluster, owner, owner_uid, account, queue, state FROM job WHERE {condition}) AS job
         JOIN job_usage AS used ON used.job_key = job.job_key
         WHERE used.ended >= ${first} AND used.ended < ${} {is_in_group}
         {groups} ORDER BY 8 DESC, 10 DESC, 3 DESC, 1 LIMIT {}",
        sums.join(", "),
        first + 1,
        filter.limit
    );
    Selection::new(statement, parameters)
}

/// Selects the newest notices about the jobs of a user, or of all.
pub(super) fn notices_of(owner_uid: Option<i64>, limit: u32) -> Selection<'static, NoticeRow> {
    let (condition, parameters) = match owner_uid {
        Some(uid) => ("WHERE notice.uid = $1", vec![Value::Integer(uid)]),
        None => ("", Vec::new()),
    };
    let statement = format!(
        "SELECT number, created, rule, job.job_id, notice.job_key, notice.uid, recipient, subject, text, result
         FROM notice JOIN job ON job.job_key = notice.job_key {condition} ORDER BY number DESC LIMIT {limit}"
    );
    Selection::new(statement, parameters)
}
