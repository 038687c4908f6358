//! Reading back what was stored, for reports. The same statements for every store, but for how each writes times.

mod backend;
mod file;

use std::collections::HashMap;
use std::ops::Range;

use polymeter_proto::ledger::Tally;
use polymeter_proto::series::Labels;

use self::backend::{Backend, Value};
use crate::accepted::REFUSED;
use crate::{StoreError, StoreUrl};

/// A connection that only reads.
#[derive(Debug)]
pub struct Reader {
    backend: Backend,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// The store's key for it: job ids come again.
    pub job_key: i64,
    /// The scheduler's name for it.
    pub job_id: String,
    /// The cluster, where it is known.
    pub cluster: Option<String>,
    /// The owner's name, where it is known.
    pub owner: Option<String>,
    /// The owner's numeric id, where it is known.
    pub owner_uid: Option<i64>,
    /// When the first of its nodes began to follow it, in nanoseconds since the epoch.
    pub started_ns: i64,
    /// When the last of its nodes ended, in nanoseconds since the epoch; none while it runs on any.
    pub ended_ns: Option<i64>,
    /// Nodes on which it ended with its agent, so that nobody knows when.
    pub lost_nodes: Vec<String>,
    /// Its nodes, sorted.
    pub nodes: Vec<String>,
    /// The account or project that it is charged to, where the scheduler told.
    pub account: Option<String>,
    /// The queue or partition that it was submitted to, where the scheduler told.
    pub queue: Option<String>,
    /// How many cores it has, where the scheduler told.
    pub cores: Option<i64>,
    /// How it ended, in the scheduler's word, where that told.
    pub state: Option<String>,
    /// The exit status of its script, where the scheduler told.
    pub exit_code: Option<i64>,
    /// The signal that ended its script, where the scheduler told.
    pub exit_signal: Option<i64>,
}

/// A series, and how much there is of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesRow {
    /// The store's id for it.
    pub series_id: i64,
    /// The node.
    pub node: String,
    /// The metric's name.
    pub metric: String,
    /// The metric's unit.
    pub unit: String,
    /// The metric's kind: `counter` or `gauge`.
    pub kind: String,
    /// The labels.
    pub labels: Labels,
    /// How many samples there are.
    pub count: u64,
    /// When the first was taken, in nanoseconds since the epoch.
    pub first_time_ns: Option<i64>,
    /// When the last was taken, in nanoseconds since the epoch.
    pub last_time_ns: Option<i64>,
}

/// Which series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesScope<'a> {
    /// Those of a job, by the store's key.
    Job(i64),
    /// A node's own.
    Node(&'a str),
}

/// The samples of a series in a few numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// How many.
    pub count: u64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The mean of the values, each with the same weight.
    pub mean: f64,
    /// The earliest value.
    pub first: f64,
    /// The latest value.
    pub last: f64,
}

/// What became of the samples of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRow {
    /// The agent's session.
    pub session_id: String,
    /// The node.
    pub node: String,
    /// The source.
    pub source: String,
    /// The counts since the session began, with the samples that came after its newest tally.
    pub tally: Tally,
    /// Taken, and lost with frames that the agent had to drop or to give up.
    pub skipped: u64,
    /// Taken, and rejected by the collector.
    pub rejected: u64,
    /// Taken, and stored apart from others because of their times.
    pub quarantined: u64,
    /// Taken and stored.
    pub stored: u64,
    /// Taken, and nothing says what became of them.
    pub unknown: u64,
}

/// A change of what is sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanChangeRow {
    /// When it took effect, in nanoseconds since the epoch.
    pub time_ns: i64,
    /// The node.
    pub node: String,
    /// The metric.
    pub metric: String,
    /// The period until then, in microseconds; none where it was not sampled.
    pub old_period_us: Option<i64>,
    /// The period from then on, in microseconds; none where it is not sampled any more.
    pub new_period_us: Option<i64>,
    /// Why.
    pub cause: String,
    /// Who wanted it, where a person did.
    pub actor: Option<String>,
    /// When it ends by itself, in nanoseconds since the epoch.
    pub until_ns: Option<i64>,
}

/// A request at submission that was not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRow {
    /// When it was refused, in nanoseconds since the epoch.
    pub time_ns: i64,
    /// The node.
    pub node: String,
    /// A selector, or the request as it was written where it could not be read.
    pub request: String,
    /// The period that was asked for, in microseconds, where it could be read.
    pub period_us: Option<i64>,
    /// The user whose request it was, where that was known.
    pub actor: Option<String>,
    /// The reason for which it was refused.
    pub reason: String,
}

/// An instant that somebody named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkRow {
    /// When, in nanoseconds since the epoch.
    pub time_ns: i64,
    /// The node.
    pub node: String,
    /// What is marked.
    pub name: String,
    /// `instant`, or `begin` or `end` of a phase.
    pub kind: String,
    /// Who marked it.
    pub actor: Option<String>,
}

/// Samples that are not in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossRow {
    /// When the collector learnt of it, in nanoseconds since the epoch.
    pub time_ns: i64,
    /// The node.
    pub node: String,
    /// The agent's session.
    pub session_id: String,
    /// The store's key of the job; none for the node's own, and where nobody knows.
    pub job_key: Option<i64>,
    /// The source; none where nobody knows.
    pub source: Option<String>,
    /// How many.
    pub samples: u64,
    /// Why.
    pub reason: String,
    /// When the oldest of them was taken, in nanoseconds since the epoch.
    pub first_time_ns: i64,
    /// When the newest of them was taken, in nanoseconds since the epoch.
    pub last_time_ns: i64,
}

impl Reader {
    /// Connects. Nothing is created or changed.
    ///
    /// # Errors
    /// When the store cannot be reached, is none of Polymeter's, or was made by a newer program.
    pub fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Ok(Self { backend: Backend::open(url)? })
    }

    /// All jobs, the earliest first.
    ///
    /// # Errors
    /// When the store fails.
    pub fn jobs(&mut self) -> Result<Vec<JobRow>, StoreError> {
        let (started, ended) = (self.backend.ns("started"), self.backend.ns("ended"));
        let sql = format!(
            "SELECT job_key, job_id, cluster, owner, owner_uid, {started}, {ended}, account, queue, cores, state, exit_code, exit_signal
             FROM job ORDER BY started, job_key"
        );
        let mut jobs = self.backend.rows(&sql, &[], |row| JobRow {
            job_key: row.integer(),
            job_id: row.text(),
            cluster: row.optional_text(),
            owner: row.optional_text(),
            owner_uid: row.optional_integer(),
            started_ns: row.integer(),
            ended_ns: row.optional_integer(),
            nodes: Vec::new(),
            lost_nodes: Vec::new(),
            account: row.optional_text(),
            queue: row.optional_text(),
            cores: row.optional_integer(),
            state: row.optional_text(),
            exit_code: row.optional_integer(),
            exit_signal: row.optional_integer(),
        })?;
        let nodes = self.backend.rows(
            "SELECT job_key, node, CASE WHEN lost THEN 1 ELSE 0 END FROM job_node ORDER BY job_key, node",
            &[],
            |row| (row.integer(), row.text(), row.integer() == 1),
        )?;
        let places: HashMap<i64, usize> = jobs.iter().map(|job| job.job_key).zip(0..).collect();
        for (key, node, is_lost) in nodes {
            let Some(job) = places.get(&key).and_then(|place| jobs.get_mut(*place)) else { continue };
            if is_lost {
                job.lost_nodes.push(node.clone());
            }
            job.nodes.push(node);
        }
        Ok(jobs)
    }

    /// Series and how many samples there are of each, by node, metric and labels.
    ///
    /// # Errors
    /// When the store fails.
    pub fn series(&mut self, of: SeriesScope<'_>) -> Result<Vec<SeriesRow>, StoreError> {
        let (which, parameter) = match of {
            SeriesScope::Job(key) => ("series.job_key = CAST($1 AS bigint)", Value::Integer(key)),
            SeriesScope::Node(node) => {
                ("series.job_key IS NULL AND series.node = CAST($1 AS text)", Value::Text(node.to_owned()))
            }
        };
        let (first, last) = (self.backend.ns("min(samples.time)"), self.backend.ns("max(samples.time)"));
        let sql = format!(
            "SELECT series.series_id, node, metric, unit, kind, CAST(labels AS text), count(samples.time), {first}, {last}
             FROM series JOIN metric USING (metric) LEFT JOIN samples ON samples.series_id = series.series_id
             WHERE {which} GROUP BY series.series_id, node, metric, unit, kind, CAST(labels AS text)
             ORDER BY node, metric, series.series_id"
        );
        self.backend.rows(&sql, &[parameter], |row| SeriesRow {
            series_id: row.integer(),
            node: row.text(),
            metric: row.text(),
            unit: row.text(),
            kind: row.text(),
            labels: labels(&row.text()),
            count: row.count(),
            first_time_ns: row.optional_integer(),
            last_time_ns: row.optional_integer(),
        })
    }

    /// How many CPUs a node has, by the series that each of them has; none where there are none.
    ///
    /// # Errors
    /// When the store fails.
    pub fn cpus(&mut self, node: &str) -> Result<Option<u64>, StoreError> {
        let sql = "SELECT count(DISTINCT CAST(labels AS text)) FROM series
             WHERE job_key IS NULL AND node = CAST($1 AS text) AND metric LIKE 'node.cpu.%.per_cpu' GROUP BY metric";
        let counts = self.backend.rows(sql, &[Value::Text(node.to_owned())], |row| row.count())?;
        Ok(counts.into_iter().max())
    }

    /// The samples of a series from the begin of `span_ns` to before its end, in the order of their times: nanoseconds
    /// since the epoch, and values. What was no number when it was taken is NaN.
    ///
    /// # Errors
    /// When the store fails.
    pub fn points(&mut self, series_id: i64, span_ns: Range<i64>) -> Result<Vec<(i64, f64)>, StoreError> {
        let time = self.backend.ns("time");
        let (from, to) = (self.backend.time("$2"), self.backend.time("$3"));
        let sql = format!(
            "SELECT {time}, value FROM samples
             WHERE series_id = CAST($1 AS bigint) AND time >= {from} AND time < {to} ORDER BY time"
        );
        let parameters = [series_id, self.backend.bound(span_ns.start), self.backend.bound(span_ns.end)]
            .map(Value::Integer);
        self.backend.rows(&sql, &parameters, |row| (row.integer(), row.real()))
    }

    /// The samples of a series in a few numbers; none where it has no samples.
    ///
    /// # Errors
    /// When the store fails.
    pub fn summary(&mut self, series_id: i64) -> Result<Option<Summary>, StoreError> {
        let end = |order: &str| {
            format!(
                "(SELECT value FROM samples WHERE series_id = CAST($1 AS bigint) ORDER BY time {order} LIMIT 1)"
            )
        };
        let sql = format!(
            "SELECT count(*), min(value), max(value), avg(value), {}, {} FROM samples WHERE series_id = CAST($1 AS bigint)",
            end("ASC"),
            end("DESC")
        );
        let summaries = self.backend.rows(&sql, &[Value::Integer(series_id)], |row| Summary {
            count: row.count(),
            min: row.real(),
            max: row.real(),
            mean: row.real(),
            first: row.real(),
            last: row.real(),
        })?;
        Ok(summaries.into_iter().find(|summary| summary.count > 0))
    }

    /// What became of the samples that were due: of a job, or of the nodes' own.
    ///
    /// # Errors
    /// When the store fails.
    pub fn ledger(&mut self, job_key: Option<i64>) -> Result<Vec<LedgerRow>, StoreError> {
        let which = if job_key.is_some() {
            "job_key = CAST($1 AS bigint)"
        } else {
            "job_key IS NULL AND CAST($1 AS bigint) = 0"
        };
        let sql = format!(
            "SELECT ledger_balance.session_id, node, source, due, taken, late, missed, absent, dropped, skipped, rejected,
                 quarantined, ledger_balance.stored, unknown
             FROM ledger_balance JOIN session ON session.session_id = ledger_balance.session_id
             WHERE {which} ORDER BY node, source, ledger_balance.session_id, handle"
        );
        self.backend.rows(&sql, &[Value::Integer(job_key.unwrap_or(0))], |row| LedgerRow {
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

    /// The changes of what was sampled, of a job or of the nodes' own metrics, in the order of their times.
    ///
    /// # Errors
    /// When the store fails.
    pub fn plan_changes(&mut self, job_key: Option<i64>) -> Result<Vec<PlanChangeRow>, StoreError> {
        let (time, until) = (self.backend.ns("time"), self.backend.ns("until"));
        let sql = format!(
            "SELECT {time}, node, metric, old_period_us, new_period_us, cause, actor, {until} FROM plan_change
             WHERE coalesce(job_key, 0) = CAST($1 AS bigint) AND cause <> '{REFUSED}' ORDER BY time, node, metric"
        );
        self.backend.rows(&sql, &[Value::Integer(job_key.unwrap_or(0))], |row| PlanChangeRow {
            time_ns: row.integer(),
            node: row.text(),
            metric: row.text(),
            old_period_us: row.optional_integer(),
            new_period_us: row.optional_integer(),
            cause: row.text(),
            actor: row.optional_text(),
            until_ns: row.optional_integer(),
        })
    }

    /// The requests at the submission of a job that were not granted, in the order of their times.
    ///
    /// # Errors
    /// When the store fails.
    pub fn refused_requests(&mut self, job_key: i64) -> Result<Vec<RefusedRow>, StoreError> {
        let time = self.backend.ns("time");
        let sql = format!(
            "SELECT {time}, node, metric, new_period_us, actor, coalesce(reason, '') FROM plan_change
             WHERE coalesce(job_key, 0) = CAST($1 AS bigint) AND cause = '{REFUSED}' ORDER BY time, node, metric"
        );
        self.backend.rows(&sql, &[Value::Integer(job_key)], |row| RefusedRow {
            time_ns: row.integer(),
            node: row.text(),
            request: row.text(),
            period_us: row.optional_integer(),
            actor: row.optional_text(),
            reason: row.text(),
        })
    }

    /// The instants that were marked, of a job or of the nodes, in the order of their times.
    ///
    /// # Errors
    /// When the store fails.
    pub fn marks(&mut self, job_key: Option<i64>) -> Result<Vec<MarkRow>, StoreError> {
        let time = self.backend.ns("time");
        let sql = format!(
            "SELECT {time}, node, name, coalesce(detail ->> 'kind', 'instant'), actor FROM mark
             WHERE coalesce(job_key, 0) = CAST($1 AS bigint) ORDER BY time, node, name"
        );
        self.backend.rows(&sql, &[Value::Integer(job_key.unwrap_or(0))], |row| MarkRow {
            time_ns: row.integer(),
            node: row.text(),
            name: row.text(),
            kind: row.text(),
            actor: row.optional_text(),
        })
    }

    /// What was lost of a job, and of nobody knows what on its nodes while it ran; or all.
    ///
    /// # Errors
    /// When the store fails.
    pub fn losses(&mut self, job_key: Option<i64>) -> Result<Vec<LossRow>, StoreError> {
        let columns = [self.backend.ns("time"), self.backend.ns("first_time"), self.backend.ns("last_time")];
        let [time, first, last] = columns;
        let sql = format!(
            "SELECT {time}, node, session_id, job_key, source, samples, reason, {first}, {last} FROM loss
             WHERE CAST($1 AS bigint) = 0 OR job_key = CAST($1 AS bigint) OR source IS NULL AND reason <> 'unknown' AND EXISTS (
                 SELECT 1 FROM job_node WHERE job_node.job_key = CAST($1 AS bigint) AND job_node.node = loss.node
                     AND loss.last_time >= job_node.started AND loss.first_time <= coalesce(job_node.ended, loss.first_time))
             ORDER BY time, node, session_id"
        );
        self.backend.rows(&sql, &[Value::Integer(job_key.unwrap_or(0))], |row| LossRow {
            time_ns: row.integer(),
            node: row.text(),
            session_id: row.text(),
            job_key: row.optional_integer(),
            source: row.optional_text(),
            samples: row.count(),
            reason: row.text(),
            first_time_ns: row.integer(),
            last_time_ns: row.integer(),
        })
    }
}

/// The labels that a JSON object of texts stands for. What is none has no labels: only this program writes them.
fn labels(json: &str) -> Labels {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).unwrap_or_default();
    let pairs = object.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
    Labels::new(pairs.collect()).unwrap_or_default()
}
