//! The sampler: one thread that reads every source at its deadlines, and does nothing else.
//!
//! It takes no lock, allocates nothing while the plan is unchanged, and makes one system call per tick beside the
//! reads: the wait. It appends the values to a batch; full batches go to the sender, and empty ones come back, through
//! queues on which neither side waits for the other.
//!
//! Sources of the slow lane are read by threads of their own: the sampler requests a read at a deadline, continues, and
//! records the values when the read has finished ([`super::slow_sources`]).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use polymeter_proto::ledger::Event;
use polymeter_proto::period::Period;

use super::active_source::{ActiveSource, Tick};
use super::channels::{Channels, Command, EventRecord, Notice, SourceReport};
use super::group::{Group, SourceId, UserValue};
use super::recorder::{LATE_PART, Recorder};
use super::schedule::{Due, Schedule};
use super::slow::Deadline;
use super::slow_sources::{SlowSources, request_slow};
use crate::clock;
use crate::counters::Counters;
use crate::sources::{Outcome, ReadBuffer};

/// The interval of the tallies of all sources to the sender, in nanoseconds.
const REPORT_NS: u64 = 1_000_000_000;

/// The most waits for slow reads at the end.
const SLOW_WAITS: u32 = 100;

/// The most waits for a free batch at the end, and the length of each.
const END_WAITS: u32 = 1_000;
const END_WAIT: Duration = Duration::from_millis(1);

/// An entry of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    /// One group of one source.
    Group { source: u32, group: u32 },
    /// The batch, to be handed on.
    Flush,
}

/// The state of the sampler's thread.
#[derive(Debug)]
pub struct Sampler {
    recorder: Recorder,
    counters: Arc<Counters>,
    schedule: Schedule<Item>,
    sources: Vec<Option<Box<ActiveSource>>>,
    slow: SlowSources,
    buffer: ReadBuffer,
    tick_number: u64,
    reported_ns: u64,
    /// The grid time up to which deadlines were taken. A new source's deadlines count from here: one that passes before
    /// the source's command is handled is late, and not lost.
    taken_until_ns: u64,
    /// The difference between grid time and monotonic time: the wall clock's lead when the sampler began.
    grid_offset_ns: u64,
}

impl Sampler {
    /// Creates a sampler without sources, which hands on its batch at every `flush`.
    pub fn new(channels: Arc<Channels>, counters: Arc<Counters>, flush: Period) -> Self {
        let monotonic_ns = clock::monotonic_ns();
        let grid_offset_ns = clock::realtime_ns().saturating_sub(monotonic_ns);
        let mut schedule = Schedule::default();
        schedule.insert(Item::Flush, flush, monotonic_ns + grid_offset_ns);
        Self {
            recorder: Recorder::new(channels),
            counters,
            schedule,
            sources: Vec::new(),
            slow: SlowSources::default(),
            buffer: ReadBuffer::default(),
            tick_number: 0,
            reported_ns: 0,
            taken_until_ns: monotonic_ns + grid_offset_ns,
            grid_offset_ns,
        }
    }

    /// Samples until the command to stop, then hands on the remaining samples.
    pub fn run(mut self) {
        let mut due = Vec::with_capacity(64);
        loop {
            due.clear();
            // Both clocks are read in direct succession: one dates what the other measures.
            let (realtime_us, now_ns) = (clock::realtime_us(), clock::monotonic_ns());
            self.taken_until_ns = now_ns + self.grid_offset_ns;
            self.schedule.take_due(self.taken_until_ns, &mut due);
            if !due.is_empty() {
                self.tick(now_ns, realtime_us, &due);
            }
            if self.recorder.channels.finished.take() || self.slow.is_closing() {
                self.collect_finished();
            }
            // Commands come after all due reads, so that a change of plan never costs a deadline.
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
        self.recorder.channels.finished.timer.wait(self.slow.next_ns(next_ns));
    }

    fn tick(&mut self, began_ns: u64, realtime_us: i64, due: &[Due<Item>]) {
        self.tick_number += 1;
        let tick = Tick { number: self.tick_number, began_ns, realtime_us };
        let mut now_ns = began_ns;
        let before = *self.recorder.sum();
        let mut flush = false;
        for due in due {
            match due.item {
                Item::Group { source, group } => {
                    self.sample(tick, &mut now_ns, SourceId(source), group as usize, due)
                }
                Item::Flush => flush = true,
            }
        }
        if *self.recorder.sum() != before {
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
            let deadline = Deadline { number: due.deadline, at_ns: deadline_ns, missed_before: due.missed };
            request_slow(id, source, group, deadline, tick.began_ns, &mut self.recorder);
            return;
        }
        let period_ns = source.groups.get(group).map_or(0, |group| group.period().as_nanos());
        let outcome = source.read(&mut self.buffer, tick, now_ns);
        let late = due.lateness_ns > period_ns / LATE_PART;
        let recorded = self.recorder.record(source, group, Some(due.deadline));
        let counted = source.count(group, due.missed, late, recorded);
        self.recorder.count(&counted);
        if outcome != Outcome::Read {
            self.recorder.report(id, source);
        }
    }

    /// Records the values of all finished slow reads, and returns removed sources.
    fn collect_finished(&mut self) {
        let removed = self.slow.collect(&mut self.sources, &mut self.recorder);
        removed.into_iter().for_each(|(id, source)| self.removed(id, source));
        if !self.slow.is_closing() {
            self.slow.take_deferred().into_iter().for_each(|record| self.record_event(record));
        }
        self.publish();
    }

    /// Waits briefly for slow reads under way that do not hang, and counts the others as missed.
    fn end_slow_reads(&mut self) {
        for _ in 0..SLOW_WAITS {
            self.collect_finished();
            if !self.slow.is_awaited(&self.sources) {
                break;
            }
            clock::sleep(END_WAIT);
        }
        self.slow.give_up_closing();
        self.collect_finished();
        for source in self.sources.iter_mut().flatten() {
            self.recorder.count(&source.give_up_waiting());
        }
        self.publish();
    }

    /// Publishes the sums to other threads.
    fn publish(&self) {
        let sum = self.recorder.sum();
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
    fn flush(&mut self, report: bool) {
        if report {
            self.reported_ns = clock::monotonic_ns();
            for source in self.sources.iter().flatten() {
                self.recorder.push_report(SourceReport::of(source, false));
            }
        }
        // If the batch must stay, the next flush tries again.
        self.recorder.flush();
    }

    /// Hands on the remaining samples, and the last reports of all sources.
    fn end(&mut self) {
        self.end_slow_reads();
        for source in self.sources.iter().flatten() {
            self.recorder.push_report(SourceReport::of(source, true));
        }
        let event = Event::SessionEnded { at_us: clock::realtime_us() };
        self.recorder.push_event(EventRecord { job: None, event });
        // Nothing is due any more, so there is time to wait for the sender to return a batch.
        for _ in 0..END_WAITS {
            if self.recorder.flush() {
                return;
            }
            clock::sleep(END_WAIT);
        }
    }

    /// Returns the next command, unless there is no room for the event that it may add: then the supervisor waits, and
    /// sampling continues.
    fn next_command(&mut self) -> Option<Command> {
        if self.recorder.is_full_of_events() {
            self.flush(false);
        }
        if self.recorder.is_full_of_events() { None } else { self.recorder.channels.next_command() }
    }

    /// Handles a command; returns false for the command to stop.
    fn handle_command(&mut self, command: Command) -> bool {
        match command {
            Command::Add(id, source) => self.add(id, source),
            Command::Remove(id) => self.remove(id),
            Command::Exchange { removed, added } => {
                // Removed sources store the progress of their counters, from which the added ones continue.
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
            // The supervisor may have stopped waiting.
            Command::Confirm(reply) => drop(reply.send(())),
            Command::Flush => self.flush(true),
            Command::FlushForWatch => self.flush(self.reports_are_due(clock::monotonic_ns())),
            Command::Stop => return false,
        }
        true
    }

    fn record_event(&mut self, record: EventRecord) {
        let Some(mut record) = self.slow.defer(record) else { return };
        if let Event::JobEnded { at_us, .. } = &mut record.event {
            // The time of the job's last reading is known only here.
            *at_us = clock::realtime_us();
        }
        self.recorder.push_event(record);
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
            self.recorder.count(&replaced.give_up_waiting());
            if replaced.slow.is_hung() && replaced.source().slots() == source.source().slots() {
                // A second thread would hang like the first one; therefore the first stays, with the new groups.
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
            self.recorder.channels.notify(Notice::Replaced(replaced));
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

    /// Makes the last report of a removed source, and returns the source to the supervisor.
    fn removed(&mut self, id: SourceId, mut source: Box<ActiveSource>) {
        self.recorder.count(&source.give_up_waiting());
        source.store_progress();
        self.recorder.push_report(SourceReport::of(&source, true));
        // Closing files, and perf events above all, is slow; the supervisor does it.
        self.recorder.channels.notify(Notice::Removed(id, source));
    }

    fn regroup(&mut self, id: SourceId, groups: Vec<Group>) {
        let Some(Some(source)) = self.sources.get_mut(id.0 as usize) else { return };
        self.schedule.remove(|item| matches!(item, Item::Group { source, .. } if *source == id.0));
        if source.slow.is_hung() {
            self.recorder.count(&source.give_up_waiting());
        }
        source.regroup(groups);
        schedule_groups(&mut self.schedule, id, source, self.taken_until_ns);
    }

    fn record_user_value(&mut self, value: &UserValue) {
        let Some(Some(source)) = self.sources.get_mut(value.source.0 as usize) else { return };
        let recorded = self.recorder.record_user_value(source, value);
        self.recorder.count(&source.count_user_value(recorded));
    }

    /// Reads all groups of some sources out of schedule: the first and the last reading of a job.
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
                    source.request_read(&self.recorder.channels.finished);
                }
                continue;
            }
            source.read(&mut self.buffer, tick, &mut now_ns);
            for group in 0..source.groups.len() {
                let recorded = self.recorder.record(source, group, None);
                self.recorder.count(&source.count(group, 0, false, recorded));
            }
        }
        self.publish();
    }
}

fn schedule_groups(schedule: &mut Schedule<Item>, id: SourceId, source: &ActiveSource, now_ns: u64) {
    for (group, period) in (0..).zip(source.periods()) {
        schedule.insert(Item::Group { source: id.0, group }, period, now_ns);
    }
}
