//! The sampler: one thread that reads every source at its deadlines, and does nothing else.
//!
//! It takes no lock, allocates nothing while the plan stands, and makes one system call for a tick beside the reads
//! themselves: the wait. What it has read it appends to a batch; full batches go to the sender, and empty ones come
//! back, through queues that neither side can make the other wait on.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use polymeter_proto::batch::Full;
use polymeter_proto::ledger::Event;
use polymeter_proto::period::Period;

use super::active_source::{ActiveSource, Group, SourceId, Tick};
use super::channels::{Channels, Command, EventRecord, Notice, SampleBatch, SourceReport, UserValue};
use super::schedule::{Due, Schedule};
use crate::clock;
use crate::counters::Counters;
use crate::sources::ReadBuffer;

/// A sample is late when it is read after this part of its period has passed since the deadline.
const LATE_PART: u64 = 10;

/// How often the tallies of all sources go to the sender, in nanoseconds.
const REPORT_NS: u64 = 1_000_000_000;

/// How often the end waits for a batch, all of which are with the sender, and how long each time.
const END_WAITS: u32 = 1_000;
const END_WAIT: Duration = Duration::from_millis(1);

/// What is due.
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
    channels: Arc<Channels>,
    counters: Arc<Counters>,
    schedule: Schedule<Item>,
    sources: Vec<Option<Box<ActiveSource>>>,
    text: ReadBuffer,
    flushed: SampleBatch,
    batch_number: u64,
    tick_number: u64,
    reported_ns: u64,
    /// The grid time at which was last looked for what is due. A newcomer's deadlines count from here: one that passes
    /// between the look and the newcomer's command is late, and not lost.
    looked_ns: u64,
    /// What must be added to monotonic time to get grid time: the wall clock's lead when the sampler began.
    grid_offset_ns: u64,
}

impl Sampler {
    /// A sampler without sources, that hands its batch on every `flush`.
    pub fn new(channels: Arc<Channels>, counters: Arc<Counters>, flush: Period) -> Self {
        let monotonic_ns = clock::monotonic_ns();
        let grid_offset_ns = clock::realtime_ns().saturating_sub(monotonic_ns);
        let mut schedule = Schedule::default();
        schedule.insert(Item::Flush, flush, monotonic_ns + grid_offset_ns);
        let flushed = channels.take_empty().unwrap_or_default();
        Self {
            channels,
            counters,
            schedule,
            sources: Vec::new(),
            text: ReadBuffer::default(),
            flushed,
            batch_number: 1,
            tick_number: 0,
            reported_ns: 0,
            looked_ns: monotonic_ns + grid_offset_ns,
            grid_offset_ns,
        }
    }

    /// Samples until told to stop, and hands on what it holds.
    pub fn run(mut self) {
        let mut due = Vec::with_capacity(64);
        loop {
            due.clear();
            // The two clocks one right after the other, since the one dates what the other measures.
            let (realtime_us, now_ns) = (clock::realtime_us(), clock::monotonic_ns());
            self.looked_ns = now_ns + self.grid_offset_ns;
            self.schedule.take_due(self.looked_ns, &mut due);
            if !due.is_empty() {
                self.tick(now_ns, realtime_us, &due);
            }
            // After what is due, so that a change of plan never costs a deadline.
            while let Some(command) = self.next_command() {
                if !self.handle_command(command) {
                    self.end();
                    return;
                }
            }
            self.wait();
        }
    }

    /// Sleeps until the next deadline or command.
    fn wait(&self) {
        let next_ns = self.schedule.next_ns().map(|grid_ns| grid_ns.saturating_sub(self.grid_offset_ns));
        self.channels.commands_timer.wait(next_ns);
    }

    fn tick(&mut self, began_ns: u64, realtime_us: i64, due: &[Due<Item>]) {
        self.tick_number += 1;
        let tick = Tick { number: self.tick_number, began_ns, realtime_us };
        let mut now_ns = began_ns;
        let before = self.flushed.sum;
        let mut flush = false;
        for due in due {
            match due.item {
                Item::Group { source, group } => {
                    self.sample(tick, &mut now_ns, SourceId(source), group as usize, due)
                }
                Item::Flush => flush = true,
            }
        }
        if self.flushed.sum != before {
            self.publish();
        }
        if flush {
            self.flush(self.reports_are_due(began_ns));
        }
    }

    fn sample(&mut self, tick: Tick, now_ns: &mut u64, id: SourceId, group: usize, due: &Due<Item>) {
        let Some(Some(source)) = self.sources.get_mut(id.0 as usize) else { return };
        let period_ns = source.groups.get(group).map_or(0, |group| group.period().as_nanos());
        let outcome = source.read(&mut self.text, tick, now_ns);
        let late = due.lateness_ns > period_ns / LATE_PART;
        let recorder = Recorder {
            channels: &self.channels,
            flushed: &mut self.flushed,
            batch_number: &mut self.batch_number,
        };
        let recorded = recorder.record(source, group, Some(due.deadline));
        self.flushed.sum.add(&source.count(group, due.missed, late, recorded));
        if !source.noticed
            && let Some(notice) = Notice::of(id, outcome)
        {
            source.noticed = self.channels.notify(notice);
        }
    }

    /// Lets everybody see the sums.
    fn publish(&self) {
        let sum = &self.flushed.sum;
        self.counters.due.store(sum.due, Relaxed);
        self.counters.taken.store(sum.taken, Relaxed);
        self.counters.late.store(sum.late, Relaxed);
        self.counters.missed.store(sum.missed, Relaxed);
        self.counters.absent.store(sum.absent, Relaxed);
        self.counters.dropped.store(sum.dropped, Relaxed);
    }

    /// Whether the tallies of all sources go to the sender again.
    const fn reports_are_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.reported_ns) >= REPORT_NS
    }

    /// Hands the batch on, with the tallies of all sources if `report` is wanted.
    fn flush(&mut self, report: bool) {
        if report {
            self.reported_ns = clock::monotonic_ns();
            let reports = self.sources.iter().flatten().map(|source| SourceReport::of(source, false));
            self.flushed.reports.extend(reports);
        }
        if !self.flushed.is_empty() && hand_over(&self.channels, &mut self.flushed) {
            self.batch_number += 1;
        }
    }

    /// Hands on what there is, and the last word on every source.
    fn end(&mut self) {
        let reports = self.sources.iter().flatten().map(|source| SourceReport::of(source, true));
        self.flushed.reports.extend(reports);
        let event = Event::SessionEnded { at_us: clock::realtime_us() };
        self.flushed.events.push(EventRecord { job: None, event });
        // Nothing is due any more, so that there is time to wait for the sender to give a batch back.
        for _ in 0..END_WAITS {
            if self.flushed.is_empty() || hand_over(&self.channels, &mut self.flushed) {
                return;
            }
            clock::sleep(END_WAIT);
        }
    }

    /// The next command, unless there is no room for what it may bring: then the manager waits, and sampling goes on.
    fn next_command(&mut self) -> Option<Command> {
        if self.flushed.is_full_of_events() {
            self.flush(false);
        }
        if self.flushed.is_full_of_events() { None } else { self.channels.next_command() }
    }

    /// Does what the manager wants; false when that is to stop.
    fn handle_command(&mut self, command: Command) -> bool {
        match command {
            Command::Add(id, source) => self.add(id, source),
            Command::Remove(id) => self.remove(id),
            Command::Exchange { removed, added } => {
                // What goes leaves behind what its counters have come to, from where what comes goes on.
                removed.into_iter().for_each(|id| self.remove(id));
                added.into_iter().for_each(|(id, source)| self.add(id, source));
            }
            Command::Regroup(id, groups) => self.regroup(id, groups),
            Command::ReadNow(ids) => self.read_now(ids.into_iter(), |_| true),
            Command::ReadJob(job) => {
                let all = (0..).map(SourceId).take(self.sources.len());
                self.read_now(all, |source| source.is_of(job));
            }
            Command::RecordUserValue(pushed) => self.push(&pushed),
            Command::RecordEvent(told) => self.tell(*told),
            // The manager may have stopped waiting.
            Command::Confirm(reply) => drop(reply.send(())),
            Command::Flush => self.flush(true),
            Command::FlushForWatch => self.flush(self.reports_are_due(clock::monotonic_ns())),
            Command::Stop => return false,
        }
        true
    }

    fn tell(&mut self, told: EventRecord) {
        let mut told = told;
        if let Event::JobEnded { at_us, .. } = &mut told.event {
            // Only here is known when its last reading was.
            *at_us = clock::realtime_us();
        }
        self.flushed.events.push(told);
    }

    fn add(&mut self, id: SourceId, mut source: Box<ActiveSource>) {
        let place = id.0 as usize;
        if self.sources.len() <= place {
            self.sources.resize_with(place + 1, || None);
        }
        let Some(place) = self.sources.get_mut(place) else { return };
        source.source().reserve(&mut self.text);
        let replaced = place.take();
        if let Some(replaced) = &replaced {
            replaced.leave();
            self.schedule.remove(|item| matches!(item, Item::Group { source, .. } if *source == id.0));
            source.go_on_from(replaced);
        }
        schedule_groups(&mut self.schedule, id, &source, self.looked_ns);
        *place = Some(source);
        if let Some(replaced) = replaced {
            self.channels.notify(Notice::Replaced(replaced));
        }
    }

    fn remove(&mut self, id: SourceId) {
        self.schedule.remove(|item| matches!(item, Item::Group { source, .. } if *source == id.0));
        if let Some(source) = self.sources.get_mut(id.0 as usize).and_then(Option::take) {
            source.leave();
            self.flushed.reports.push(SourceReport::of(&source, true));
            // Closing files, and perf events above all, takes long: that is the manager's affair.
            self.channels.notify(Notice::Removed(id, source));
        }
    }

    fn regroup(&mut self, id: SourceId, groups: Vec<Group>) {
        let Some(Some(source)) = self.sources.get_mut(id.0 as usize) else { return };
        self.schedule.remove(|item| matches!(item, Item::Group { source, .. } if *source == id.0));
        source.groups = groups;
        schedule_groups(&mut self.schedule, id, source, self.looked_ns);
    }

    /// Records a value that a user gave.
    fn push(&mut self, pushed: &UserValue) {
        let Some(Some(source)) = self.sources.get_mut(pushed.source.0 as usize) else { return };
        let recorder = Recorder {
            channels: &self.channels,
            flushed: &mut self.flushed,
            batch_number: &mut self.batch_number,
        };
        let recorded = recorder.record_given(source, pushed);
        self.flushed.sum.add(&source.count_given(recorded));
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
            source.read(&mut self.text, tick, &mut now_ns);
            for group in 0..source.groups.len() {
                let recorder = Recorder {
                    channels: &self.channels,
                    flushed: &mut self.flushed,
                    batch_number: &mut self.batch_number,
                };
                let recorded = recorder.record(source, group, None);
                self.flushed.sum.add(&source.count(group, 0, false, recorded));
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

/// Where rows go: the batch at hand, or the next when that is full.
struct Recorder<'a> {
    channels: &'a Channels,
    flushed: &'a mut SampleBatch,
    batch_number: &'a mut u64,
}

impl Recorder<'_> {
    fn record(self, source: &mut ActiveSource, group: usize, deadline: Option<u64>) -> Result<u64, Full> {
        let recorded = source.record(group, deadline, &mut self.flushed.batch, *self.batch_number);
        if recorded.is_ok() || !hand_over(self.channels, self.flushed) {
            return recorded;
        }
        *self.batch_number += 1;
        source.record(group, deadline, &mut self.flushed.batch, *self.batch_number)
    }

    fn record_given(self, source: &mut ActiveSource, pushed: &UserValue) -> Result<u64, Full> {
        let recorded = source.record_given(pushed, &mut self.flushed.batch, *self.batch_number);
        if recorded.is_ok() || !hand_over(self.channels, self.flushed) {
            return recorded;
        }
        *self.batch_number += 1;
        source.record_given(pushed, &mut self.flushed.batch, *self.batch_number)
    }
}

/// Gives the batch to the sender and takes an empty one; false when there is none, and the batch stays.
fn hand_over(channels: &Channels, flushed: &mut SampleBatch) -> bool {
    let Some(mut empty) = channels.take_empty() else { return false };
    empty.sum = flushed.sum;
    channels.hand_on(std::mem::replace(flushed, empty));
    true
}
