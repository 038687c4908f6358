//! Call stacks of a job. Samples are added up by the database.

use std::ops::{ControlFlow, Range};

use polymeter_proto::read::{Query, ReadRow, RowBlock, StackIntervalRow, StackNodeRow, StackRow};
use polymeter_proto::units;

use super::recorded_statements::{Reader, Selection};
use crate::bounds::stored_us;
use crate::row::{FromRow, Row, TimeNs, from_row};
use crate::value::Value;
use crate::{DatabaseError, StoreError};

fn nodes_of(job_key: i64) -> Selection<'static, StackNodeRow> {
    let select =
        "SELECT node.stack_id, node.parent_id, coalesce(called.name, ''), coalesce(called.module, '')
         FROM stack_node AS node JOIN stack_function AS called
             ON called.job_key = node.job_key AND called.function_id = node.function_id
         WHERE node.job_key = $1";
    Selection::new(select.to_owned(), vec![job_key.into()])
}

/// Intervals of a job on one node, or on all but some, whose middles lie in a span.
#[derive(Debug, Clone)]
struct Part<'a> {
    job_key: i64,
    node: Option<&'a str>,
    but: Vec<&'a str>,
    span_ns: Range<i64>,
}

impl<'a> Part<'a> {
    /// Returns the condition for the intervals, `part`, and its parameters.
    fn condition(&self) -> (String, Vec<Value<'a>>) {
        let Range { start, end } = self.span_ns;
        let time = |time_ns: i64| Value::Time(stored_us(time_ns.div_euclid(1000)));
        let mut parameters = vec![self.job_key.into(), time(start), time(end)];
        let mut condition = "part.job_key = $1 AND part.time >= $2 AND part.time < $3".to_owned();
        for (node, operator) in
            self.node.into_iter().map(|node| (node, "=")).chain(self.but.iter().map(|node| (*node, "<>")))
        {
            parameters.push(node.into());
            condition.push_str(&format!(" AND part.node {operator} ${}", parameters.len()));
        }
        (condition, parameters)
    }
}

trait OfPart: ReadRow + FromRow {
    /// Selects the rows. With `by_time` each interval has its own, preceded by its time.
    fn of_part<'a>(part: &Part<'a>, by_time: bool) -> (String, Vec<Value<'a>>);
}

impl OfPart for StackRow {
    fn of_part<'a>(part: &Part<'a>, by_time: bool) -> (String, Vec<Value<'a>>) {
        let (condition, parameters) = part.condition();
        let time = if by_time { "part.time, " } else { "" };
        let select = format!(
            "SELECT {time}part.metric, part.node, sample.process, sample.stack_id,
                 sum(CAST(sample.count AS double precision)),
                 sum(CAST(sample.count AS double precision) * part.period_us)
             FROM stack_interval AS part JOIN stack_sample AS sample
                 ON sample.job_key = part.job_key AND sample.time = part.time AND sample.interval_id = part.interval_id
             WHERE {condition} AND sample.job_key = $1 AND sample.time >= $2 AND sample.time < $3
             GROUP BY {time}part.metric, part.node, sample.process, sample.stack_id"
        );
        (select, parameters)
    }
}

impl OfPart for StackIntervalRow {
    fn of_part<'a>(part: &Part<'a>, by_time: bool) -> (String, Vec<Value<'a>>) {
        let (condition, parameters) = part.condition();
        let total = |column: &str| format!("sum(CAST(part.{column} AS double precision))");
        let time = if by_time { "part.time, " } else { "" };
        let select = format!(
            "SELECT {time}part.metric, part.node, min(part.time), max(part.time), max(part.period_us), {}, {}, {}, {}, {}
             FROM stack_interval AS part WHERE {condition} GROUP BY {time}part.metric, part.node",
            total("samples"),
            total("lost"),
            total("throttled"),
            total("cut"),
            total("unresolved")
        );
        (select, parameters)
    }
}

/// Takes a sum of counts, which may be beyond the integers of a database.
fn sum(row: &mut Row) -> Result<u64, DatabaseError> {
    row.get().map(units::whole)
}

impl FromRow for StackRow {
    fn from_row(row: &mut Row) -> Result<Self, DatabaseError> {
        Ok(Self {
            metric: row.get()?,
            node: row.get()?,
            process: row.get()?,
            stack_id: row.get()?,
            samples: sum(row)?,
            time_us: sum(row)?,
            interval_ns: None,
        })
    }
}

impl FromRow for StackIntervalRow {
    fn from_row(row: &mut Row) -> Result<Self, DatabaseError> {
        Ok(Self {
            metric: row.get()?,
            node: row.get()?,
            first_ns: row.get::<TimeNs>()?.0,
            last_ns: row.get::<TimeNs>()?.0,
            period_us: row.get()?,
            samples: sum(row)?,
            lost: sum(row)?,
            throttled: sum(row)?,
            cut: sum(row)?,
            unresolved: sum(row)?,
        })
    }
}

from_row!(StackNodeRow { stack_id, parent_id, function, module });

struct Timed<T> {
    time_ns: i64,
    row: T,
}

impl<T: FromRow> FromRow for Timed<T> {
    fn from_row(row: &mut Row) -> Result<Self, DatabaseError> {
        Ok(Self { time_ns: row.get::<TimeNs>()?.0, row: row.get()? })
    }
}

impl Reader {
    /// Passes on the rows of a query about call stacks. A node whose clock differs has a row for each
    /// interval.
    pub(super) fn stacks(
        &mut self,
        query: &Query,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        if let Query::Stacks { job_key, node, span_ns, by_interval } = query {
            let at = |time_ns, row| StackRow { interval_ns: by_interval.then_some(time_ns), ..row };
            self.parts((*job_key, node.as_deref(), span_ns), *by_interval, at, each)
        } else if let Query::StackIntervals { job_key, node, span_ns } = query {
            let at = |time_ns, row| StackIntervalRow { first_ns: time_ns, last_ns: time_ns, ..row };
            self.parts((*job_key, node.as_deref(), span_ns), false, at, each)
        } else if let Query::StackNodes { job_key } = query {
            self.blocks(&nodes_of(*job_key), each)
        } else {
            Ok(())
        }
    }

    /// Passes on the rows of a job, a node and a span; with `by_time`, a row for each interval.
    fn parts<T: OfPart>(
        &mut self,
        (job_key, node, span_ns): (i64, Option<&str>, &Range<i64>),
        by_time: bool,
        at: impl Fn(i64, T) -> T,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let clocks = self.clocks(&[job_key])?;
        let skewed: Vec<&str> =
            clocks.nodes(job_key).filter(|of| node.is_none_or(|node| node == *of)).collect();
        if node.is_none_or(|node| !skewed.contains(&node)) {
            let part = Part { job_key, node, but: skewed.clone(), span_ns: span_ns.clone() };
            let (statement, parameters) = T::of_part(&part, by_time);
            let flow = if by_time {
                let selection = Selection::new(statement, parameters);
                self.converted_blocks(
                    &selection,
                    |Timed { time_ns, row }: Timed<T>| Some(at(time_ns, row)),
                    each,
                )?
            } else {
                self.converted_blocks(&Selection::new(statement, parameters), Some::<T>, each)?
            };
            if flow.is_break() {
                return Ok(());
            }
        }
        for node in skewed {
            let Some(clock) = clocks.of(job_key, node) else { continue };
            let raw_ns = clock.raw_ns(span_ns);
            let part = Part { job_key, node: Some(node), but: Vec::new(), span_ns: raw_ns };
            let (statement, parameters) = T::of_part(&part, true);
            let selection = Selection::new(statement, parameters);
            let flow = self.converted_blocks(
                &selection,
                |Timed { time_ns, row }: Timed<T>| {
                    let time_ns = clock.corrected_ns(time_ns);
                    span_ns.contains(&time_ns).then(|| at(time_ns, row))
                },
                each,
            )?;
            if flow.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }
}
