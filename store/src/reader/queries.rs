//! The execution of queries.

use std::ops::ControlFlow;

use polymeter_proto::read::{Query, ReadRow, RowBlock};

use super::clocks::NodeTimes;
use super::read::{Read, SeriesScope};
use super::recorded_statements::{Reader, Selection, TEXT_ROWS};
use super::{agents, history, series, usage};
use crate::StoreError;
use crate::row::FromRow;

/// The number of rows without text in a block.
const BLOCK_ROWS: usize = 4096;

impl Read for Reader {
    fn read(
        &mut self,
        query: &Query,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        match query {
            Query::Jobs(filter) => pass(self.jobs(filter)?, each),
            Query::Usage { by, ended_ns, jobs } => {
                return self.blocks(&usage::usage_of(self.dialect(), *by, ended_ns, jobs), each);
            }
            Query::Notices { owner_uid, limit } => {
                return self.blocks(&usage::notices_of(*owner_uid, *limit), each);
            }
            Query::CandidateIds { job_id, of } => pass(self.candidate_ids(job_id, of.as_ref())?, each),
            Query::Cpus { job_key } => pass(self.cpus(*job_key)?, each),
            Query::LastLosses { limit } => pass(self.last_losses(*limit)?, each),
            Query::Agents { since_ns } => return self.blocks(&agents::agents_since(*since_ns), each),
            Query::FinestRollup { job_key, started_ns } => {
                pass(self.finest_rollup_of(*job_key, *started_ns)?.into_iter().collect(), each);
            }
            Query::JobNodes { job_key } => pass(self.job_nodes(*job_key)?, each),
            Query::NodeSeries { job_key, metrics } => {
                return self.blocks(&series::node_series_of(*job_key, metrics), each);
            }
            Query::JobSeries { job_key, metrics } => {
                return self.blocks(&series::job_series_of(*job_key, metrics), each);
            }
            Query::DeviceSeries { job_key } => pass_all(self.device_series(*job_key)?.rows(), each),
            Query::Series { of } => pass_all(self.shaped_series(SeriesScope::from(of), None)?.rows(), each),
            Query::JobMetrics { job_key, node } => {
                let series = self.shaped_series(SeriesScope::Job(*job_key), node.as_deref())?;
                pass_all(series.metrics().into_iter(), each);
            }
            Query::Ledger { job_key } => return self.blocks(&history::ledger_of(*job_key), each),
            Query::PlanChanges { job_key } => return self.plan_changes_of(*job_key, each),
            Query::RefusedRequests { job_key } => {
                return self.corrected_blocks(*job_key, &history::refused_requests_of(*job_key), each);
            }
            Query::Marks { job_key } => {
                return self.corrected_blocks(*job_key, &history::marks_of(*job_key), each);
            }
            Query::KeptIntervals { job_key } => {
                return self.corrected_blocks(*job_key, &history::kept_intervals_of(*job_key), each);
            }
            Query::Firings { job_key } => {
                return self.corrected_blocks(*job_key, &history::firings_of(*job_key), each);
            }
            Query::Histograms { of, span_ns } => {
                return self.blocks(&history::histograms_of(of, span_ns.as_ref()), each);
            }
            Query::Losses { job_key } => {
                return self.corrected_blocks(*job_key, &history::losses_of(*job_key), each);
            }
            Query::Stacks { .. } | Query::StackIntervals { .. } | Query::StackNodes { .. } => {
                return self.stacks(query, each);
            }
            Query::Samples { of, series, span_ns, set } => {
                let mut blocks = Blocks::new(each);
                let read = self.samples_of_set(*set, of.into(), series, span_ns, |sample| blocks.add(sample));
                return blocks.finish(read);
            }
            Query::Buckets { rollup, of, series, span_ns } => {
                let mut blocks = Blocks::new(each);
                let read = self.buckets(*rollup, of.into(), series, span_ns, |bucket| blocks.add(bucket));
                return blocks.finish(read);
            }
        }
        Ok(())
    }
}

impl Reader {
    fn plan_changes_of(
        &mut self,
        job_key: i64,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let clocks = self.clocks(&[job_key])?;
        let changes = self.plan_change_events(job_key)?;
        let corrected = changes.rows().map(|mut row| {
            clocks.correct(job_key, &mut row);
            row
        });
        if clocks.is_empty() {
            pass_all(corrected, each);
        } else {
            let mut rows: Vec<_> = corrected.collect();
            rows.sort_by_key(|row| row.time_ns);
            pass_all(rows.into_iter(), each);
        }
        Ok(())
    }

    /// Passes the rows of a job on, with the times of its nodes by the collector's clock.
    fn corrected_blocks<T: ReadRow + FromRow + NodeTimes>(
        &mut self,
        job_key: i64,
        selection: &Selection<'_, T>,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let clocks = self.clocks(&[job_key])?;
        if clocks.is_empty() {
            return self.blocks(selection, each);
        }
        let mut rows = clocks.corrected(job_key, self.collect(selection)?);
        rows.sort_by_key(NodeTimes::time_ns);
        pass_all(rows.into_iter(), each);
        Ok(())
    }
}

/// Passes the rows on, if there are any.
fn pass<T: ReadRow>(rows: Vec<T>, each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>) {
    if !rows.is_empty() {
        // There are no further rows that could be left out.
        let _last = each(T::block(rows));
    }
}

/// Passes rows with text on in blocks, until the receiver wants no further ones.
fn pass_all<T: ReadRow>(rows: impl Iterator<Item = T>, each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>) {
    let mut rows = rows.peekable();
    while rows.peek().is_some() {
        if each(T::block(rows.by_ref().take(TEXT_ROWS).collect())).is_break() {
            return;
        }
    }
}

/// The end of a stream: the receiver wants no further rows, or the store failed.
enum Ended {
    Broken,
    Failed(StoreError),
}

impl From<StoreError> for Ended {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// Rows that are collected to blocks.
struct Blocks<'a, T> {
    rows: Vec<T>,
    each: &'a mut dyn FnMut(RowBlock) -> ControlFlow<()>,
}

impl<'a, T: ReadRow> Blocks<'a, T> {
    fn new(each: &'a mut dyn FnMut(RowBlock) -> ControlFlow<()>) -> Self {
        Self { rows: Vec::with_capacity(BLOCK_ROWS), each }
    }

    fn add(&mut self, row: T) -> Result<(), Ended> {
        self.rows.push(row);
        if self.rows.len() < BLOCK_ROWS {
            return Ok(());
        }
        let rows = std::mem::replace(&mut self.rows, Vec::with_capacity(BLOCK_ROWS));
        match (self.each)(T::block(rows)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Ended::Broken),
        }
    }

    fn finish(self, read: Result<(), Ended>) -> Result<(), StoreError> {
        match read {
            Ok(()) => pass(self.rows, self.each),
            Err(Ended::Broken) => {}
            Err(Ended::Failed(error)) => return Err(error),
        }
        Ok(())
    }
}
