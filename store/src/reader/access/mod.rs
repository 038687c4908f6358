//! Rights of readers: a user reads the own jobs, a manager also those of some accounts, support staff and
//! administrators all. Only this module decides which rows of a store a reader gets.
//!
//! The guard checks every query. A job of another user has the same answer as an unknown one, by the same
//! statements, so that neither reveals which jobs exist.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

use polymeter_proto::read::{IdRanges, JobFilter, JobNodeRow, JobsOf, Query, ReadRow, RowBlock, SeriesOwner};
use polymeter_proto::series::ALL_NODES;

use super::read::Read;
use crate::StoreError;

/// Jobs that a reader may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// All jobs, the series of nodes, and the causes of errors: root and administrators.
    All,
    /// All jobs and the series of nodes: support staff.
    Support,
    /// Own jobs, and the jobs of the accounts that the user manages.
    Jobs(JobsOf),
}

impl Access {
    /// Returns the access of a user who has no role.
    pub const fn owner(uid: u32) -> Self {
        Self::Jobs(JobsOf::user(uid))
    }

    /// Returns true if the reader may see all jobs and the series of nodes.
    pub const fn sees_all(&self) -> bool {
        matches!(self, Self::All | Self::Support)
    }

    /// Returns `administrator`, `support`, `manager` or `user`.
    pub const fn role(&self) -> &'static str {
        match self {
            Self::All => "administrator",
            Self::Support => "support",
            Self::Jobs(of) if of.accounts.is_empty() => "user",
            Self::Jobs(_) => "manager",
        }
    }

    pub fn accounts(&self) -> &[String] {
        match self {
            Self::All | Self::Support => &[],
            Self::Jobs(of) => &of.accounts,
        }
    }
}

/// Job that was read last. A report has many queries about one job.
#[derive(Debug)]
struct CurrentJob {
    job_key: i64,
    series: IdRanges,
    /// Times in which the series of its nodes may be read, once they are known: by the ids of those that were
    /// asked for.
    node_series: HashMap<i64, Range<i64>>,
}

/// Time before the start and after the end of a job on a node in which the node's series may be read, so that
/// a counter has a value on either side.
const NODE_MARGIN_NS: i64 = 60 * 1_000_000_000;

/// The same of series of all nodes, from so long before this time on: a value of the site holds for long.
const SITE_MARGIN_NS: i64 = 3600 * 1_000_000_000;

/// Returns the time in which a job's user may read the series of a node.
fn readable_ns(row: &JobNodeRow) -> Range<i64> {
    let end_ns = row.ended_ns.map_or(i64::MAX, |ended_ns| ended_ns.saturating_add(NODE_MARGIN_NS));
    row.started_ns.saturating_sub(NODE_MARGIN_NS)..end_ns
}

/// Reader that answers only what an [`Access`] permits. Rows that it does not permit are left out.
#[derive(Debug)]
pub struct GuardedReader<R> {
    reader: R,
    access: Access,
    /// Last job that the user may see.
    current: Option<CurrentJob>,
}

type Each<'a> = &'a mut dyn FnMut(RowBlock) -> ControlFlow<()>;

impl<R: Read> GuardedReader<R> {
    pub const fn new(reader: R, access: Access) -> Self {
        Self { reader, access, current: None }
    }

    fn sees(&mut self, of: &JobsOf, job_key: i64) -> Result<bool, StoreError> {
        if self.current.as_ref().is_some_and(|current| current.job_key == job_key) {
            return Ok(true);
        }
        let is_found = self.is_among(of, job_key)?;
        if is_found {
            self.current =
                Some(CurrentJob { job_key, series: IdRanges::default(), node_series: HashMap::new() });
        }
        Ok(is_found)
    }

    fn is_among(&mut self, of: &JobsOf, job_key: i64) -> Result<bool, StoreError> {
        let filter =
            JobFilter { job_key: Some(job_key), visible: Some(of.clone()), limit: 1, ..JobFilter::default() };
        let mut is_found = false;
        self.reader.read(&Query::Jobs(Box::new(filter)), &mut |block| {
            is_found |= !block.is_empty();
            ControlFlow::Continue(())
        })?;
        Ok(is_found)
    }

    /// Passes on series of the job, and remembers their ids.
    fn read_series(&mut self, job_key: i64, query: &Query, each: Each<'_>) -> Result<(), StoreError> {
        let mut ids = Vec::new();
        self.reader.read(query, &mut |block| {
            if let RowBlock::Series(rows) = &block {
                ids.extend(rows.iter().map(|row| row.series_id));
            }
            each(block)
        })?;
        if let Some(current) = self.current.as_mut().filter(|current| current.job_key == job_key) {
            current.series = current.series.ids().chain(ids).collect();
        }
        Ok(())
    }

    /// Returns the wanted ids that are series of the job.
    fn series_of_job(&mut self, job_key: i64, wanted: &IdRanges) -> Result<IdRanges, StoreError> {
        let permitted = |guard: &Self| {
            guard.current.as_ref().map(|current| current.series.intersection(wanted)).unwrap_or_default()
        };
        // Only some may have been read, and a running job may have got further ones since.
        let found = permitted(self);
        if found == *wanted {
            return Ok(found);
        }
        let all = Query::Series { of: SeriesOwner::Job(job_key) };
        self.read_series(job_key, &all, &mut |_| ControlFlow::Continue(()))?;
        Ok(permitted(self))
    }

    fn read_visible(&mut self, of: &JobsOf, query: &Query, each: Each<'_>) -> Result<(), StoreError> {
        match query {
            Query::Jobs(filter) => {
                let query = Query::Jobs(visible(of, filter));
                self.reader.read(&query, &mut |block| each(without_commands_of_others(block, of.uid)))
            }
            Query::Usage { by, ended_ns, jobs } => {
                let usage = Query::Usage { by: *by, ended_ns: ended_ns.clone(), jobs: visible(of, jobs) };
                self.reader.read(&usage, each)
            }
            Query::Notices { owner_uid, limit } => {
                let uid = i64::from(of.uid);
                if owner_uid.is_some_and(|owner| owner != uid) {
                    return Ok(());
                }
                self.reader.read(&Query::Notices { owner_uid: Some(uid), limit: *limit }, each)
            }
            Query::CandidateIds { job_id, .. } => {
                let visible = Query::CandidateIds { job_id: job_id.clone(), of: Some(of.clone()) };
                self.reader.read(&visible, each)
            }
            Query::Stacks { job_key, .. }
            | Query::StackIntervals { job_key, .. }
            | Query::StackNodes { job_key } => {
                // Like its command, the functions of a program are its owner's: a manager sees what it used.
                if self.is_among(&JobsOf::user(of.uid), *job_key)? {
                    self.reader.read(query, each)
                } else {
                    Ok(())
                }
            }
            Query::LastLosses { .. }
            | Query::Agents { .. }
            | Query::Series { of: SeriesOwner::Node(_) | SeriesOwner::NodesOf(_) }
            | Query::Samples { of: SeriesOwner::Node(_), .. }
            | Query::Buckets { of: SeriesOwner::Node(_), .. }
            | Query::Histograms { of: SeriesOwner::Node(_) | SeriesOwner::NodesOf(_), .. } => Ok(()),
            Query::Series { of: SeriesOwner::Job(job_key) }
            | Query::Samples { of: SeriesOwner::Job(job_key), .. }
            | Query::Buckets { of: SeriesOwner::Job(job_key), .. }
            | Query::Samples { of: SeriesOwner::NodesOf(job_key), .. }
            | Query::Buckets { of: SeriesOwner::NodesOf(job_key), .. }
            | Query::NodeSeries { job_key, .. }
            | Query::DeviceSeries { job_key }
            | Query::JobSeries { job_key, .. }
            | Query::JobMetrics { job_key, .. }
            | Query::JobNodes { job_key }
            | Query::Cpus { job_key }
            | Query::Ledger { job_key }
            | Query::PlanChanges { job_key }
            | Query::RefusedRequests { job_key }
            | Query::Marks { job_key }
            | Query::KeptIntervals { job_key }
            | Query::Firings { job_key }
            | Query::Histograms { of: SeriesOwner::Job(job_key), .. }
            | Query::Losses { job_key }
            | Query::FinestRollup { job_key, .. } => {
                if self.sees(of, *job_key)? {
                    self.read_visible_job(*job_key, query, each)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Passes the series of the nodes of the job on, and remembers their times.
    fn read_node_series(&mut self, job_key: i64, query: &Query, each: Each<'_>) -> Result<(), StoreError> {
        let mut times = HashMap::new();
        self.reader.read(&Query::JobNodes { job_key }, &mut |block| {
            for row in JobNodeRow::rows(block).into_iter().flatten() {
                let time_ns = readable_ns(&row);
                times.insert(row.node, time_ns);
            }
            ControlFlow::Continue(())
        })?;
        let ends = (times.values().map(|time| time.start).min(), times.values().map(|time| time.end).max());
        if let (Some(begin_ns), Some(end_ns)) = ends {
            // A value of the site may have been stated long before.
            times.insert(ALL_NODES.to_owned(), begin_ns.saturating_sub(SITE_MARGIN_NS)..end_ns);
        }
        let Some(current) = self.current.as_mut().filter(|current| current.job_key == job_key) else {
            return Ok(());
        };
        self.reader.read(query, &mut |block| {
            if let RowBlock::Series(rows) = &block {
                let readable =
                    rows.iter().filter_map(|row| Some((row.series_id, times.get(&row.node)?.clone())));
                current.node_series.extend(readable);
            }
            each(block)
        })
    }

    /// Returns the wanted series that the guard knows as series of the job's nodes, and the part of a span in
    /// which any of them may be read.
    fn readable(&self, wanted: &IdRanges, span_ns: &Range<i64>) -> (IdRanges, Range<i64>) {
        let times = || self.current.iter().flat_map(|current| &current.node_series);
        let known: IdRanges = times().map(|(series_id, _)| *series_id).collect();
        let first_ns = times().map(|(_, time)| time.start).min().unwrap_or(i64::MAX);
        let end_ns = times().map(|(_, time)| time.end).max().unwrap_or(i64::MIN);
        (wanted.intersection(&known), span_ns.start.max(first_ns)..span_ns.end.min(end_ns))
    }

    /// Passes on the samples or intervals of series of the nodes of the job that lie in its time there.
    /// `length_ns` is the length of an interval.
    fn read_of_nodes(&mut self, query: &Query, length_ns: i64, each: Each<'_>) -> Result<(), StoreError> {
        let Some(current) = &self.current else { return Ok(()) };
        let is_readable = |series_id: i64, time_ns: i64| {
            let until_ns = time_ns.saturating_add(length_ns);
            current
                .node_series
                .get(&series_id)
                .is_some_and(|time| time.start <= time_ns && until_ns <= time.end)
        };
        self.reader.read(query, &mut |mut block| {
            if let RowBlock::Samples(rows) = &mut block {
                rows.retain(|row| is_readable(row.series_id, row.time_ns));
            } else if let RowBlock::Buckets(rows) = &mut block {
                rows.retain(|row| is_readable(row.series_id, row.time_ns));
            } else {
                return ControlFlow::Break(());
            }
            each(block)
        })
    }

    /// Passes on the rows of a query about a job that the user may see.
    fn read_visible_job(&mut self, job_key: i64, query: &Query, each: Each<'_>) -> Result<(), StoreError> {
        let of = SeriesOwner::Job(job_key);
        match query {
            Query::Series { .. } | Query::JobSeries { .. } => self.read_series(job_key, query, each),
            Query::NodeSeries { .. } | Query::DeviceSeries { .. } => {
                self.read_node_series(job_key, query, each)
            }
            Query::Samples { of: of @ SeriesOwner::NodesOf(_), series, span_ns, set } => {
                let ((series, span_ns), set) = (self.readable(series, span_ns), *set);
                self.read_of_nodes(&Query::Samples { of: of.clone(), series, span_ns, set }, 0, each)
            }
            Query::Buckets { rollup, of: of @ SeriesOwner::NodesOf(_), series, span_ns } => {
                let ((series, span_ns), rollup) = (self.readable(series, span_ns), *rollup);
                self.read_of_nodes(
                    &Query::Buckets { rollup, of: of.clone(), series, span_ns },
                    rollup.length_ns(),
                    each,
                )
            }
            Query::Samples { series, span_ns, set, .. } => {
                let (series, span_ns) = (self.series_of_job(job_key, series)?, span_ns.clone());
                self.reader.read(&Query::Samples { of, series, span_ns, set: *set }, each)
            }
            Query::Buckets { rollup, series, span_ns, .. } => {
                let (series, span_ns) = (self.series_of_job(job_key, series)?, span_ns.clone());
                self.reader.read(&Query::Buckets { rollup: *rollup, of, series, span_ns }, each)
            }
            Query::Losses { .. } => {
                self.reader.read(query, &mut |block| each(without_other_jobs(block, job_key)))
            }
            Query::Jobs(_)
            | Query::Usage { .. }
            | Query::Notices { .. }
            | Query::CandidateIds { .. }
            | Query::Cpus { .. }
            | Query::LastLosses { .. }
            | Query::Agents { .. }
            | Query::Ledger { .. }
            | Query::PlanChanges { .. }
            | Query::RefusedRequests { .. }
            | Query::Marks { .. }
            | Query::KeptIntervals { .. }
            | Query::Firings { .. }
            | Query::Histograms { .. }
            | Query::JobNodes { .. }
            | Query::JobMetrics { .. }
            | Query::Stacks { .. }
            | Query::StackIntervals { .. }
            | Query::StackNodes { .. }
            | Query::FinestRollup { .. } => self.reader.read(query, each),
        }
    }
}

fn visible(of: &JobsOf, filter: &JobFilter) -> Box<JobFilter> {
    Box::new(JobFilter { visible: Some(of.clone()), ..filter.clone() })
}

/// Removes the commands of runs of other users: a manager sees what their jobs used.
fn without_commands_of_others(mut block: RowBlock, uid: u32) -> RowBlock {
    if let RowBlock::Jobs(rows) = &mut block {
        for row in rows.iter_mut().filter(|row| row.owner_uid != Some(uid.into())) {
            row.run = None;
        }
    }
    block
}

/// Removes the keys of other jobs from losses, some of which concern a whole node.
fn without_other_jobs(mut block: RowBlock, job_key: i64) -> RowBlock {
    if let RowBlock::Losses(rows) = &mut block {
        for row in rows {
            row.job_key = row.job_key.filter(|key| *key == job_key);
        }
    }
    block
}

impl<R: Read> Read for GuardedReader<R> {
    fn read(&mut self, query: &Query, each: Each<'_>) -> Result<(), StoreError> {
        match &self.access {
            Access::All | Access::Support => self.reader.read(query, each),
            Access::Jobs(of) => {
                let of = of.clone();
                self.read_visible(&of, query, each)
            }
        }
    }
}

#[cfg(test)]
mod tests;
