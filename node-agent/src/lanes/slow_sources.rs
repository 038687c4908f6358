//! Sampler's part of the slow lane: it requests reads, records the values of finished reads, and never
//! waits for a read that hangs.

use polymeter_proto::ledger::Event;

use super::active_source::ActiveSource;
use super::channels::{EventRecord, Notice};
use super::recorder::{LATE_PART, Recorder};
use super::slow::Deadline;
use super::source_group::SourceId;
use crate::clock;

/// Longest wait for a read under way when its source is removed. Sampling continues meanwhile.
pub(super) const CLOSE_WITHIN_NS: u64 = 500_000_000;

/// Longest wait for the last reading of a source that has one: call stacks. Their symbols and their callers
/// are searched for 0.2 s of CPU time each, which takes longer where other programs use the CPUs.
const LAST_WITHIN_NS: u64 = 5_000_000_000;

#[derive(Debug, Default)]
pub(super) struct SlowSources {
    ids: Vec<SourceId>,
    /// Removed sources with a read under way, which may be the first or the last reading of a job.
    closing: Vec<Closing>,
    /// Ends of jobs, which must come after the last readings of their sources.
    deferred: Vec<EventRecord>,
    /// True if finished reads wait, because no batch has room for their values.
    awaits_batch: bool,
}

#[derive(Debug)]
struct Closing {
    id: SourceId,
    source: Box<ActiveSource>,
    until_ns: u64,
}

impl SlowSources {
    pub(super) fn remember(&mut self, id: SourceId) {
        self.ids.push(id);
    }

    pub(super) fn forget(&mut self, id: SourceId) {
        self.ids.retain(|known| *known != id);
    }

    pub(super) const fn is_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// Returns the earlier of `next_ns` and the time at which a removed source is given up.
    pub(super) fn next_ns(&self, next_ns: Option<u64>) -> Option<u64> {
        self.closing.iter().map(|closing| closing.until_ns).chain(next_ns).min()
    }

    /// Keeps a removed source until the read under way has finished. Returns the source if no read is under
    /// way, or if it hangs.
    pub(super) fn close_later(
        &mut self,
        id: SourceId,
        source: Box<ActiveSource>,
    ) -> Option<Box<ActiveSource>> {
        // A last reading that lasts seems to hang on a busy machine.
        let hangs = source.slow.is_hung() && !source.has_last_read();
        if !source.slow.is_busy() || hangs || !source.slow.has_waiting() {
            return Some(source);
        }
        let within_ns = if source.has_last_read() { LAST_WITHIN_NS } else { CLOSE_WITHIN_NS };
        self.closing.push(Closing { id, source, until_ns: clock::monotonic_ns() + within_ns });
        None
    }

    /// Records the values of finished reads, as long as batches have room: a thousand sources of the same
    /// deadline have more values than all batches together. Returns the removed sources whose last read has
    /// finished or is given up.
    pub(super) fn collect(
        &mut self,
        sources: &mut [Option<Box<ActiveSource>>],
        recorder: &mut Recorder,
    ) -> Vec<(SourceId, Box<ActiveSource>)> {
        self.awaits_batch = false;
        for id in &self.ids {
            let Some(Some(source)) = sources.get_mut(id.0 as usize) else { continue };
            let Some(values) = source.finished_values() else { continue };
            if !recorder.has_room_for(values) {
                self.awaits_batch = true;
                break;
            }
            collect(*id, source, recorder);
        }
        let mut removed = Vec::new();
        if self.is_closing() {
            let now_ns = clock::monotonic_ns();
            for mut closing in std::mem::take(&mut self.closing) {
                collect(closing.id, &mut closing.source, recorder);
                if closing.source.slow.is_busy() && now_ns < closing.until_ns {
                    self.closing.push(closing);
                } else {
                    removed.push((closing.id, closing.source));
                }
            }
        }
        removed
    }

    pub(super) const fn awaits_batch(&self) -> bool {
        self.awaits_batch
    }

    /// Gives up the reads of removed sources at the next [`SlowSources::collect`].
    pub(super) fn give_up_closing(&mut self) {
        self.closing.iter_mut().for_each(|closing| closing.until_ns = 0);
    }

    /// True if a read is under way whose values are awaited, and that does not hang.
    pub(super) fn is_awaited(&self, sources: &[Option<Box<ActiveSource>>]) -> bool {
        let mut open = self.ids.iter().filter_map(|id| sources.get(id.0 as usize)?.as_deref());
        self.is_closing() || open.any(|source| source.slow.has_waiting() && !source.slow.is_hung())
    }

    pub(super) fn take_deferred(&mut self) -> Vec<EventRecord> {
        std::mem::take(&mut self.deferred)
    }

    /// Defers the end of a job until its sources have recorded their last readings. Returns any other event.
    pub(super) fn defer(&mut self, record: EventRecord) -> Option<EventRecord> {
        if let Event::JobEnded { job, .. } = record.event
            && self.closing.iter().any(|closing| closing.source.is_of(job))
        {
            self.deferred.push(record);
            return None;
        }
        Some(record)
    }
}

/// Handles a deadline of a source of the slow lane, at `now_ns`.
pub(super) fn request_slow(
    id: SourceId,
    source: &mut ActiveSource,
    group: usize,
    deadline: Deadline,
    now_ns: u64,
    recorder: &mut Recorder,
) {
    let passed = source.slow.deadline(group, deadline, now_ns);
    let missed = source.count_missed(group, passed.missed);
    recorder.count(source, &missed);
    if passed.must_request {
        source.request_read(&recorder.channels.finished);
    }
    if passed.is_newly_hung {
        recorder.channels.notify(Notice::Hung(id));
    }
}

/// Records the values of a finished read, for each group that waits for them.
fn collect(id: SourceId, source: &mut ActiveSource, recorder: &mut Recorder) {
    let Some(finished) = source.take_finished() else { return };
    if source.slow.finish() {
        recorder.channels.notify(Notice::Recovered(id));
    }
    if let Some(mut record) = source.take_stacks() {
        let ranks = std::mem::take(&mut record.profile.ranks);
        if !ranks.is_empty() {
            recorder.channels.notify(Notice::Ranks(id, ranks));
        }
        recorder.record_stacks(source, record);
    }
    while let Some(waiting) = source.slow.next_waiting() {
        if waiting.group < source.planned() && !source.was_wanted(waiting.group) {
            source.slow.postpone(waiting);
            continue;
        }
        let dated = waiting.dated(finished.began_ns, finished.ended_ns);
        if !source.take_time(waiting.group, dated.at_ns) {
            let missed = u64::from(waiting.deadline.is_some());
            let missed = source.count_missed(waiting.group, missed);
            recorder.count(source, &missed);
            continue;
        }
        let before_end_us = finished.ended_ns.saturating_sub(dated.at_ns) / 1_000;
        source.time_us = finished.ended_us.saturating_sub_unsigned(before_end_us);
        let period_ns = source.groups.get(waiting.group).map_or(0, |group| group.period().as_nanos());
        let late = dated.lateness_ns > period_ns / LATE_PART;
        let deadline = waiting.deadline.map(|deadline| deadline.number);
        let recorded = recorder.record(source, waiting.group, deadline);
        let counted = source.count(waiting.group, 0, late, recorded);
        recorder.count(source, &counted);
    }
    recorder.drop_retired(source);
    recorder.report(id, source);
    if source.slow.begin_postponed(clock::monotonic_ns()) {
        source.request_read(&recorder.channels.finished);
    }
    if source.slow.take_wanted_again() && source.slow.read_now(source.planned(), clock::monotonic_ns()) {
        source.request_read(&recorder.channels.finished);
    }
}
