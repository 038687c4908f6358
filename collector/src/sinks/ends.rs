//! Ends of series and jobs, as accepted rows tell them: pure.

use std::collections::HashSet;
use std::sync::Arc;

use polymeter_proto::ledger::PlanChange;
use polymeter_proto::step_level::StepLevel;
use polymeter_store::accepted::{Accepted, JobRecord, SeriesRecord, SessionRecord};

/// What ends: jobs with their series, metrics that are no longer sampled, and all of a session.
#[derive(Debug, Default)]
pub(super) struct Ends<'a> {
    /// Addresses of the records.
    jobs: HashSet<usize>,
    /// Keys in the store of jobs that were lost.
    lost: HashSet<i64>,
    /// Metrics with the address of their job's record; none for those of the node.
    metrics: Vec<(Option<usize>, &'a PlanChange)>,
    session: Option<&'a SessionRecord>,
}

impl<'a> Ends<'a> {
    /// Returns none for a frame with which nothing ends.
    pub(super) fn of_frame(frame: &'a Accepted) -> Option<Self> {
        let stopped = frame.plan_changes.iter().filter(|(_, change)| change.new.is_none());
        let ends = Self {
            jobs: frame.job_ends.iter().map(|(job, _)| Arc::as_ptr(job) as usize).collect(),
            metrics: stopped
                .map(|(job, change)| (job.as_ref().map(|job| Arc::as_ptr(job) as usize), change))
                .collect(),
            session: frame.session_end_us.is_some().then_some(&*frame.session),
            ..Self::default()
        };
        let is_empty = ends.jobs.is_empty() && ends.metrics.is_empty() && ends.session.is_none();
        (!is_empty).then_some(ends)
    }

    /// Returns none without keys.
    pub(super) fn of_lost_jobs(keys: &[i64]) -> Option<Self> {
        (!keys.is_empty()).then(|| Self { lost: keys.iter().copied().collect(), ..Self::default() })
    }

    pub(super) fn has_job(&self, job: &JobRecord) -> bool {
        self.jobs.contains(&std::ptr::from_ref(job).addr())
            || job.key.get().is_some_and(|key| self.lost.contains(&key))
            || self.is_of_session(&job.session)
    }

    pub(super) fn has_series(&self, series: &SeriesRecord) -> bool {
        let job = series.job.as_deref();
        job.is_some_and(|job| self.has_job(job))
            || self.is_of_session(&series.session)
            || self.metrics.iter().any(|(of_job, change)| {
                series.metric.name == change.metric
                    && job.map(|job| std::ptr::from_ref(job).addr()) == *of_job
                    && StepLevel::of_labels(|label| series.labels.get(label).is_some()) == change.level
            })
    }

    fn is_of_session(&self, session: &SessionRecord) -> bool {
        self.session.is_some_and(|ended| std::ptr::eq(ended, session))
    }
}
