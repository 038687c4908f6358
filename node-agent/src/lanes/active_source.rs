//! A source under sampling: its groups of metrics, its tally and its cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::batch::{Batch, Full, Instant};
use polymeter_proto::catalogue::ring_source;
use polymeter_proto::ledger::Tally;
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, JobHandle, ShapeId};
use rustix::io::Errno;

use super::series_progress::{Counters, SeriesProgress};
use super::slow::{Finished, SlowReads, with_retired};
use super::source_group::{Group, ReadCost, SourceKey, StackRecord, UserValue};
use crate::clock;
use crate::counters::CpuAccount;
use crate::sources::reader_thread::FinishedRead;
use crate::sources::{Outcome, ReadBuffer, Reading, Slot, Source, reads_cpu_account};

/// Failed reads in a row after which a source is reported as failing.
const RETRIES_REPORTED: u32 = 3;

/// A source that the sampler reads, or has read by a thread.
#[derive(Debug)]
pub struct ActiveSource {
    pub key: Arc<SourceKey>,
    source: Source,
    reading: Reading,
    counters: Counters,
    /// Groups of the plan and, in the slow lane, those of a former plan that wait for a read under way.
    pub(super) groups: Vec<Group>,
    planned: usize,
    /// Series of values that users supply, in groups without deadlines, by shape.
    user_supplied: BTreeMap<ShapeId, Group>,
    pub(super) tally: Tally,
    /// None if nothing of it goes to the ring.
    pub(super) ring: Option<Box<RingTally>>,
    pub(super) cost: ReadCost,
    /// None for sources of the node.
    cpu_account: Option<Arc<CpuAccount>>,
    /// Part of the cost that was charged to the account.
    charged_ns: u64,
    /// True if it reads an account, so that the agent's CPU time must be divided before a read.
    pub(super) reads_cpu_account: bool,
    /// Tick at which `reading` was made, so that several groups share one read.
    read_at_tick: u64,
    pub(super) time_us: i64,
    outcome: Outcome,
    retries: u32,
    /// Batch with its newest report, and the index of the report there.
    pub(super) reported_in: (u64, usize),
    /// True once the supervisor was notified that the reads fail, until one succeeds.
    pub(super) is_failure_reported: bool,
    /// True once the supervisor was notified that the source changed, ended or failed.
    pub(super) is_reported: bool,
    pub(super) slow: SlowReads,
}

/// Counts of the samples of a source that go to the ring.
#[derive(Debug)]
pub(super) struct RingTally {
    pub(super) key: Arc<SourceKey>,
    pub(super) tally: Tally,
    /// Batch with its newest report, and the index of the report there.
    pub(super) reported_in: (u64, usize),
}

impl RingTally {
    fn of(key: &SourceKey) -> Option<Box<Self>> {
        let name = Identifier::escaped(ring_source(key.name.as_str()).as_bytes())?;
        let key = Arc::new(SourceKey { job: key.job.clone(), name });
        Some(Box::new(Self { key, tally: Tally::default(), reported_in: (0, 0) }))
    }
}

/// Number of a tick, and when it began by both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tick {
    pub(super) number: u64,
    pub(super) began_ns: u64,
    pub(super) realtime_us: i64,
}

impl ActiveSource {
    pub fn new(key: Arc<SourceKey>, source: Source, groups: Vec<Group>) -> Self {
        let mut reading = Reading::absent(source.slots().len());
        let mut slow = SlowReads::default();
        if matches!(source, Source::Threaded(_)) {
            slow.reserve(groups.len());
        }
        if matches!(&source, Source::Threaded(source) if source.reads_wanted_only()) {
            reading = reading.wanted_only();
        }
        let ring = groups.iter().any(|group| group.is_ring).then(|| RingTally::of(&key)).flatten();
        Self {
            ring,
            key,
            cpu_account: None,
            charged_ns: 0,
            reads_cpu_account: reads_cpu_account(source.slots()),
            source,
            reading,
            counters: Counters::default(),
            planned: groups.len(),
            groups,
            user_supplied: BTreeMap::new(),
            tally: Tally::default(),
            cost: ReadCost::default(),
            read_at_tick: 0,
            time_us: 0,
            outcome: Outcome::Read,
            retries: 0,
            reported_in: (0, 0),
            is_failure_reported: false,
            is_reported: false,
            slow,
        }
    }

    /// Lets its counters continue from the progress of their series, so that they never decrease.
    pub fn with_progress(self, progress: impl FnMut(&Slot) -> Arc<SeriesProgress>) -> Self {
        let counters = Counters::new(self.key.name.as_str(), self.source.slots(), progress);
        Self { counters, ..self }
    }

    pub fn with_cpu_account(self, account: Option<Arc<CpuAccount>>) -> Self {
        Self { cpu_account: account, ..self }
    }

    /// Time of its reads that is not charged to an account yet.
    pub(super) const fn uncharged_ns(&self) -> u64 {
        self.cost.total_ns.saturating_sub(self.charged_ns)
    }

    pub(super) fn charge(&mut self) -> Option<&CpuAccount> {
        self.charged_ns = self.cost.total_ns;
        self.cpu_account.as_deref()
    }

    pub(super) fn store_progress(&self) {
        self.counters.store_progress();
    }

    pub(super) fn continue_from(&mut self, replaced: &mut Self) {
        self.tally = replaced.tally;
        if replaced.ring.is_some() {
            self.ring = replaced.ring.take();
        }
        self.cost = replaced.cost;
        self.charged_ns = replaced.charged_ns;
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    pub(super) const fn is_slow(&self) -> bool {
        matches!(self.source, Source::Threaded(_))
    }

    pub(super) fn is_of(&self, job: JobHandle) -> bool {
        self.key.job.as_ref().is_some_and(|of| of.handle == job)
    }

    pub(super) const fn planned(&self) -> usize {
        self.planned
    }

    pub fn periods(&self) -> impl Iterator<Item = Period> {
        self.groups.iter().take(self.planned).map(Group::period)
    }

    /// The windows of the groups that are replaced must have ended, unless they wait for a read.
    pub(super) fn regroup(&mut self, mut groups: Vec<Group>) {
        self.planned = groups.len();
        if self.ring.is_none() && groups.iter().any(|group| group.is_ring) {
            self.ring = RingTally::of(&self.key);
        }
        for group in &mut groups {
            self.groups.iter().for_each(|former| group.continue_from(former));
        }
        self.groups = if self.slow.has_waiting() {
            with_retired(groups, std::mem::take(&mut self.groups), &mut self.slow)
        } else {
            self.slow.reserve(if self.is_slow() { groups.len() } else { 0 });
            groups
        };
    }

    /// Reads the source, unless another group has done so at this tick. `now_ns` is the time, and becomes the
    /// time after the read: one clock reading serves as the end of one window and the beginning of the next.
    pub(super) fn read(&mut self, buffer: &mut ReadBuffer, tick: Tick, now_ns: &mut u64) -> Outcome {
        if self.read_at_tick == tick.number {
            return self.outcome;
        }
        let began_ns = *now_ns;
        let outcome = self.source.read(buffer, &mut self.reading);
        self.take_outcome(outcome);
        *now_ns = clock::monotonic_ns();
        self.cost.add_read(now_ns.saturating_sub(began_ns));
        self.read_at_tick = tick.number;
        let since_us = began_ns.saturating_sub(tick.began_ns) / 1_000;
        self.time_us = tick.realtime_us.saturating_add_unsigned(since_us);
        self.outcome
    }

    fn take_outcome(&mut self, outcome: Outcome) {
        self.outcome = outcome;
        if outcome.has_values() {
            (self.retries, self.is_failure_reported) = (0, false);
            self.counters.raise(&mut self.reading);
        } else {
            self.reading.clear();
            self.retries += u32::from(matches!(outcome, Outcome::Retry(_)));
        }
    }

    pub(super) const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Error of its reads, if they have failed often enough to be reported.
    pub(super) const fn failing(&self) -> Option<Errno> {
        match self.outcome {
            Outcome::Retry(errno) if self.retries >= RETRIES_REPORTED => Some(errno),
            Outcome::Retry(_) | Outcome::Read | Outcome::Changed | Outcome::Gone | Outcome::Fault(_) => None,
        }
    }

    /// Makes its thread read it, and signal the end by `finished`.
    pub(super) fn request_read(&mut self, finished: &Finished) {
        self.want_waiting();
        if let Source::Threaded(source) = &self.source {
            let reading = std::mem::take(&mut self.reading);
            let period = self.groups.iter().take(self.planned).map(|group| group.sampled).min();
            if let Err(reading) = source.request(reading, period, finished) {
                self.reading = reading;
            }
        }
    }

    /// Tells a source that reads only what is wanted what that is: the values of the groups that wait.
    fn want_waiting(&mut self) {
        if !self.reading.has_wanted() {
            return;
        }
        self.reading.want_nothing();
        for group in self.slow.waiting_groups() {
            let slots = self.groups.get(group).map(|group| &*group.slots).unwrap_or_default();
            slots.iter().for_each(|slot| self.reading.want(*slot));
        }
    }

    /// True if the values of a group were wanted of the last read. A deadline that passed during it may have
    /// been that of others.
    pub(super) fn was_wanted(&self, group: usize) -> bool {
        let slots = self.groups.get(group).map(|group| &*group.slots).unwrap_or_default();
        slots.iter().all(|slot| self.reading.is_wanted(*slot))
    }

    /// True if its thread must read it once more before it is closed.
    pub(super) fn has_last_read(&self) -> bool {
        matches!(&self.source, Source::Threaded(source) if source.has_last_read())
    }

    pub(super) fn request_last_read(&mut self, finished: &Finished) {
        if self.has_last_read() && self.slow.read_now(self.planned, clock::monotonic_ns()) {
            self.request_read(finished);
        }
    }

    /// True if its last read has not finished, so that nobody knows what it took since the one before.
    pub(super) fn is_unread(&self) -> bool {
        self.has_last_read() && self.slow.is_busy()
    }

    /// Takes the call stacks of its last read, with the shape of the metric that they belong to.
    pub(super) fn take_stacks(&mut self) -> Option<StackRecord> {
        let profile = self.reading.take_stacks()?;
        Some(StackRecord { shape: Arc::clone(&self.groups.first()?.shape), profile })
    }

    /// Counts the samples of call stacks. Returns these counts alone.
    pub(super) fn count_stacks(&mut self, record: &StackRecord, is_dropped: bool) -> Tally {
        let (taken, missed) = (record.profile.samples(), record.profile.lost);
        let due = taken.saturating_add(missed);
        let dropped = if is_dropped { taken } else { 0 };
        let counted = Tally { due, taken, missed, dropped, ..Tally::default() };
        self.tally.add(&counted);
        counted
    }

    /// Number of values that the finished read of its thread may have; none if no read has finished.
    pub(super) fn finished_values(&self) -> Option<usize> {
        let Source::Threaded(source) = &self.source else { return None };
        source.has_finished().then(|| source.slots().len())
    }

    /// Takes over the values of the read that its thread has finished, if any. The caller records them.
    pub(super) fn take_finished(&mut self) -> Option<FinishedRead> {
        let Source::Threaded(source) = &self.source else { return None };
        let mut finished = source.take_finished()?;
        self.reading = std::mem::take(&mut finished.reading);
        self.take_outcome(finished.outcome);
        self.cost.add_read(finished.cpu_ns);
        Some(finished)
    }

    /// Returns how many values were present.
    pub(super) fn record(
        &mut self,
        group: usize,
        deadline: Option<u64>,
        batch: &mut Batch,
        batch_number: u64,
    ) -> Result<u64, Full> {
        let Some(group) = self.groups.get_mut(group) else { return Ok(0) };
        if let Some(window) = &mut group.window {
            let values = group.slots.iter().map(|slot| self.reading.get(*slot));
            return Ok(window.add(deadline, self.time_us, values));
        }
        let index = group.index_in(batch, batch_number);
        let instant = Instant { deadline, time_us: self.time_us };
        // In the common case one group holds all values of a source, and none is absent.
        if group.is_in_order
            && let Some(bits) = self.reading.whole().filter(|bits| bits.len() == group.slots.len())
            && !bits.is_empty()
        {
            return batch.push_whole(index, instant, bits);
        }
        let value = |slot: &u32| self.reading.get(*slot);
        if group.slots.iter().all(|slot| value(slot).is_none()) {
            return Ok(0);
        }
        batch.push(index, instant, group.slots.iter().map(value))
    }

    /// True if the values of its last reading belong to a later window of a group than the open one.
    pub(super) fn is_window_over(&self, group: usize, deadline: Option<u64>) -> bool {
        let window = self.groups.get(group).and_then(|group| group.window.as_ref());
        window.is_some_and(|window| window.is_over(deadline, self.time_us))
    }

    /// Appends the row of the open window of a group, if it has one with samples.
    pub(super) fn record_window(
        &mut self,
        group: usize,
        batch: &mut Batch,
        batch_number: u64,
    ) -> Result<(), Full> {
        let Some(group) = self.groups.get_mut(group) else { return Ok(()) };
        if group.open_samples() == 0 {
            return Ok(());
        }
        let index = group.index_in(batch, batch_number);
        let Some(window) = &mut group.window else { return Ok(()) };
        window.push(batch, index, &group.shape)
    }

    /// Ends the open window of a group without a row: its samples are dropped. Returns these counts alone.
    pub(super) fn drop_window(&mut self, group: usize) -> Tally {
        let Some(group) = self.groups.get_mut(group) else { return Tally::default() };
        let counted = Tally { dropped: group.open_samples(), ..Tally::default() };
        if let Some(window) = &mut group.window {
            window.end();
        }
        self.tally.add(&counted);
        counted
    }

    /// Appends values that a user supplied to the batch with the number `batch_number`.
    pub(super) fn record_user_value(
        &mut self,
        value: &UserValue,
        batch: &mut Batch,
        batch_number: u64,
    ) -> Result<u64, Full> {
        let group = self
            .user_supplied
            .entry(value.shape.id)
            .or_insert_with(|| Group::new(Arc::clone(&value.shape), Vec::new()));
        let index = group.index_in(batch, batch_number);
        let instant = Instant { deadline: None, time_us: value.time_us };
        batch.push_whole(index, instant, &value.bits)
    }

    /// Counts values that a user supplied, as due when they arrived.
    pub(super) const fn count_user_value(&mut self, value: &UserValue, recorded: Result<u64, Full>) -> Tally {
        let count = value.bits.len() as u64;
        let dropped = if recorded.is_ok() { 0 } else { count };
        let counted = Tally { due: count, taken: count, late: 0, missed: 0, absent: 0, dropped, not_kept: 0 };
        self.tally.add(&counted);
        counted
    }

    /// How many values of one group its last reading has.
    fn present(&self, group: &Group) -> u64 {
        group.slots.iter().filter(|slot| self.reading.get(**slot).is_some()).count() as u64
    }

    /// Number of values of one group that were due at its last reading: those that its device has.
    fn due(&self, group: &Group) -> u64 {
        let columns = group.columns();
        if !self.reading.has_lacking() {
            return columns;
        }
        columns - group.slots.iter().filter(|slot| self.reading.is_lacking(**slot)).count() as u64
    }

    pub(super) fn is_ring(&self, group: usize) -> bool {
        self.groups.get(group).is_some_and(|group| group.is_ring)
    }

    /// Adds counts of a group to the tally of what is sent, or of what goes to the ring.
    fn add_counts(&mut self, group: usize, counted: &Tally) {
        match &mut self.ring {
            Some(ring) if self.groups.get(group).is_some_and(|group| group.is_ring) => {
                ring.tally.add(counted)
            }
            _ => self.tally.add(counted),
        }
    }

    /// Counts the samples of one group at one deadline, and `missed` deadlines before it. Returns these
    /// counts alone.
    pub(super) fn count(
        &mut self,
        group: usize,
        missed: u64,
        late: bool,
        recorded: Result<u64, Full>,
    ) -> Tally {
        let Some(of) = self.groups.get(group) else { return Tally::default() };
        let (columns, due) = (of.columns(), self.due(of));
        let present = recorded.unwrap_or_else(|Full| self.present(of));
        let counted = Tally {
            due: columns * missed + due,
            missed: columns * missed,
            taken: present,
            absent: due.saturating_sub(present),
            late: if late { present } else { 0 },
            dropped: if recorded.is_ok() { 0 } else { present },
            not_kept: 0,
        };
        self.add_counts(group, &counted);
        counted
    }

    /// Counts `missed` deadlines of one group without a read. Returns these counts alone.
    pub(super) fn count_missed(&mut self, group: usize, missed: u64) -> Tally {
        let columns = self.groups.get(group).map_or(0, Group::columns);
        let samples = columns * missed;
        let counted = Tally { due: samples, missed: samples, ..Tally::default() };
        self.add_counts(group, &counted);
        counted
    }

    /// Counts all deadlines that wait for a read as missed, since their values will not be recorded.
    pub(super) fn give_up_waiting(&mut self) -> Tally {
        let mut sum = Tally::default();
        while let Some(waiting) = self.slow.next_waiting() {
            sum.add(&self.count_missed(waiting.group, 1));
        }
        if self.slow.take_wanted_again() {
            for group in 0..self.planned {
                sum.add(&self.count_missed(group, 1));
            }
        }
        sum
    }

    /// Records the time of a value of a group from the slow lane, on the monotonic clock. Returns false for a
    /// group of a former plan whose series have a value with this time already.
    pub(super) fn take_time(&mut self, group: usize, at_ns: u64) -> bool {
        let Some(taken) = self.groups.get(group) else { return false };
        if group >= self.planned
            && self.groups.iter().enumerate().any(|(other, of_plan)| {
                other != group
                    && of_plan.recorded_ns == at_ns
                    && of_plan.slots.iter().any(|slot| taken.slots.contains(slot))
            })
        {
            return false;
        }
        self.groups.iter_mut().skip(group).take(1).for_each(|taken| taken.recorded_ns = at_ns);
        true
    }

    /// Drops the groups of a former plan, once nothing waits for their values.
    pub(super) fn drop_retired(&mut self) {
        self.groups.truncate(self.planned);
    }
}
