//! The sampler: one thread that reads every source at its deadlines, and does nothing else.
//!
//! It takes no lock, allocates nothing while the plan is unchanged, and makes one system call per tick beside
//! the reads: the wait. It appends the values to a batch; full batches go to the sender, and empty ones come
//! back, through queues on which neither side waits for the other.
//!
//! Sources of the slow lane are read by threads of their own: the sampler requests a read at a deadline,
//! continues, and records the values when the read has finished ([`super::slow_sources`]).

mod commands;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use polymeter_proto::ledger::Event;
use polymeter_proto::period::Period;

use crate::clock;
use crate::counters::Counters;
use crate::lanes::active_source::{ActiveSource, Tick};
use crate::lanes::channels::{Channels, EventRecord};
use crate::lanes::cpu_shares::CpuShares;
use crate::lanes::recorder::{LATE_PART, Recorder};
use crate::lanes::schedule::{Due, Schedule};
use crate::lanes::slow::Deadline;
use crate::lanes::slow_sources::{SlowSources, request_slow};
use crate::lanes::source_group::SourceId;
use crate::sources::{Outcome, ReadBuffer};

/// A source that has lost samples is reported at once.
const REPORT_NS: u64 = 1_000_000_000;

/// Most waits for slow reads at the end. The last read of call stacks reads the symbols of all programs, from
/// a cold disk if the machine is short of memory.
const SLOW_WAITS: u32 = 5_000;

/// Most waits for a free batch at the end, and the length of each.
const END_WAITS: u32 = 1_000;
const END_WAIT: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Group { source: u32, group: u32 },
    Flush,
}

#[derive(Debug)]
pub struct Sampler {
    recorder: Recorder,
    counters: Arc<Counters>,
    schedule: Schedule<Item>,
    sources: Vec<Option<Box<ActiveSource>>>,
    slow: SlowSources,
    cpu_shares: CpuShares,
    buffer: ReadBuffer,
    tick_number: u64,
    reported_ns: u64,
    /// Grid time up to which deadlines were taken. A new source's deadlines count from here: one that passes
    /// before the source's command is handled is late, and not lost.
    taken_until_ns: u64,
    /// Difference between grid time and monotonic time: the wall clock's lead when the sampler began.
    grid_offset_ns: u64,
}

impl Sampler {
    /// Creates a sampler without sources, which hands on its batch at every `flush`.
    pub fn new(channels: Arc<Channels>, counters: Arc<Counters>, flush: Period) -> Self {
        let monotonic_ns = clock::monotonic_ns();
        let grid_offset_ns = clock::steady_ns().saturating_sub(monotonic_ns);
        let mut schedule = Schedule::default();
        schedule.insert(Item::Flush, flush, monotonic_ns + grid_offset_ns);
        Self {
            recorder: Recorder::new(channels),
            counters,
            schedule,
            sources: Vec::new(),
            slow: SlowSources::default(),
            cpu_shares: CpuShares::new(clock::process_cpu_ns()),
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
            let (realtime_us, now_ns) = (clock::steady_us(), clock::monotonic_ns());
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
        let source = if source.reads_cpu_account && self.cpu_shares.are_due(tick.began_ns) {
            self.cpu_shares.divide(&mut self.sources, clock::process_cpu_ns(), tick.began_ns);
            let Some(Some(source)) = self.sources.get_mut(id.0 as usize) else { return };
            source
        } else {
            source
        };
        let period_ns = source.groups.get(group).map_or(0, |group| group.period().as_nanos());
        let outcome = source.read(&mut self.buffer, tick, now_ns);
        let late = due.lateness_ns > period_ns / LATE_PART;
        let recorded = self.recorder.record(source, group, Some(due.deadline));
        let counted = source.count(group, due.missed, late, recorded);
        self.recorder.count(source, &counted);
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

    /// Waits briefly for slow reads under way that do not hang, and for room for those that have finished.
    /// Counts the others as missed.
    fn end_slow_reads(&mut self) {
        let mut left = SLOW_WAITS;
        for _ in 0..SLOW_WAITS + END_WAITS {
            self.collect_finished();
            if !self.slow.is_awaited(&self.sources) || left == 0 {
                break;
            }
            left -= u32::from(!self.slow.awaits_batch());
            clock::sleep(END_WAIT);
        }
        self.slow.give_up_closing();
        self.collect_finished();
        for source in self.sources.iter_mut().flatten() {
            self.recorder.give_up_waiting(source);
        }
        self.publish();
    }

    fn publish(&self) {
        let sum = self.recorder.sum();
        self.counters.due.store(sum.due, Relaxed);
        self.counters.taken.store(sum.taken, Relaxed);
        self.counters.late.store(sum.late, Relaxed);
        self.counters.missed.store(sum.missed, Relaxed);
        self.counters.absent.store(sum.absent, Relaxed);
        self.counters.dropped.store(sum.dropped, Relaxed);
    }

    /// True if the tallies of all sources are due to go to the sender.
    const fn reports_are_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.reported_ns) >= REPORT_NS
    }

    /// Hands the batch on, with the tallies of all sources if `report` is true.
    fn flush(&mut self, report: bool) {
        if report {
            self.reported_ns = clock::monotonic_ns();
            for source in self.sources.iter_mut().flatten() {
                self.recorder.report_tally(source);
            }
        }
        // If the batch must stay, the next flush tries again.
        self.recorder.flush();
    }

    fn end(&mut self) {
        for source in self.sources.iter_mut().flatten() {
            source.request_last_read(&self.recorder.channels.finished);
        }
        self.end_slow_reads();
        for source in self.sources.iter_mut().flatten() {
            self.recorder.end_windows(source);
            self.recorder.report_end(source);
        }
        let event = Event::SessionEnded { at_us: clock::steady_us() };
        self.recorder.push_event(EventRecord { job: None, event });
        // Nothing is due any more, so there is time to wait for the sender to return a batch.
        for _ in 0..END_WAITS {
            if self.recorder.flush() {
                return;
            }
            clock::sleep(END_WAIT);
        }
    }
}
