//! What one transaction holds: accepted frames, resolved from the ids of their sessions to what they mean.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use polymeter_proto::ledger::{JobFacts, JobOwner, Mark, PlanChange, RequestRefused, Tally};
use polymeter_proto::series::{
    Identifier, JobDescriptor, JobHandle, Labels, MetricDescriptor, Number, SessionDescriptor, SessionId,
};

/// A session, as the store keeps it.
#[derive(Debug)]
pub struct SessionRecord {
    /// Its id.
    pub id: SessionId,
    /// Its node, and the agent's version.
    pub descriptor: SessionDescriptor,
}

/// A job, as one node speaks of it.
#[derive(Debug)]
pub struct JobRecord {
    /// The session of the node.
    pub session: Arc<SessionRecord>,
    /// The session's handle of it. A job whose cgroups go and return has another one each time.
    pub handle: JobHandle,
    /// What the node says of it.
    pub descriptor: JobDescriptor,
    /// The store's key, once it is committed there.
    pub key: OnceLock<i64>,
}

impl JobRecord {
    /// The node.
    pub fn node(&self) -> &Identifier {
        &self.session.descriptor.node
    }
}

/// A series, as the store keeps it.
#[derive(Debug)]
pub struct SeriesRecord {
    /// The session of its node.
    pub session: Arc<SessionRecord>,
    /// The metric.
    pub metric: Arc<MetricDescriptor>,
    /// The job; none for the node's own series.
    pub job: Option<Arc<JobRecord>>,
    /// The labels.
    pub labels: Labels,
    /// The store's id, once it is committed there.
    pub id: OnceLock<i64>,
}

impl SeriesRecord {
    /// Its node.
    pub fn node(&self) -> &Identifier {
        &self.session.descriptor.node
    }
}

/// A line of the ledger: one source of one job, or of the node, in one session. Its identity is that of the tally in the
/// agent, so that a later tally replaces an earlier one of the same counters and never those of another life of the job.
#[derive(Debug)]
pub struct LedgerLine {
    /// The session.
    pub session: Arc<SessionRecord>,
    /// The job; none for the node's own.
    pub job: Option<Arc<JobRecord>>,
    /// The source, as its tallies call it.
    pub source: Identifier,
    /// The store's id, once it is committed there.
    pub id: OnceLock<i64>,
}

/// The samples of several series at common times.
#[derive(Debug)]
pub struct SampleBlock {
    /// The line of the ledger that counts them.
    pub line: Arc<LedgerLine>,
    /// The series that are here, a column of `values` for each.
    pub series: Vec<Arc<SeriesRecord>>,
    /// When the samples were taken, in microseconds since the epoch.
    pub times_us: Vec<i64>,
    /// The bits of the values, column by column, `times_us.len()` to each.
    pub values: Vec<u64>,
}

impl SampleBlock {
    /// Each series with its samples: times in microseconds since the epoch, and values.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<SeriesRecord>, impl Iterator<Item = (i64, f64)>)> {
        self.series.iter().zip(self.values.chunks_exact(self.times_us.len().max(1))).map(
            |(series, column)| {
                let number: Number = series.metric.number;
                let values = column.iter().map(move |bits| number.to_f64(*bits));
                (series, self.times_us.iter().copied().zip(values))
            },
        )
    }
}

/// Samples that are not stored, and why.
#[derive(Debug, Clone)]
pub struct LossRecord {
    /// The line of the ledger that counts them; none where the source is unknown.
    pub line: Option<Arc<LedgerLine>>,
    /// How many.
    pub samples: u64,
    /// Why.
    pub reason: LossReason,
    /// When the oldest and the newest were taken, in microseconds since the epoch.
    pub span_us: (i64, i64),
}

impl LossRecord {
    /// Both losses, which are alike, as one.
    pub fn join(self, other: Self) -> Self {
        let span_us = (self.span_us.0.min(other.span_us.0), self.span_us.1.max(other.span_us.1));
        Self { samples: self.samples.saturating_add(other.samples), span_us, ..self }
    }

    /// Whether it is of the same job and source, for the same reason.
    pub fn is_alike(&self, other: &Self) -> bool {
        let line = |loss: &Self| loss.line.as_ref().map(Arc::as_ptr);
        line(self) == line(other) && self.reason == other.reason
    }
}

/// Samples that are dated outside of what is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfRange {
    /// How many.
    pub samples: u64,
    /// The earliest and the latest time that they bear, in microseconds since the epoch.
    pub span_us: (i64, i64),
}

/// Why samples are not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossReason {
    /// The agent's outbox was full.
    OutboxFull,
    /// They lay in the agent's spool, and are damaged.
    SpoolDamaged,
    /// A collector refused their frame, as it came, until the agent gave it up.
    Refused,
    /// Their times are outside of the range that the collector allows.
    Clock,
    /// Their frame says something that cannot be.
    Contradiction,
    /// Their ids were never explained by the agent, though it was asked, or not within what a dictionary may hold.
    UnknownId,
    /// The store does not take their frame.
    StoreRefused,
    /// They were acknowledged, and this store does not have them: it was lost or replaced since, or another one has them.
    StoreReplaced,
}

/// How many samples were lost, by reason.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Losses([u64; LossReason::ALL.len()]);

impl Losses {
    /// Counts a loss.
    pub fn note(&mut self, loss: &LossRecord) {
        let counts = LossReason::ALL.iter().zip(&mut self.0);
        counts.filter(|(reason, _)| **reason == loss.reason).for_each(|(_, count)| *count += loss.samples);
    }

    /// Adds what was lost elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    /// The counts, in the order of [`LossReason::ALL`].
    pub const fn counts(&self) -> [u64; LossReason::ALL.len()] {
        self.0
    }

    /// What was lost in the collector, for whichever reason.
    pub fn here(&self) -> u64 {
        LossReason::ALL
            .iter()
            .zip(self.0)
            .filter(|(reason, _)| reason.is_here())
            .map(|(_, count)| count)
            .sum()
    }
}

impl LossReason {
    /// All there are.
    pub const ALL: [Self; 8] = [
        Self::OutboxFull,
        Self::Refused,
        Self::SpoolDamaged,
        Self::Clock,
        Self::Contradiction,
        Self::UnknownId,
        Self::StoreRefused,
        Self::StoreReplaced,
    ];

    /// The reason as it stands in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OutboxFull => "outbox_full",
            Self::Refused => "refused",
            Self::SpoolDamaged => "spool_damaged",
            Self::Clock => "clock",
            Self::Contradiction => "contradiction",
            Self::UnknownId => "unknown_id",
            Self::StoreRefused => "store_refused",
            Self::StoreReplaced => "store_replaced",
        }
    }

    /// Whether the number of the lost samples is unknown.
    pub const fn is_uncounted(self) -> bool {
        matches!(self, Self::SpoolDamaged | Self::StoreReplaced)
    }

    /// Whether they were lost here, and not at the agent.
    pub const fn is_here(self) -> bool {
        !matches!(self, Self::OutboxFull | Self::Refused | Self::SpoolDamaged)
    }
}

/// One frame (or a run of frames that will never come) of one session, in order.
#[derive(Debug)]
pub struct Accepted {
    /// The session.
    pub session: Arc<SessionRecord>,
    /// The session's last sequence number once this is stored.
    pub sequence: u64,
    /// The session's last sequence number before it. A store that does not have that frame has lost it.
    pub follows: u64,
    /// When it arrived, in microseconds since the epoch.
    pub received_us: i64,
    /// Its samples.
    pub samples: Vec<SampleBlock>,
    /// Its samples that are stored apart from others, because of their times.
    pub quarantined: Vec<SampleBlock>,
    /// Its samples that are dated outside of what is possible, whatever becomes of them.
    pub out_of_range: Option<OutOfRange>,
    /// Its samples that are not stored.
    pub losses: Vec<LossRecord>,
    /// Tallies since the session began, by line of the ledger.
    pub tallies: Vec<(Arc<LedgerLine>, Tally)>,
    /// Changes of plan.
    pub plan_changes: Vec<(Option<Arc<JobRecord>>, PlanChange)>,
    /// Instants that somebody named.
    pub marks: Vec<(Option<Arc<JobRecord>>, Mark)>,
    /// Jobs that ended on the session's node, and when, in microseconds since the epoch.
    pub job_ends: Vec<(Arc<JobRecord>, i64)>,
    /// What schedulers told of jobs.
    pub job_facts: Vec<(Arc<JobRecord>, JobFacts)>,
    /// The time at which the agent stopped in order, in microseconds since the epoch; none if it did not say so.
    pub session_end_us: Option<i64>,
    /// Owners of jobs that were announced without one.
    pub job_owners: Vec<(Arc<JobRecord>, JobOwner)>,
    /// Requests at submission that were not granted.
    pub refused_requests: Vec<(Arc<JobRecord>, RequestRefused)>,
}

impl Accepted {
    /// Nothing but the advance of the session to `sequence`.
    pub const fn empty(session: Arc<SessionRecord>, sequence: u64, received_us: i64) -> Self {
        Self {
            session,
            sequence,
            follows: sequence.saturating_sub(1),
            received_us,
            samples: Vec::new(),
            quarantined: Vec::new(),
            out_of_range: None,
            losses: Vec::new(),
            tallies: Vec::new(),
            plan_changes: Vec::new(),
            marks: Vec::new(),
            job_ends: Vec::new(),
            job_facts: Vec::new(),
            session_end_us: None,
            job_owners: Vec::new(),
            refused_requests: Vec::new(),
        }
    }

    /// Adds a loss, to a like one where there is one.
    pub fn lose(&mut self, loss: LossRecord) {
        // Some losses have an unknown number of samples, and must be recorded all the same.
        if loss.samples == 0 && !loss.reason.is_uncounted() {
            return;
        }
        match self.losses.iter_mut().find(|known| known.is_alike(&loss)) {
            Some(known) => *known = known.clone().join(loss),
            None => self.losses.push(loss),
        }
    }

    /// The same frame, but for its content, which counts as lost for `reason`.
    pub fn as_loss(&self, reason: LossReason) -> Self {
        let mut nothing = Self::empty(Arc::clone(&self.session), self.sequence, self.received_us);
        nothing.follows = self.follows;
        nothing.losses.clone_from(&self.losses);
        for samples in self.samples.iter().chain(&self.quarantined) {
            let times = || samples.times_us.iter().copied();
            nothing.lose(LossRecord {
                line: Some(Arc::clone(&samples.line)),
                samples: samples.values.len() as u64,
                reason,
                span_us: times().min().zip(times().max()).unwrap_or((self.received_us, self.received_us)),
            });
        }
        nothing
    }

    /// As [`Self::as_loss`], but without a word of jobs and sources, which may be what the store does not take.
    pub fn as_unattributed_loss(&self, reason: LossReason) -> Self {
        let mut nothing = Self::empty(Arc::clone(&self.session), self.sequence, self.received_us);
        for loss in self.as_loss(reason).losses {
            nothing.lose(LossRecord { line: None, ..loss });
        }
        nothing
    }

    /// How many rows of samples it makes, without those apart.
    pub fn rows(&self) -> usize {
        self.samples.iter().map(|samples| samples.values.len()).sum()
    }

    /// How many rows of quarantined samples it makes.
    pub fn rows_quarantined(&self) -> usize {
        self.quarantined.iter().map(|samples| samples.values.len()).sum()
    }

    /// All jobs that it speaks of, some more than once.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<JobRecord>> {
        let of_series = self.series().filter_map(|series| series.job.as_ref());
        let of_lines = self.lines().filter_map(|line| line.job.as_ref());
        let of_changes = self.plan_changes.iter().filter_map(|(job, _)| job.as_ref());
        let of_marks = self.marks.iter().filter_map(|(job, _)| job.as_ref());
        of_series
            .chain(of_lines)
            .chain(of_changes)
            .chain(of_marks)
            .chain(self.job_ends.iter().map(|(job, _)| job))
            .chain(self.job_facts.iter().map(|(job, _)| job))
            .chain(self.job_owners.iter().map(|(job, _)| job))
            .chain(self.refused_requests.iter().map(|(job, _)| job))
    }

    /// All lines of the ledger that it changes, some more than once.
    pub fn lines(&self) -> impl Iterator<Item = &Arc<LedgerLine>> {
        let of_samples = self.samples.iter().chain(&self.quarantined).map(|samples| &samples.line);
        let of_losses = self.losses.iter().filter_map(|loss| loss.line.as_ref());
        of_samples.chain(of_losses).chain(self.tallies.iter().map(|(line, _)| line))
    }

    /// The time of its newest sample, in microseconds since the epoch.
    pub fn newest_us(&self) -> Option<i64> {
        self.samples.iter().flat_map(|samples| samples.times_us.iter().copied()).max()
    }

    /// All series that it has samples of, some more than once.
    pub fn series(&self) -> impl Iterator<Item = &Arc<SeriesRecord>> {
        self.samples.iter().chain(&self.quarantined).flat_map(|samples| &samples.series)
    }
}

/// How a job ended, as the scheduler's controller says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The job.
    pub job_id: Identifier,
    /// Its cluster; none for any.
    pub cluster: Option<Identifier>,
    /// The state, the exit status and the signal.
    pub facts: JobFacts,
}

/// The cause under which a refused request stands among the changes of plan.
pub const REFUSED: &str = "refused";

/// A store that lacks frames which it had committed: it was replaced by an older copy, or begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingFrames {
    /// Whose frames.
    pub session: SessionId,
    /// The newest frame that the store has.
    pub stored: u64,
    /// The newest frame that it had.
    pub expected: u64,
}

/// Checks that a store whose sessions end at `last` can take `frames` without a gap.
///
/// # Errors
/// When frames are missing in the store.
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

/// What a store has done.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Up to where each session is stored now.
    pub through: Vec<(SessionId, u64)>,
    /// Rows of samples that were written, without those apart.
    pub rows: u64,
    /// Rows of samples that were written apart.
    pub quarantined: u64,
    /// Frames that were stored before, by another collector or in a transaction whose outcome was not known.
    pub repeated: u64,
}
