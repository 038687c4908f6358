//! Interface of everything that answers queries: a store, a guard in front of it, a collector.

use std::ops::{ControlFlow, Range};

use polymeter_proto::read::{
    AgentRow, BucketRow, CpusRow, FiringRow, HistogramRow, IdRanges, JobFilter, JobMetricRow, JobNodeRow,
    JobRow, JobsOf, KeptIntervalRow, LedgerRow, LossRow, MarkRow, NoticeRow, PlanChangeRow, Query, ReadRow,
    RefusedRow, Rollup, RowBlock, SampleRow, SampleSet, SeriesOwner, SeriesRow, StackIntervalRow,
    StackNodeRow, StackRow, UsageGroup, UsageRow,
};

use crate::StoreError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesScope<'a> {
    /// A job, by its key in the store.
    Job(i64),
    /// A node, for its own series.
    Node(&'a str),
    /// All nodes of a job, by its key in the store, for their own series.
    NodesOf(i64),
}

impl<'a> From<&'a SeriesOwner> for SeriesScope<'a> {
    fn from(of: &'a SeriesOwner) -> Self {
        match of {
            SeriesOwner::Job(key) => Self::Job(*key),
            SeriesOwner::Node(node) => Self::Node(node),
            SeriesOwner::NodesOf(key) => Self::NodesOf(*key),
        }
    }
}

impl From<SeriesScope<'_>> for SeriesOwner {
    fn from(of: SeriesScope<'_>) -> Self {
        match of {
            SeriesScope::Job(key) => Self::Job(key),
            SeriesScope::Node(node) => Self::Node(node.to_owned()),
            SeriesScope::NodesOf(key) => Self::NodesOf(key),
        }
    }
}

/// Reader of a store. `dyn Read` has a method for each query.
pub trait Read {
    /// Passes the rows of a query to `each` in blocks, until it breaks. They are not held in memory. After an
    /// error or a break the reader must be dropped.
    fn read(
        &mut self,
        query: &Query,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<(), StoreError>;
}

impl<R: Read + ?Sized> Read for &mut R {
    fn read(
        &mut self,
        query: &Query,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        (**self).read(query, each)
    }
}

/// Error of rows of another type than those of the query.
fn other_rows() -> StoreError {
    StoreError::Unusable(
        "cannot read the rows: they have another type; check that collector and command have the same version"
            .to_owned(),
    )
}

impl dyn Read + '_ {
    fn collect<T: ReadRow>(&mut self, query: &Query) -> Result<Vec<T>, StoreError> {
        let mut rows = Vec::new();
        self.stream(query, |row| {
            rows.push(row);
            Ok::<_, StoreError>(())
        })?;
        Ok(rows)
    }

    fn stream<T: ReadRow, E: From<StoreError>>(
        &mut self,
        query: &Query,
        mut each: impl FnMut(T) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut failed = None;
        self.read(query, &mut |block| {
            let rows = T::rows(block).ok_or_else(|| E::from(other_rows()));
            match rows.and_then(|rows| rows.into_iter().try_for_each(&mut each)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Returns the job that started last of those with the id `job_id`, or of all jobs; none if there is no
    /// such job.
    pub fn last_job(&mut self, job_id: Option<&str>) -> Result<Option<JobRow>, StoreError> {
        let filter = JobFilter { job_id: job_id.map(str::to_owned), limit: 1, ..JobFilter::default() };
        Ok(self.jobs(&filter)?.pop())
    }

    /// Returns the jobs that `filter` selects, the one that started last first.
    pub fn jobs(&mut self, filter: &JobFilter) -> Result<Vec<JobRow>, StoreError> {
        self.collect(&Query::Jobs(Box::new(filter.clone())))
    }

    /// Returns the sums over the jobs of `filter` that ended in a span, by an attribute. The groups that
    /// wasted most are first; `limit` is their maximum number.
    pub fn usage(
        &mut self,
        by: UsageGroup,
        ended_ns: Range<i64>,
        filter: &JobFilter,
    ) -> Result<Vec<UsageRow>, StoreError> {
        self.collect(&Query::Usage { by, ended_ns, jobs: Box::new(filter.clone()) })
    }

    /// Returns notices about the jobs of `owner_uid`, or of all, the newest first.
    pub fn notices(&mut self, owner_uid: Option<i64>, limit: u32) -> Result<Vec<NoticeRow>, StoreError> {
        self.collect(&Query::Notices { owner_uid, limit })
    }

    /// Returns ids of jobs, all or only of `of`, among which to search for one similar to `job_id`.
    pub fn candidate_ids(&mut self, job_id: &str, of: Option<JobsOf>) -> Result<Vec<String>, StoreError> {
        self.collect(&Query::CandidateIds { job_id: job_id.to_owned(), of })
    }

    /// Returns the series of a job or a node, sorted by node and metric.
    pub fn series(&mut self, of: SeriesScope<'_>) -> Result<Vec<SeriesRow>, StoreError> {
        self.collect(&Query::Series { of: of.into() })
    }

    /// Returns those series of a job's nodes that have one of `metrics`, sorted by node and metric.
    pub fn node_series(&mut self, job_key: i64, metrics: &[&str]) -> Result<Vec<SeriesRow>, StoreError> {
        let metrics = metrics.iter().map(|metric| (*metric).to_owned()).collect();
        self.collect(&Query::NodeSeries { job_key, metrics })
    }

    /// Returns the series of devices outside the nodes that are about a job's nodes, sorted by node and
    /// metric.
    pub fn device_series(&mut self, job_key: i64) -> Result<Vec<SeriesRow>, StoreError> {
        self.collect(&Query::DeviceSeries { job_key })
    }

    /// Returns those series of a job that have one of `metrics`, sorted by node and metric.
    pub fn job_series(&mut self, job_key: i64, metrics: &[&str]) -> Result<Vec<SeriesRow>, StoreError> {
        let metrics = metrics.iter().map(|metric| (*metric).to_owned()).collect();
        self.collect(&Query::JobSeries { job_key, metrics })
    }

    /// Returns the metrics of a job, on all nodes or one, sorted by name and level, with the numbers of their
    /// series and nodes.
    pub fn job_metrics(&mut self, job_key: i64, node: Option<&str>) -> Result<Vec<JobMetricRow>, StoreError> {
        self.collect(&Query::JobMetrics { job_key, node: node.map(str::to_owned) })
    }

    /// Returns the times of a job on its nodes, sorted by node.
    pub fn job_nodes(&mut self, job_key: i64) -> Result<Vec<JobNodeRow>, StoreError> {
        self.collect(&Query::JobNodes { job_key })
    }

    /// Passes the samples of `series`, which belong to `of`, within `span_ns`, whose end is excluded, to
    /// `each`: sorted by the ids of the series, then by time. They are not held in memory. After an error of
    /// `each` the reader must be dropped.
    pub fn samples<E: From<StoreError>>(
        &mut self,
        of: SeriesScope<'_>,
        series: &[i64],
        span_ns: &Range<i64>,
        each: impl FnMut(SampleRow) -> Result<(), E>,
    ) -> Result<(), E> {
        self.samples_of_set(SampleSet::Plan, of, series, span_ns, each)
    }

    /// Passes the samples of a set to `each`, as `samples` does with those of the sampling plan.
    pub fn samples_of_set<E: From<StoreError>>(
        &mut self,
        set: SampleSet,
        of: SeriesScope<'_>,
        series: &[i64],
        span_ns: &Range<i64>,
        each: impl FnMut(SampleRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let series: IdRanges = series.iter().copied().collect();
        self.stream(&Query::Samples { of: of.into(), series, span_ns: span_ns.clone(), set }, each)
    }

    /// Passes the intervals of a rollup that contain samples of `series`, which belong to `of`, within
    /// `span_ns` to `each`: sorted by the ids of the series, then by time. They are not held in memory. After
    /// an error of `each` the reader must be dropped.
    pub fn buckets<E: From<StoreError>>(
        &mut self,
        rollup: Rollup,
        of: SeriesScope<'_>,
        series: &[i64],
        span_ns: &Range<i64>,
        each: impl FnMut(BucketRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let series: IdRanges = series.iter().copied().collect();
        self.stream(&Query::Buckets { rollup, of: of.into(), series, span_ns: span_ns.clone() }, each)
    }

    /// Returns the numbers of CPUs of a job's nodes, for each node where it is known.
    pub fn cpus(&mut self, job_key: i64) -> Result<Vec<CpusRow>, StoreError> {
        self.collect(&Query::Cpus { job_key })
    }

    pub fn ledger(&mut self, job_key: i64) -> Result<Vec<LedgerRow>, StoreError> {
        self.collect(&Query::Ledger { job_key })
    }

    /// Returns the changes of the sampling plan of a job, in the order of their times.
    pub fn plan_changes(&mut self, job_key: i64) -> Result<Vec<PlanChangeRow>, StoreError> {
        self.collect(&Query::PlanChanges { job_key })
    }

    /// Returns the refused requests of a job's submission, in the order of their times.
    pub fn refused_requests(&mut self, job_key: i64) -> Result<Vec<RefusedRow>, StoreError> {
        self.collect(&Query::RefusedRequests { job_key })
    }

    /// Returns the marks of a job, in the order of their times.
    pub fn marks(&mut self, job_key: i64) -> Result<Vec<MarkRow>, StoreError> {
        self.collect(&Query::Marks { job_key })
    }

    /// Returns the intervals of a job that rings kept, in the order of their times.
    pub fn kept_intervals(&mut self, job_key: i64) -> Result<Vec<KeptIntervalRow>, StoreError> {
        self.collect(&Query::KeptIntervals { job_key })
    }

    /// Returns the histograms of the series of a job, or of a node itself, over the windows whose times are
    /// within `span_ns`, else over all of them, sorted by series and bucket.
    pub fn histograms(
        &mut self,
        of: SeriesScope<'_>,
        span_ns: Option<Range<i64>>,
    ) -> Result<Vec<HistogramRow>, StoreError> {
        self.collect(&Query::Histograms { of: of.into(), span_ns })
    }

    /// Returns the triggers of a job that fired, in the order of their times.
    pub fn firings(&mut self, job_key: i64) -> Result<Vec<FiringRow>, StoreError> {
        self.collect(&Query::Firings { job_key })
    }

    /// Passes the samples of call stacks of a job, or of the job on one node, whose intervals have their
    /// middles within `span_ns` to `each`, added up by metric, node, process and stack. The same key may
    /// occur several times. After an error of `each` the reader must be dropped.
    pub fn stacks<E: From<StoreError>>(
        &mut self,
        job_key: i64,
        node: Option<&str>,
        span_ns: &Range<i64>,
        each: impl FnMut(StackRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let (node, span_ns) = (node.map(str::to_owned), span_ns.clone());
        self.stream(&Query::Stacks { job_key, node, span_ns, by_interval: false }, each)
    }

    /// Passes these samples of a job on all nodes to `each`, added up within each interval. After an error of
    /// `each` the reader must be dropped.
    pub fn stacks_by_interval<E: From<StoreError>>(
        &mut self,
        job_key: i64,
        span_ns: &Range<i64>,
        each: impl FnMut(StackRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let span_ns = span_ns.clone();
        self.stream(&Query::Stacks { job_key, node: None, span_ns, by_interval: true }, each)
    }

    /// Returns the sums over these intervals, by metric and node. A node whose clock differs has a row for
    /// each interval.
    pub fn stack_intervals(
        &mut self,
        job_key: i64,
        node: Option<&str>,
        span_ns: &Range<i64>,
    ) -> Result<Vec<StackIntervalRow>, StoreError> {
        let (node, span_ns) = (node.map(str::to_owned), span_ns.clone());
        self.collect(&Query::StackIntervals { job_key, node, span_ns })
    }

    /// Passes the functions and stacks of a job to `each`, in any order. After an error of `each` the reader
    /// must be dropped.
    pub fn stack_nodes<E: From<StoreError>>(
        &mut self,
        job_key: i64,
        each: impl FnMut(StackNodeRow) -> Result<(), E>,
    ) -> Result<(), E> {
        self.stream(&Query::StackNodes { job_key }, each)
    }

    /// Returns the losses of a job, in the order of their times.
    pub fn losses(&mut self, job_key: i64) -> Result<Vec<LossRow>, StoreError> {
        self.collect(&Query::Losses { job_key })
    }

    /// Returns the losses that were detected last, of all jobs and nodes.
    pub fn last_losses(&mut self, limit: u32) -> Result<Vec<LossRow>, StoreError> {
        self.collect(&Query::LastLosses { limit })
    }

    /// Returns the newest session of the agent of each node that sent something after a time, sorted by node.
    pub fn agents(&mut self, since_ns: i64) -> Result<Vec<AgentRow>, StoreError> {
        self.collect(&Query::Agents { since_ns })
    }

    /// Returns the finest rollup that has all of a job; none if its samples are complete.
    pub fn finest_rollup(&mut self, job: &JobRow) -> Result<Option<Rollup>, StoreError> {
        let query = Query::FinestRollup { job_key: job.job_key, started_ns: job.started_ns };
        Ok(self.collect(&query)?.pop())
    }
}
