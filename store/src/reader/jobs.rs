//! Jobs.

use std::collections::HashMap;
use std::ops::Range;

use polymeter_proto::read::{JobFilter, JobOrder, JobRow, JobsOf};
use polymeter_proto::run::Run;

use super::recorded_statements::Reader;
use crate::backend::{Dialect, NAMED_PARTLY};
use crate::row::{FromRow, Row, TimeNs, from_row};
use crate::value::Value;
use crate::{DatabaseError, StoreError};

/// How far samples may lie before the start and after the end of their job on a node. The agent stamps both
/// with the same clock, which may be set meanwhile.
const MARGIN_NS: i64 = 3600 * 1_000_000_000;

/// Jobs that started last, and ids that sort next to an id, among which similar ids are searched.
const CANDIDATES: usize = 1000;

/// Jobs of a user that started last, among which the user's similar ids are searched.
const OWN_CANDIDATES: usize = 10_000;

const COLUMNS: &str =
    "job_key, job_id, cluster, owner, owner_uid, started, ended, account, queue, nodes, cores, state, exit_code,
     exit_signal, name, display_id, time_limit_s, memory_bytes, gpus, restarts, unread, run, scheduler";

/// Condition for the jobs of an id, the job that is printed so, the tasks of an array, `4009_1`, and the
/// components of a heterogeneous job, `4009+1`. Indexes find all of them: the next characters behind `_` and
/// `+` are `` ` `` and `,`.
const NAMED: &str = "(job_id = ? OR display_id = ?
     OR display_id > CAST(? AS text) || '_' AND display_id < CAST(? AS text) || '`'
     OR display_id > CAST(? AS text) || '+' AND display_id < CAST(? AS text) || ',')";

struct Node {
    job_key: i64,
    node: String,
    is_lost: bool,
    started_ns: i64,
    ended_ns: Option<i64>,
}

from_row!(Node { job_key, node, is_lost, started_ns: TimeNs, ended_ns: TimeNs });

impl Reader {
    /// Returns the job that started last of those with the id `job_id`, or of all jobs; none if there is no
    /// such job.
    pub fn last_job(&mut self, job_id: Option<&str>) -> Result<Option<JobRow>, StoreError> {
        let filter = JobFilter { job_id: job_id.map(str::to_owned), limit: 1, ..JobFilter::default() };
        Ok(self.jobs(&filter)?.pop())
    }

    /// Returns the jobs that `filter` selects, in its order. The next page begins after the last of them:
    /// [`JobFilter::before`].
    pub fn jobs(&mut self, filter: &JobFilter) -> Result<Vec<JobRow>, StoreError> {
        let (mut condition, parameters) = condition(self.dialect(), filter);
        let (order, is_ascending) = order(filter);
        let (column, direction) = (column(order), if is_ascending { "ASC" } else { "DESC" });
        if let Some((listed, job_key)) = filter.before {
            let comparison = if is_ascending { ">" } else { "<" };
            let time = |time_ns: i64| (self.dialect().time)(time_ns.max(0) / 1000);
            let listed = match order {
                JobOrder::Started | JobOrder::Ended => time(listed),
                JobOrder::Elapsed => format!("({} - {})", time(listed), time(0)),
                JobOrder::Cores => listed.to_string(),
            };
            // SQLite finds the place in the index of an expression by the first condition.
            condition.push_str(&format!(
                " AND {column} {comparison}= {listed} AND ({column}, job_key) {comparison} ({listed}, {job_key})"
            ));
        }
        let select = format!(
            "SELECT {COLUMNS} FROM job WHERE {condition} ORDER BY {column} {direction}, job_key {direction} LIMIT {}",
            filter.limit
        );
        let mut jobs: Vec<JobRow> = self.rows(&select, &parameters)?;
        for job in &mut jobs {
            let ended_ns = job.ended_ns.unwrap_or_default();
            job.listed = match order {
                JobOrder::Started => job.started_ns,
                JobOrder::Ended => ended_ns,
                JobOrder::Elapsed => ended_ns.saturating_sub(job.started_ns),
                JobOrder::Cores => job.cores.unwrap_or_default(),
            };
        }
        self.add_nodes(&mut jobs)?;
        Ok(jobs)
    }

    /// Adds the nodes of each job, and the time of its samples.
    fn add_nodes(&mut self, jobs: &mut [JobRow]) -> Result<(), StoreError> {
        if jobs.is_empty() {
            return Ok(());
        }
        let keys: Vec<i64> = jobs.iter().map(|job| job.job_key).collect();
        let select = format!(
            "SELECT job_key, node, lost, started, ended FROM job_node WHERE job_key {} ORDER BY job_key, node",
            (self.dialect().is_one_of)(&keys)
        );
        let nodes: Vec<Node> = self.rows(&select, &[])?;
        self.add_usage(jobs, &keys)?;
        let clocks = self.clocks(&keys)?;
        let mut corrected: HashMap<i64, (i64, Option<i64>)> = HashMap::new();
        let positions: HashMap<i64, usize> = keys.into_iter().zip(0..).collect();
        for Node { job_key, node, is_lost, started_ns, ended_ns } in nodes {
            let Some(job) = positions.get(&job_key).and_then(|position| jobs.get_mut(*position)) else {
                continue;
            };
            let clock = clocks.of(job_key, &node);
            let of_clock = |time_ns| clock.map_or(time_ns, |clock| clock.corrected_ns(time_ns));
            let (started_ns, ended_ns) = (of_clock(started_ns), ended_ns.map(of_clock));
            let whole = corrected.entry(job_key).or_insert((started_ns, ended_ns));
            *whole = (whole.0.min(started_ns), whole.1.max(ended_ns));
            let of_node = sampled_ns(started_ns, ended_ns);
            let Range { start, end } = &mut job.sampled_ns;
            (*start, *end) = (of_node.start.min(*start), of_node.end.max(*end));
            if is_lost {
                job.lost_nodes.push(node.clone());
            }
            job.nodes.push(node);
        }
        for job in jobs.iter_mut().filter(|job| clocks.has(job.job_key)) {
            if let Some((started_ns, ended_ns)) = corrected.get(&job.job_key) {
                job.started_ns = *started_ns;
                job.ended_ns = job.ended_ns.and(*ended_ns);
            }
        }
        Ok(())
    }

    /// Returns ids of jobs, all or only of `of`, among which to search for one similar to `job_id`: the ids
    /// that sort next to it, and the ids of the jobs that started last.
    pub fn candidate_ids(&mut self, job_id: &str, of: Option<&JobsOf>) -> Result<Vec<String>, StoreError> {
        let mut parameters = vec![job_id.into()];
        let (own, jobs) = if let Some(of) = of {
            let own = format!(
                "WITH own AS MATERIALIZED (
                     SELECT job_id, started, job_key FROM job WHERE {} ORDER BY started DESC, job_key DESC LIMIT {OWN_CANDIDATES}
                 ) ",
                is_of(of, &mut parameters)
            );
            (own, "own")
        } else {
            (String::new(), "job")
        };
        let nearby = |comparison: &str, order: &str| {
            format!(
                "SELECT * FROM (SELECT job_id, started FROM {jobs} WHERE job_id {comparison} $1 ORDER BY job_id {order} LIMIT {CANDIDATES}) AS {order}_ids"
            )
        };
        let select = format!(
            "{own}SELECT job_id FROM (
                 {} UNION ALL {} UNION ALL
                 SELECT * FROM (SELECT job_id, started FROM {jobs} ORDER BY started DESC, job_key DESC LIMIT {CANDIDATES}) AS last_ids
             ) AS candidate
             GROUP BY job_id ORDER BY max(started) DESC",
            nearby("<", "DESC"),
            nearby(">", "ASC")
        );
        self.rows(&select, &parameters)
    }
}

/// Returns the condition that a job is one of a user or of the accounts that the user manages, and adds its
/// parameters. Indexes find both.
fn is_of<'a>(of: &'a JobsOf, parameters: &mut Vec<Value<'a>>) -> String {
    parameters.push(Value::Integer(of.uid.into()));
    let mut condition = format!("(owner_uid = ${}", parameters.len());
    for (position, account) in of.accounts.iter().enumerate() {
        parameters.push(account.as_str().into());
        let separator = if position == 0 { " OR account IN (" } else { ", " };
        condition.push_str(&format!("{separator}${}", parameters.len()));
    }
    condition.push_str(if of.accounts.is_empty() { ")" } else { "))" });
    condition
}

/// Returns the pattern of texts that contain `text`.
fn pattern(text: &str) -> String {
    let escaped = text.replace('\\', r"\\").replace('%', r"\%").replace('_', r"\_");
    format!("%{escaped}%")
}

/// Returns the order of a filter, and whether it is ascending. Running jobs have no end: the one that started
/// last is the shortest.
const fn order(filter: &JobFilter) -> (JobOrder, bool) {
    match (filter.is_ended, filter.order) {
        (Some(false), JobOrder::Ended) => (JobOrder::Started, filter.is_ascending),
        (Some(false), JobOrder::Elapsed) => (JobOrder::Started, !filter.is_ascending),
        (_, order) => (order, filter.is_ascending),
    }
}

/// Returns the expression by which jobs are listed: an index has each, with the key.
const fn column(order: JobOrder) -> &'static str {
    match order {
        JobOrder::Started => "started",
        JobOrder::Ended => "ended",
        JobOrder::Elapsed => "(ended - started)",
        JobOrder::Cores => "(coalesce(cores, 0))",
    }
}

/// Returns the condition for the jobs that a filter selects, without that of its page, and its parameters.
pub(super) fn condition<'a>(dialect: &Dialect, filter: &'a JobFilter) -> (String, Vec<Value<'a>>) {
    let text = |wanted: &'_ Option<String>| wanted.clone().map(Value::from);
    let at = |time_ns: Option<i64>| time_ns.map(|time_ns| Value::time(time_ns.div_euclid(1000)));
    let has_end = filter.is_ended == Some(true)
        || filter.is_ended.is_none() && matches!(filter.order, JobOrder::Ended | JobOrder::Elapsed);
    let with_parameter = [
        ("job_id = ?", text(&filter.job_id)),
        (NAMED, text(&filter.named)),
        ("job_key = ?", filter.job_key.map(Value::Integer)),
        ("owner = ?", text(&filter.owner)),
        ("owner_uid = ?", filter.owner_uid.map(Value::Integer)),
        ("name = ?", text(&filter.whole_name)),
        ("account = ?", text(&filter.account)),
        ("queue = ?", text(&filter.queue)),
        ("cluster = ?", text(&filter.cluster)),
        (
            if filter.owner_uid.is_some() { NAMED_PARTLY } else { dialect.named_partly },
            filter.name.as_deref().map(|name| Value::from(pattern(name))),
        ),
        ("job_key IN (SELECT job_key FROM job_node WHERE node = ?)", text(&filter.node)),
        (if has_end { "ended >= ?" } else { "(ended IS NULL OR ended >= ?)" }, at(filter.since_ns)),
        ("started < ?", at(filter.until_ns)),
    ];
    let (mut condition, mut parameters) = ("1 = 1".to_owned(), Vec::new());
    for (part, parameter) in with_parameter {
        let Some(parameter) = parameter else { continue };
        parameters.push(parameter);
        condition.push_str(" AND ");
        condition.push_str(&part.replace('?', &format!("${}", parameters.len())));
    }
    if let Some(visible) = &filter.visible {
        condition.push_str(" AND ");
        condition.push_str(&is_of(visible, &mut parameters));
    }
    if let Some(states) = &filter.state {
        let mut wanted = Vec::new();
        for state in states.split(',') {
            parameters.push(state.trim().to_owned().into());
            wanted.push(format!("upper(CAST(${} AS text))", parameters.len()));
        }
        condition.push_str(&format!(" AND upper(state) IN ({})", wanted.join(", ")));
    }
    if has_end {
        condition.push_str(" AND ended IS NOT NULL");
    } else if filter.is_ended == Some(false) {
        condition.push_str(" AND ended IS NULL");
    }
    (condition, parameters)
}

impl FromRow for JobRow {
    fn from_row(row: &mut Row) -> Result<Self, DatabaseError> {
        let mut job = Self {
            job_key: row.get()?,
            job_id: row.get()?,
            cluster: row.get()?,
            owner: row.get()?,
            owner_uid: row.get()?,
            started_ns: row.get::<TimeNs<_>>()?.0,
            ended_ns: row.get::<TimeNs<_>>()?.0,
            sampled_ns: 0..0,
            listed: 0,
            nodes: Vec::new(),
            lost_nodes: Vec::new(),
            account: row.get()?,
            queue: row.get()?,
            node_list: row.get()?,
            cores: row.get()?,
            state: row.get()?,
            exit_code: row.get()?,
            exit_signal: row.get()?,
            name: row.get()?,
            display_id: row.get()?,
            time_limit_s: row.get()?,
            memory_bytes: row.get()?,
            gpus: row.get()?,
            restarts: row.get()?,
            unread: row.get()?,
            run: row.get::<Option<Run>>()?.map(Box::new),
            scheduler: row.get()?,
            usage: None,
        };
        job.sampled_ns = sampled_ns(job.started_ns, job.ended_ns);
        Ok(job)
    }
}

/// Returns the time of the samples of a job; without an end for a running job.
fn sampled_ns(started_ns: i64, ended_ns: Option<i64>) -> Range<i64> {
    let end_ns = ended_ns.map_or(i64::MAX, |ended_ns| ended_ns.max(started_ns).saturating_add(MARGIN_NS));
    started_ns.saturating_sub(MARGIN_NS)..end_ns
}
