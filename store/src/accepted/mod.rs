//! Content of one transaction: accepted frames, whose session ids are replaced by records.

mod loss;
mod records;
mod stacks;
mod store_id;

use std::collections::HashMap;
use std::sync::Arc;

use polymeter_proto::ledger::{
    Firing, JobDetails, JobFacts, JobOwner, KeptInterval, Mark, PlanChange, RequestRefused, Tally,
};
use polymeter_proto::series::{Identifier, SessionId};

pub use self::loss::{LossReason, LossRecord, Losses, OutOfRange};
pub use self::records::{
    HistogramRecord, JobRecord, LedgerLine, SampleBlock, SeriesRecord, SessionRecord, WindowColumns,
};
pub use self::stacks::{FunctionRecord, STACK_DEPTH, StackBlock, StackRecord, StackSamples};
pub use self::store_id::StoreId;

/// One frame of one session, or a range of frames that will never arrive, in order.
#[derive(Debug)]
pub struct Accepted {
    pub session: Arc<SessionRecord>,
    /// Last sequence number of the session after this is stored.
    pub sequence: u64,
    /// Last sequence number of the session before it. A store without that frame has lost it.
    pub follows: u64,
    /// Microseconds since the epoch.
    pub received_us: i64,
    /// How far the clock of the node is ahead of the collector's; 0 if it is not by much.
    pub clock_offset_us: i64,
    pub samples: Vec<SampleBlock>,
    /// Histograms of windows of jobs and nodes.
    pub histograms: Vec<HistogramRecord>,
    pub stacks: Vec<StackBlock>,
    /// Samples that rings kept.
    pub kept: Vec<SampleBlock>,
    pub kept_intervals: Vec<(Arc<JobRecord>, KeptInterval)>,
    /// Triggers that fired.
    pub fired: Vec<(Arc<JobRecord>, Firing)>,
    /// Samples whose times are out of range, and which are quarantined.
    pub quarantined: Vec<SampleBlock>,
    /// Extent of the samples whose times are out of range, quarantined or rejected.
    pub out_of_range: Option<OutOfRange>,
    pub losses: Vec<LossRecord>,
    /// Tallies since the session began, by line of the ledger.
    pub tallies: Vec<(Arc<LedgerLine>, Tally)>,
    /// Changes of plan, of the steps or tasks of a job, or of a whole job or node.
    pub plan_changes: Vec<(Option<Arc<JobRecord>>, PlanChange)>,
    pub marks: Vec<(Option<Arc<JobRecord>>, Mark)>,
    /// Jobs with samples before all that was known of them, each with the time, in microseconds since the
    /// epoch: the clock of the node was set back.
    pub job_starts: Vec<(Arc<JobRecord>, i64)>,
    /// Jobs that ended on the session's node, each with the time, in microseconds since the epoch.
    pub job_ends: Vec<(Arc<JobRecord>, i64)>,
    pub job_facts: Vec<(Arc<JobRecord>, JobFacts)>,
    /// Names and requested resources of jobs from schedulers.
    pub job_details: Vec<(Arc<JobRecord>, JobDetails)>,
    /// Time at which the agent stopped normally, in microseconds since the epoch; none if it did not report
    /// that.
    pub session_end_us: Option<i64>,
    /// Owners of jobs that were announced without one.
    pub job_owners: Vec<(Arc<JobRecord>, JobOwner)>,
    pub refused_requests: Vec<(Arc<JobRecord>, RequestRefused)>,
}

impl Accepted {
    /// Returns a frame without content, which advances the session to `sequence`.
    pub const fn empty(session: Arc<SessionRecord>, sequence: u64, received_us: i64) -> Self {
        Self {
            session,
            sequence,
            follows: sequence.saturating_sub(1),
            received_us,
            clock_offset_us: 0,
            samples: Vec::new(),
            histograms: Vec::new(),
            stacks: Vec::new(),
            kept: Vec::new(),
            kept_intervals: Vec::new(),
            fired: Vec::new(),
            quarantined: Vec::new(),
            out_of_range: None,
            losses: Vec::new(),
            tallies: Vec::new(),
            plan_changes: Vec::new(),
            marks: Vec::new(),
            job_starts: Vec::new(),
            job_ends: Vec::new(),
            job_facts: Vec::new(),
            job_details: Vec::new(),
            session_end_us: None,
            job_owners: Vec::new(),
            refused_requests: Vec::new(),
        }
    }

    /// Adds a loss; combines it with one of the same job, source and reason.
    pub fn add_loss(&mut self, loss: LossRecord) {
        // Some losses have an unknown number of samples, but must be recorded.
        if loss.samples == 0 && !loss.reason.is_uncounted() {
            return;
        }
        match self.losses.iter_mut().find(|known| known.is_alike(&loss)) {
            Some(known) => *known = known.clone().join(loss),
            None => self.losses.push(loss),
        }
    }

    /// Returns the same frame with its events, whose samples are recorded as lost for `reason`.
    pub fn as_loss(&self, reason: LossReason) -> Self {
        let mut empty = Self {
            follows: self.follows,
            losses: self.losses.clone(),
            plan_changes: self.plan_changes.clone(),
            marks: self.marks.clone(),
            job_ends: self.job_ends.clone(),
            job_facts: self.job_facts.clone(),
            job_details: self.job_details.clone(),
            session_end_us: self.session_end_us,
            job_owners: self.job_owners.clone(),
            refused_requests: self.refused_requests.clone(),
            kept_intervals: self.kept_intervals.clone(),
            fired: self.fired.clone(),
            ..Self::empty(Arc::clone(&self.session), self.sequence, self.received_us)
        };
        for samples in self.samples.iter().chain(&self.kept).chain(&self.quarantined) {
            empty.add_loss(LossRecord {
                line: Some(Arc::clone(&samples.line)),
                samples: samples.samples(),
                reason,
                span_us: samples.span_us().unwrap_or((self.received_us, self.received_us)),
            });
        }
        for stacks in &self.stacks {
            empty.add_loss(LossRecord::of_stacks(stacks, reason));
        }
        empty
    }

    /// Returns the same as [`Self::as_loss`] without jobs, sources and events, which may be the values that
    /// the store refuses.
    pub fn as_unattributed_loss(&self, reason: LossReason) -> Self {
        let mut empty = Self::empty(Arc::clone(&self.session), self.sequence, self.received_us);
        for loss in self.as_loss(reason).losses {
            empty.add_loss(LossRecord { line: None, ..loss });
        }
        empty
    }

    pub const fn events(&self) -> usize {
        self.plan_changes.len()
            + self.marks.len()
            + self.job_ends.len()
            + self.job_facts.len()
            + self.job_details.len()
            + self.job_owners.len()
            + self.refused_requests.len()
            + self.kept_intervals.len()
            + self.fired.len()
            + self.session_end_us.is_some() as usize
    }

    /// Returns the number of samples, with kept ones and without quarantined ones.
    pub fn stored(&self) -> u64 {
        self.samples.iter().chain(&self.kept).map(SampleBlock::samples).sum()
    }

    /// Returns the number of rows of samples, with kept ones and without quarantined ones: a window is one.
    pub fn rows(&self) -> usize {
        self.samples.iter().chain(&self.kept).map(|samples| samples.values.len()).sum()
    }

    pub fn rows_quarantined(&self) -> usize {
        self.quarantined.iter().map(|samples| samples.values.len()).sum()
    }

    /// Returns all jobs that it refers to, possibly with duplicates.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<JobRecord>> {
        let of_series = self.series().filter_map(|series| series.job.as_ref());
        let of_lines = self.lines().filter_map(|line| line.job.as_ref());
        let of_changes = self.plan_changes.iter().filter_map(|(job, ..)| job.as_ref());
        let of_stacks = self.stacks.iter().map(|stacks| &stacks.job);
        let of_marks = self.marks.iter().filter_map(|(job, _)| job.as_ref());
        of_series
            .chain(of_lines)
            .chain(of_changes)
            .chain(of_marks)
            .chain(of_stacks)
            .chain(self.job_ends.iter().map(|(job, _)| job))
            .chain(self.job_facts.iter().map(|(job, _)| job))
            .chain(self.job_details.iter().map(|(job, _)| job))
            .chain(self.job_owners.iter().map(|(job, _)| job))
            .chain(self.refused_requests.iter().map(|(job, _)| job))
            .chain(self.kept_intervals.iter().map(|(job, _)| job))
            .chain(self.fired.iter().map(|(job, _)| job))
    }

    /// Returns all lines of the ledger that it changes, possibly with duplicates.
    pub fn lines(&self) -> impl Iterator<Item = &Arc<LedgerLine>> {
        let of_samples =
            self.samples.iter().chain(&self.kept).chain(&self.quarantined).map(|samples| &samples.line);
        let of_losses = self.losses.iter().filter_map(|loss| loss.line.as_ref());
        let of_stacks = self.stacks.iter().map(|stacks| &stacks.line);
        of_samples.chain(of_stacks).chain(of_losses).chain(self.tallies.iter().map(|(line, _)| line))
    }

    /// Returns a time of the node by the collector's clock.
    pub const fn corrected_us(&self, time_us: i64) -> i64 {
        time_us.saturating_sub(self.clock_offset_us)
    }

    /// Returns the time of the newest sample, in microseconds since the epoch.
    pub fn newest_us(&self) -> Option<i64> {
        self.samples.iter().flat_map(|samples| samples.times_us.iter().copied()).max()
    }

    /// Returns the series of its samples, possibly with duplicates.
    pub fn series(&self) -> impl Iterator<Item = &Arc<SeriesRecord>> {
        let all = self.samples.iter().chain(&self.kept).chain(&self.quarantined);
        all.flat_map(|samples| &samples.series)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutcome {
    pub job_id: Identifier,
    /// None for any cluster.
    pub cluster: Option<Identifier>,
    pub facts: JobFacts,
    pub details: JobDetails,
}

/// What became of an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredOutcome {
    Stored,
    UnknownJob,
    /// Several clusters have jobs of that id, and none was named.
    SeveralClusters(Vec<String>),
}

/// Cause in the database of a refused request, which is stored as a change of plan.
pub const REFUSED: &str = "refused";

/// Frames that a store had committed and no longer has: it was replaced by an older copy, or is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingFrames {
    pub session: SessionId,
    pub stored: u64,
    pub expected: u64,
}

/// Checks that `frames` continue a store whose sessions end at `last` without a gap.
pub fn check_gaps(frames: &[Accepted], last: &HashMap<SessionId, u64>) -> Result<(), MissingFrames> {
    let mut last = last.clone();
    for frame in frames {
        let (session, expected) = (frame.session.id, frame.follows);
        let stored = last.entry(session).or_default();
        if *stored < expected {
            return Err(MissingFrames { session, stored: *stored, expected });
        }
        *stored = frame.sequence.max(*stored);
    }
    Ok(())
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Newest stored frame of each session.
    pub through: Vec<(SessionId, u64)>,
    /// Number of stored samples, except for quarantined ones.
    pub rows: u64,
    pub quarantined: u64,
    /// Number of frames that had been stored before, by another collector or in a transaction with an unknown
    /// outcome.
    pub repeated: u64,
}
