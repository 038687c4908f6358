//! The sampler: one thread that reads every source at its deadlines, and does nothing else.
//!
//! It takes no lock, allocates nothing while the plan stands, and makes one system call for a tick beside the reads
//! themselves: the wait. It appends what it has read to a batch; full batches go to the sender, and empty ones come
//! back, through queues on which neither side can make the other wait.
//!
//! Sources of the slow lane are read by threads of their own: the sampler requests a read at a deadline, goes on, and
//! records the values when the read has finished ([`super::slow_sources`]).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use polymeter_proto::batch::Full;
use polymeter_proto::ledger::{Event, Tally};
use polymeter_proto::period::Period;

use super::active_source::{ActiveSource, Group, SourceId, Tick};
use super::channels::{Channels, Command, EventRecord, Notice, SampleBatch, SourceReport, UserValue};
use super::schedule::{Due, Schedule};
use super::slow_sources::SlowSources;
use crate::clock;
use crate::counters::Counters;
use crate::sources::{Outcome, ReadBuffer};

/// A sample is late when it is read after this part of its period has passed since the deadline.
pub(super) const LATE_PART: u64 = 10;

/// The interval at which the tallies of all sources go to the sender, in nanoseconds.
const REPORT_NS: u64 = 1_000_000_000;

/// The number and the length of the waits at the end for a batch, while all are with the sender.
const END_WAITS: u32 = 1_000;
const END_WAIT: Duration = Duration::from_millis(1);

/// An entry of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    /// One group of one source.
    Group { source: u32, group: u32 },
    /// The batch, to be handed on.
    Flush,
}

/// The state of the sampler's thread.
#[derive(Debug)]
pub struct Sampler {
    pub(super) channels: Arc<Channels>,
    counters: Arc<Counters>,
    pub(super) schedule: Schedule<Item>,
    pub(super) sources: Vec<Option<Box<ActiveSource>>>,
    pub(super) slow: SlowSources,
    buffer: ReadBuffer,
    pub(super) outgoing: SampleBatch,
    pub(super) batch_number: u64,
    tick_number: u64,
    reported_ns: u64,
    /// The grid time up to which deadlines were taken. A new source's deadlines count from here: one that passes
    /// before the source's command is handled is late, and not lost.
    taken_until_ns: u64,
    /// The difference between grid time and monotonic time: the wall clock's lead when the sampler began.
    grid_offset_ns: u64,
}

impl Sampler {
    /// Creates a sampler without sources, which hands its batch on every `flush`.
    pub fn new(channels: Arc<Channels>, counters: Arc<Counters>, flush: Period) -> Self {
        let monotonic_ns = clock::monotonic_ns();
        let grid_offset_ns = clock::realtime_ns().saturating_sub(monotonic_ns);
        let mut schedule = Schedule::default();
        schedule.insert(Item::Flush, flush, monotonic_ns + grid_offset_ns);
        let outgoing = channels.take_empty().unwrap_or_default();
        Self {
            channels,
            counters,
            schedule,
            sources: Vec::new(),
            slow: SlowSources::default(),
            buffer: ReadBuffer::default(),
            outgoing,
            batch_number: 1,
            tick_number: 0,
            reported_ns: 0,
            taken_until_ns: monotonic_ns + grid_offset_ns,
            grid_offset_ns,
        }
    }

    /// Samples until the command to stop, and hands on the samples that it holds.
    pub fn run(mut self) {
        let mut due = Vec::with_capacity(64);
        loop {
            due.clear();
            // The two clocks one right after the other, since the one dates what the other measures.
            let (realtime_us, now_ns) = (clock::realtime_us(), clock::monotonic_ns());
            self.taken_until_ns = now_ns + self.grid_offset_ns;
            self.schedule.take_due(self.taken_until_ns, &mut due);
            if !due.is_empty() {
                self.tick(now_ns, realtime_us, &due);
            }
            if self.channels.finished.take() || self.slow.is_closing() {
                self.collect_finished();
            }
            // After all that is due, so that a change of plan never costs a deadline.
            while let Some(command) = self.next_command() {
                if !self.handle_command(command) {
                    self.end();
                    return;
                }
            }
            self.wait();
        }
    }

    /// Sleeps until the next deadline, command, or end of a slow read.
    fn wait(&self) {
        let next_ns = self.schedule.next_ns().map(|grid_ns| grid_ns.saturating_sub(self.grid_offset_ns));
        self.channels.finished.timer.wait(self.slow.next_ns(next_ns));
    }

    fn tick(&mut self, began_ns: u64, realtime_us: i64, due: &[Due<Item>]) {
        self.tick_number += 1;
        let tick = Tick { number: self.tick_number, began_ns, realtime_us };
        let mut now_ns = began_ns;
        let before = self.outgoing.sum;
        let mut flush = false;
        for due in due {
            match due.item {
                Item::Group { source, group } => {
                    self.sample(tick, &mut now_ns, SourceId(source), group as usize, due)
                }
                Item::Flush => flush = true,
            }
        }
        if self.outgoing.sum != before {
            self.publish();
        }
        if flush {
            self.flush(self.reports_are_due(began_ns));
        }
    }

    fn sample(&mut self, tick: Tick, now_ns: &mut u64, id: SourceId, group: usize, due: &Due<Item>) {
        let Some(Some(source)) = self.sources.get_mut(id.0 as usize) else { return };
        if source.is_slow() {
            let deadline_ns = tick.began_ns.saturating_sub(due.lateness_ns);
            self.request_slow(id, group, due, deadline_ns, tick.began_ns);
            return;
        }
        let period_ns = source.groups.get(group).map_or(0, |group| group.period().as_nanos());
        let outcome = source.read(&mut self.buffer, tick, now_ns);
        let late = due.lateness_ns > period_ns / LATE_PART;
        let mut recorder = Recorder {
            channels: &self.channels,
            outgoing: &mut self.outgoing,
            batch_number: &mut self.batch_number,
        };
        let recorded = recorder.record(source, group, Some(due.deadline));
        let counted = source.count(group, due.missed, late, recorded);
        recorder.count(&counted);
        if outcome != Outcome::Read {
            report(&self.channels, id, source);
        }
    }

    /// Makes the sums visible to other threads.
    pub(super) fn publish(&self) {
        let sum = &self.outgoing.sum;
        self.counters.due.store(sum.due, Relaxed);
        self.counters.taken.store(sum.taken, Relaxed);
        self.counters.late.store(sum.late, Relaxed);
        self.counters.missed.store(sum.missed, Relaxed);
        self.counters.absent.store(sum.absent, Relaxed);
        self.counters.dropped.store(sum.dropped, Relaxed);
    }

    /// Returns true if the tallies of all sources are due to go to the sender.
    const fn reports_are_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.reported_ns) >= REPORT_NS
    }

    /// Hands the batch on, with the tallies of all sources if `report` is true.
    pub(super) fn flush(&mut self, report: bool) {
        if report {
            self.reported_ns = clock::monotonic_ns();
            let reports = self.sources.iter().flatten().map(|source| SourceReport::of(source, false));
            self.outgoing.reports.extend(reports);
        }
        if !self.outgoing.is_empty() && hand_over(&self.channels, &mut self.outgoing) {
            self.batch_number += 1;
        }
    }

    /// Hands on the samples that it holds, and the last reports of all sources.
    fn end(&mut self) {
        self.end_slow_reads();
        let reports = self.sources.iter().flatten().map(|source| SourceReport::of(source, true));
        self.outgoing.reports.extend(reports);
        let event = Event::SessionEnded { at_us: clock::realtime_us() };
        self.outgoing.events.push(EventRecord { job: None, event });
        // Nothing is due any more, so that there is time to wait for the sender to give a batch back.
        for _ in 0..END_WAITS {
            if self.outgoing.is_empty() || hand_over(&self.channels, &mut self.outgoing) {
                return;
            }
            clock::sleep(END_WAIT);
        }
    }

    /// Returns the next command, unless there is no room for the event that it may add: then the manager waits, and sampling
    /// goes on.
    fn next_command(&mut self) -> Option<Command> {
        if self.outgoing.is_full_of_events() {
            self.flush(false);
        }
        if self.outgoing.is_full_of_events() { None } else { self.channels.next_command() }
    }

    /// Handles a command; returns false for the command to stop.
    fn handle_command(&mut self, command: Command) -> bool {
        match command {
            Command::Add(id, source) => self.add(id, source),
            Command::Remove(id) => self.remove(id),
            Command::Exchange { removed, added } => {
                // Those that are removed store the progress of their counters, from which those that are added continue.
                removed.into_iter().for_each(|id| self.remove(id));
                added.into_iter().for_each(|(id, source)| self.add(id, source));
            }
            Command::Regroup(id, groups) => self.regroup(id, groups),
            Command::ReadNow(ids) => self.read_now(ids.into_iter(), |_| true),
            Command::ReadJob(job) => {
                let all = (0..).map(SourceId).take(self.sources.len());
                self.read_now(all, |source| source.is_of(job));
            }
            Command::RecordUserValue(value) => self.record_user_value(&value),
            Command::RecordEvent(record) => self.record_event(*record),
            // The manager may have stopped waiting.
            Command::Confirm(reply) => drop(reply.send(())),
            Command::Flush => self.flush(true),
            Command::FlushForWatch => self.flush(self.reports_are_due(clock::monotonic_ns())),
            Command::Stop => return false,
        }
        true
    }

    pub(super) fn record_event(&mut self, record: EventRecord) {
        let Some(mut record) = self.slow.defer(record) else { return };
        if let Event::JobEnded { at_us, .. } = &mut record.event {
            // Only here the time of its last reading is known.
            *at_us = clock::realtime_us();
        }
        self.outgoing.events.push(record);
    }

    fn add(&mut self, id: SourceId, mut source: Box<ActiveSource>) {
        let index = id.0 as usize;
        if self.sources.len() <= index {
            self.sources.resize_with(index + 1, || None);
        }
        let Some(place) = self.sources.get_mut(index) else { return };
        source.source().reserve(&mut self.buffer);
        let mut replaced = place.take();
        self.slow.forget(id);
        if let Some(replaced) = &mut replaced {
            self.outgoing.sum.add(&replaced.give_up_waiting());
            if replaced.slow.is_hung() && replaced.source().slots() == source.source().slots() {
                // A second thread would hang as the first does: the first stays, with the new groups.
                replaced.regroup(std::mem::take(&mut source.groups));
                std::mem::swap(replaced, &mut source);
            } else {
                replaced.store_progress();
                source.continue_from(replaced);
            }
            self.schedule.remove(|item| matches!(item, Item::Group { source, .. } if *source == id.0));
        }
        schedule_groups(&mut self.schedule, id, &source, self.taken_until_ns);
        if source.is_slow() {
            self.slow.remember(id);
        }
        *place = Some(source);
        if let Some(replaced) = replaced {
            self.channels.notify(Notice::Replaced(replaced));
        }
    }

    fn remove(&mut self, id: SourceId) {
        self.schedule.remove(|item| matches!(item, Item::Group { source, .. } if *source == id.0));
        self.slow.forget(id);
        if let Some(source) = self.sources.get_mut(id.0 as usize).and_then(Option::take)
            && let Some(source) = self.slow.close_later(id, source)
        {
            self.removed(id, source);
        }
    }

    /// Reports on a removed source for the last time, and gives it back.
    pub(super) fn removed(&mut self, id: SourceId, mut source: Box<ActiveSource>) {
        self.outgoing.sum.add(&source.give_up_waiting());
        source.store_progress();
        self.outgoing.reports.push(SourceReport::of(&source, true));
        // Closing files, and perf events above all, takes long: the manager does it.
        self.channels.notify(Notice::Removed(id, source));
    }

    fn regroup(&mut self, id: SourceId, groups: Vec<Group>) {
        let Some(Some(source)) = self.sources.get_mut(id.0 as usize) else { return };
        self.schedule.remove(|item| matches!(item, Item::Group { source, .. } if *source == id.0));
        if source.slow.is_hung() {
            self.outgoing.sum.add(&source.give_up_waiting());
        }
        source.regroup(groups);
        schedule_groups(&mut self.schedule, id, source, self.taken_until_ns);
    }

    fn record_user_value(&mut self, value: &UserValue) {
        let Some(Some(source)) = self.sources.get_mut(value.source.0 as usize) else { return };
        let mut recorder = Recorder {
            channels: &self.channels,
            outgoing: &mut self.outgoing,
            batch_number: &mut self.batch_number,
        };
        let recorded = recorder.record_user_value(source, value);
        recorder.count(&source.count_user_value(recorded));
    }

    /// Reads all groups of some sources out of turn: the first and the last reading of a job.
    fn read_now(&mut self, ids: impl Iterator<Item = SourceId>, wanted: impl Fn(&ActiveSource) -> bool) {
        self.tick_number += 1;
        let began_ns = clock::monotonic_ns();
        let tick = Tick { number: self.tick_number, began_ns, realtime_us: clock::realtime_us() };
        let mut now_ns = began_ns;
        for id in ids {
            let Some(Some(source)) = self.sources.get_mut(id.0 as usize) else { continue };
            if !wanted(source) {
                continue;
            }
            if source.is_slow() {
                if source.slow.read_now(source.planned(), began_ns) {
                    source.request_read(&self.channels.finished);
                }
                continue;
            }
            source.read(&mut self.buffer, tick, &mut now_ns);
            for group in 0..source.groups.len() {
                let mut recorder = Recorder {
                    channels: &self.channels,
                    outgoing: &mut self.outgoing,
                    batch_number: &mut self.batch_number,
                };
                let recorded = recorder.record(source, group, None);
                recorder.count(&source.count(group, 0, false, recorded));
            }
        }
        self.publish();
    }
}

/// Tells the manager about a source that changed, ended or failed, once.
pub(super) fn report(channels: &Channels, id: SourceId, source: &mut ActiveSource) {
    if let Some(errno) = source.newly_failing() {
        channels.notify(Notice::Failing(id, errno));
    }
    if !source.is_reported
        && let Some(notice) = Notice::of(id, source.outcome())
    {
        source.is_reported = channels.notify(notice);
    }
}

fn schedule_groups(schedule: &mut Schedule<Item>, id: SourceId, source: &ActiveSource, now_ns: u64) {
    for (group, period) in (0..).zip(source.periods()) {
        schedule.insert(Item::Group { source: id.0, group }, period, now_ns);
    }
}

/// Records rows in the current batch, or in the next when that is full.
pub(super) struct Recorder<'a> {
    pub(super) channels: &'a Channels,
    pub(super) outgoing: &'a mut SampleBatch,
    pub(super) batch_number: &'a mut u64,
}

impl Recorder<'_> {
    pub(super) fn record(
        &mut self,
        source: &mut ActiveSource,
        group: usize,
        deadline: Option<u64>,
    ) -> Result<u64, Full> {
        let recorded = source.record(group, deadline, &mut self.outgoing.batch, *self.batch_number);
        if recorded.is_ok() || !hand_over(self.channels, self.outgoing) {
            return recorded;
        }
        *self.batch_number += 1;
        source.record(group, deadline, &mut self.outgoing.batch, *self.batch_number)
    }

    fn record_user_value(&mut self, source: &mut ActiveSource, value: &UserValue) -> Result<u64, Full> {
        let recorded = source.record_user_value(value, &mut self.outgoing.batch, *self.batch_number);
        if recorded.is_ok() || !hand_over(self.channels, self.outgoing) {
            return recorded;
        }
        *self.batch_number += 1;
        source.record_user_value(value, &mut self.outgoing.batch, *self.batch_number)
    }

    /// Adds counts to the sum of all tallies.
    pub(super) fn count(&mut self, counted: &Tally) {
        self.outgoing.sum.add(counted);
    }
}

/// Gives the batch to the sender and takes an empty one; returns false when there is none, and the batch stays.
fn hand_over(channels: &Channels, outgoing: &mut SampleBatch) -> bool {
    let Some(mut empty) = channels.take_empty() else { return false };
    empty.sum = outgoing.sum;
    channels.hand_on(std::mem::replace(outgoing, empty));
    true
}
