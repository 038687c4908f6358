//! Ledger, losses, refused requests, marks, and what triggers kept.

use std::collections::BTreeMap;
use std::ops::Range;

use polymeter_proto::ledger::Tally;
use polymeter_proto::read::{
    FiringRow, HistogramRow, KeptIntervalRow, LedgerRow, LossRow, MarkRow, RefusedRow, SeriesOwner,
};

use super::recorded_statements::{Reader, Selection};
use crate::accepted::REFUSED;
use crate::bounds::stored_us;
use crate::row::{Field, FromRow, Row, TimeNs, from_row};
use crate::value::Value;
use crate::{DatabaseError, StoreError};

impl Reader {
    pub fn ledger(&mut self, job_key: i64) -> Result<Vec<LedgerRow>, StoreError> {
        self.collect(&ledger_of(job_key))
    }

    /// Returns the refused requests of a job's submission, in the order of their times.
    pub fn refused_requests(&mut self, job_key: i64) -> Result<Vec<RefusedRow>, StoreError> {
        self.collect(&refused_requests_of(job_key))
    }

    /// Returns the marks of a job, in the order of their times.
    pub fn marks(&mut self, job_key: i64) -> Result<Vec<MarkRow>, StoreError> {
        self.collect(&marks_of(job_key))
    }

    /// Returns the intervals of a job that rings kept, in the order of their times.
    pub fn kept_intervals(&mut self, job_key: i64) -> Result<Vec<KeptIntervalRow>, StoreError> {
        self.collect(&kept_intervals_of(job_key))
    }

    /// Returns the triggers of a job that fired, in the order of their times.
    pub fn firings(&mut self, job_key: i64) -> Result<Vec<FiringRow>, StoreError> {
        self.collect(&firings_of(job_key))
    }

    /// Returns the losses of a job, including losses of unknown sources on its nodes while it ran, in the
    /// order of their times.
    pub fn losses(&mut self, job_key: i64) -> Result<Vec<LossRow>, StoreError> {
        self.collect(&losses_of(job_key))
    }

    /// Returns the losses that were detected last, of all jobs and nodes, at most `limit`, in the order of
    /// their times.
    pub fn last_losses(&mut self, limit: u32) -> Result<Vec<LossRow>, StoreError> {
        let select = format!("SELECT {LOSS} FROM loss ORDER BY time DESC LIMIT {limit}");
        let mut losses = self.rows::<LossRow>(&select, &[])?;
        losses.sort_by(|one, other| {
            (one.time_ns, &one.node, &one.session_id).cmp(&(other.time_ns, &other.node, &other.session_id))
        });
        Ok(losses)
    }
}

pub(super) fn ledger_of(job_key: i64) -> Selection<'static, LedgerRow> {
    let select = "SELECT ledger_balance.session_id, node, source, due, taken, late, missed, absent, dropped, not_kept, skipped, rejected,
             quarantined, ledger_balance.stored, unknown
         FROM ledger_balance JOIN session ON session.session_id = ledger_balance.session_id
         WHERE job_key = $1 ORDER BY node, source, ledger_balance.session_id, handle";
    Selection::new(select.to_owned(), vec![job_key.into()])
}

pub(super) fn refused_requests_of(job_key: i64) -> Selection<'static, RefusedRow> {
    let select = format!(
        "SELECT time, node, metric, new_period_us, new_window_us, actor, coalesce(reason, '') FROM plan_change
         WHERE job_key = $1 AND cause = '{REFUSED}' ORDER BY time, node, metric"
    );
    Selection::new(select, vec![job_key.into()])
}

pub(super) fn marks_of(job_key: i64) -> Selection<'static, MarkRow> {
    let select = "SELECT time, node, name, coalesce(detail ->> 'kind', 'instant'), actor FROM mark
         WHERE job_key = $1 ORDER BY time, node, name";
    Selection::new(select.to_owned(), vec![job_key.into()])
}

pub(super) fn kept_intervals_of(job_key: i64) -> Selection<'static, KeptIntervalRow> {
    let select = "SELECT node, started, ended, trigger_id, reason, samples FROM kept_interval
         WHERE job_key = $1 ORDER BY started, node, ended";
    Selection::new(select.to_owned(), vec![job_key.into()])
}

pub(super) fn firings_of(job_key: i64) -> Selection<'static, FiringRow> {
    let select = "SELECT time, node, rule, actor, why, actions, trigger_id, started, ended, nodes_asked,
             CAST(nodes_missing AS text)
         FROM trigger_firing WHERE job_key = $1 ORDER BY time, node, rule";
    Selection::new(select.to_owned(), vec![job_key.into()])
}

/// Selects the buckets of a job's series or a node's own; none of the nodes of a job.
pub(super) fn histograms_of<'a>(
    of: &'a SeriesOwner,
    span_ns: Option<&Range<i64>>,
) -> Selection<'a, HistogramRow> {
    let (condition, owner): (_, Value<'a>) = match of {
        SeriesOwner::Job(job_key) => ("job_key = $1", (*job_key).into()),
        SeriesOwner::Node(node) => {
            let of_node = "job_key IS NULL
                 AND series_id IN (SELECT series_id FROM series WHERE node = $1 AND job_key IS NULL)";
            (of_node, node.as_str().into())
        }
        SeriesOwner::NodesOf(job_key) => ("job_key = $1 AND job_key IS NULL", (*job_key).into()),
    };
    let time = |time_ns: i64| Value::Time(stored_us(time_ns.div_euclid(1000)));
    let span = span_ns.map(|span_ns| [time(span_ns.start), time(span_ns.end)]);
    let within = if span.is_some() { " AND time >= $2 AND time < $3" } else { "" };
    let select = format!(
        "SELECT series_id, least, CAST(sum(count) AS bigint) FROM window_histogram
         WHERE {condition}{within} GROUP BY series_id, least ORDER BY series_id, least"
    );
    Selection::new(select, std::iter::once(owner).chain(span.into_iter().flatten()).collect())
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
    Selection::new(select, vec![job_key.into()])
}

const LOSS: &str =
    "loss.time, loss.node, loss.session_id, loss.job_key, loss.source, loss.samples, loss.reason,
     loss.first_time, loss.last_time";

from_row!(Tally { due, taken, late, missed, absent, dropped, not_kept });

from_row!(LedgerRow { session_id, node, source, tally, skipped, rejected, quarantined, stored, unknown });

from_row!(RefusedRow { time_ns: TimeNs, node, request, period_us, window_us, actor, reason });

from_row!(MarkRow { time_ns: TimeNs, node, name, kind, actor });

from_row!(HistogramRow { series_id, least, count });

from_row!(KeptIntervalRow { node, begin_ns: TimeNs, end_ns: TimeNs, trigger, reason, samples });

impl FromRow for FiringRow {
    fn from_row(row: &mut Row) -> Result<Self, DatabaseError> {
        Ok(Self {
            time_ns: row.get::<TimeNs>()?.0,
            node: row.get()?,
            rule: row.get()?,
            actor: row.get()?,
            why: row.get()?,
            actions: row.get()?,
            trigger: row.get()?,
            begin_ns: row.get::<TimeNs<Option<i64>>>()?.0,
            end_ns: row.get::<TimeNs<Option<i64>>>()?.0,
            nodes_asked: row.get()?,
            nodes_missing: row.get::<Option<Reasons>>()?.unwrap_or_default().0,
        })
    }
}

/// Nodes with reasons, as JSON.
#[derive(Default)]
struct Reasons(BTreeMap<String, String>);

impl Field for Reasons {
    const EXPECTED: &'static str = "an object of nodes and reasons";

    fn from_value(value: Value<'static>) -> Option<Self> {
        serde_json::from_str(&String::from_value(value)?).ok().map(Self)
    }
}

from_row!(LossRow {
    time_ns: TimeNs,
    node,
    session_id,
    job_key,
    source,
    samples,
    reason,
    first_time_ns: TimeNs,
    last_time_ns: TimeNs,
});
