//! Recording: rows go to the current batch, counts to the sum of all tallies, and notices about sources to
//! the supervisor.

use std::sync::Arc;

use polymeter_proto::batch::Full;
use polymeter_proto::ledger::Tally;
use polymeter_proto::limits;

use super::active_source::ActiveSource;
use super::channels::{BATCHES, Channels, EventRecord, Notice, SampleBatch, SourceReport};
use super::source_group::{ReadCost, SourceId, StackRecord, UserValue};

/// A sample is late if it is read more than this fraction of its period after the deadline: a tenth.
pub(super) const LATE_PART: u64 = 10;

/// Room that the values of the slow lane leave for those of the fast one, which cannot wait.
const FAST_VALUES: usize = limits::BATCH_VALUES / 4;

#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) channels: Arc<Channels>,
    current: SampleBatch,
    batch_number: u64,
}

impl Recorder {
    pub(super) fn new(channels: Arc<Channels>) -> Self {
        let current = channels.take_empty().unwrap_or_default();
        Self { channels, current, batch_number: 1 }
    }

    /// True if the batches have room for so many values of a source of the slow lane, which can wait. If not,
    /// the sampler is woken by the next empty batch.
    pub(super) fn has_room_for(&self, values: usize) -> bool {
        self.has_room_now(values) || {
            self.channels.await_batch();
            // One may have been given back in between.
            self.has_room_now(values)
        }
    }

    fn has_room_now(&self, values: usize) -> bool {
        let empty = self.channels.empty_batches();
        let room = self.current.batch.room() + empty * limits::BATCH_VALUES;
        // There never is more room than in all other batches.
        values + FAST_VALUES <= room || empty + 1 >= BATCHES
    }

    /// Records the values of one group in the current batch, or in the next when that is full. Returns how
    /// many were present.
    pub(super) fn record(
        &mut self,
        source: &mut ActiveSource,
        group: usize,
        deadline: Option<u64>,
    ) -> Result<u64, Full> {
        if source.is_window_over(group, deadline) {
            self.end_window(source, group);
        }
        let batch = self.current.batch_of(source.is_ring(group));
        let recorded = source.record(group, deadline, batch, self.batch_number);
        if recorded.is_ok() || !self.hand_over() {
            return recorded;
        }
        let batch = self.current.batch_of(source.is_ring(group));
        source.record(group, deadline, batch, self.batch_number)
    }

    /// Records the row of the open window of a group. Without room in a batch its samples are dropped.
    fn end_window(&mut self, source: &mut ActiveSource, group: usize) {
        if source.record_window(group, &mut self.current.batch, self.batch_number).is_ok() {
            return;
        }
        if self.hand_over() && source.record_window(group, &mut self.current.batch, self.batch_number).is_ok()
        {
            return;
        }
        let dropped = source.drop_window(group);
        self.count(source, &dropped);
    }

    /// Records the rows of all open windows of a source, before its groups go.
    pub(super) fn end_windows(&mut self, source: &mut ActiveSource) {
        (0..source.groups.len()).for_each(|group| self.end_window(source, group));
    }

    /// Drops the groups of a former plan, for whose values nothing waits any more.
    pub(super) fn drop_retired(&mut self, source: &mut ActiveSource) {
        (source.planned()..source.groups.len()).for_each(|group| self.end_window(source, group));
        source.drop_retired();
    }

    pub(super) fn record_user_value(
        &mut self,
        source: &mut ActiveSource,
        value: &UserValue,
    ) -> Result<u64, Full> {
        let recorded = source.record_user_value(value, &mut self.current.batch, self.batch_number);
        if recorded.is_ok() || !self.hand_over() {
            return recorded;
        }
        source.record_user_value(value, &mut self.current.batch, self.batch_number)
    }

    /// Adds counts of a source, which its tally has already, to the sum of all tallies. If some are of lost
    /// samples, the batch gets a report of the source: so no sample is delivered without the losses before
    /// it, even if the agent is killed later.
    pub(super) fn count(&mut self, source: &mut ActiveSource, counted: &Tally) {
        self.current.sum.add(counted);
        if counted.lost() > 0 {
            self.report_tally(source);
        }
    }

    pub(super) const fn sum(&self) -> &Tally {
        &self.current.sum
    }

    pub(super) fn push_event(&mut self, record: EventRecord) {
        self.current.events.push(record);
    }

    pub(super) fn record_stacks(&mut self, source: &mut ActiveSource, record: StackRecord) {
        let has_room = !self.current.is_full_of_stacks() || self.hand_over();
        let counted = source.count_stacks(&record, !has_room);
        if has_room {
            self.current.stacks.push(record);
        }
        self.count(source, &counted);
    }

    /// Counts deadlines that wait for a read as missed.
    pub(super) fn give_up_waiting(&mut self, source: &mut ActiveSource) {
        let missed = source.give_up_waiting();
        self.count(source, &missed);
    }

    /// Reports the tally of a source so far, in place of its earlier report in the same batch.
    pub(super) fn report_tally(&mut self, source: &mut ActiveSource) {
        let report = SourceReport::of(source, false);
        let (batch_number, index) = source.reported_in;
        match self.current.reports.get_mut(index) {
            Some(earlier) if batch_number == self.batch_number => *earlier = report,
            _ => {
                source.reported_in = (self.batch_number, self.current.reports.len());
                self.current.reports.push(report);
            }
        }
        self.report_ring(source);
    }

    /// Reports the tally of what a source gave to the ring. It has no last report here: what becomes of these
    /// samples shows later.
    fn report_ring(&mut self, source: &mut ActiveSource) {
        let cost = ReadCost::default();
        let Some(ring) = &mut source.ring else { return };
        let report = SourceReport { key: Arc::clone(&ring.key), tally: ring.tally, cost, last: false };
        let (batch_number, index) = ring.reported_in;
        match self.current.reports.get_mut(index) {
            Some(earlier) if batch_number == self.batch_number => *earlier = report,
            _ => {
                ring.reported_in = (self.batch_number, self.current.reports.len());
                self.current.reports.push(report);
            }
        }
    }

    /// Makes the last report of a source. A last reading that was given up is missed under a name of its own.
    pub(super) fn report_end(&mut self, source: &mut ActiveSource) {
        self.report_ring(source);
        let report = SourceReport::of(source, true);
        if let Some(unread) = source.is_unread().then(|| report.unread()).flatten() {
            self.current.sum.add(&unread.tally);
            self.current.reports.push(unread);
        }
        self.current.reports.push(report);
    }

    pub(super) fn is_full_of_events(&self) -> bool {
        self.current.is_full_of_events()
    }

    /// Hands the batch on, if there is anything in it. False if it must stay, since all batches are with the
    /// sender.
    pub(super) fn flush(&mut self) -> bool {
        self.current.is_empty() || self.hand_over()
    }

    /// Returns false if there is no empty batch: then this one stays.
    fn hand_over(&mut self) -> bool {
        let Some(mut empty) = self.channels.take_empty() else { return false };
        empty.sum = self.current.sum;
        self.channels.hand_on(std::mem::replace(&mut self.current, empty));
        self.batch_number += 1;
        true
    }

    /// Notifies once about a source that changed, ended or failed.
    pub(super) fn report(&self, id: SourceId, source: &mut ActiveSource) {
        if !source.is_failure_reported
            && let Some(errno) = source.failing()
        {
            source.is_failure_reported = self.channels.notify(Notice::Failing(id, errno));
        }
        if !source.is_reported
            && let Some(notice) = Notice::of(id, source.outcome())
        {
            source.is_reported = self.channels.notify(notice);
        }
    }
}
