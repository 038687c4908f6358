//! Commands of the supervisor to the sampler.

use polymeter_proto::ledger::Event;

use super::{Item, Sampler};
use crate::clock;
use crate::lanes::active_source::{ActiveSource, Tick};
use crate::lanes::channels::{Command, EventRecord, Notice};
use crate::lanes::schedule::Schedule;
use crate::lanes::source_group::{Group, SourceId, UserValue};

impl Sampler {
    /// Takes the next command, unless there is no room for the event that it may add: then the supervisor
    /// waits, and sampling continues.
    pub(super) fn next_command(&mut self) -> Option<Command> {
        if self.recorder.is_full_of_events() {
            self.flush(false);
        }
        if self.recorder.is_full_of_events() { None } else { self.recorder.channels.next_command() }
    }

    /// Returns false for the command to stop.
    pub(super) fn handle_command(&mut self, command: Command) -> bool {
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
            Command::RecordUserValues(values) => {
                values.iter().for_each(|value| self.record_user_value(value));
            }
            Command::RecordEvent(record) => self.record_event(*record),
            // The supervisor may have stopped waiting.
            Command::Confirm(reply) => drop(reply.send(())),
            Command::Flush => self.flush(true),
            Command::FlushForWatch => self.flush(self.reports_are_due(clock::monotonic_ns())),
            Command::Stop => return false,
        }
        true
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
            self.recorder.give_up_waiting(replaced);
            self.recorder.end_windows(replaced);
            if replaced.slow.is_hung() && replaced.source().slots() == source.source().slots() {
                // A second thread would hang like the first one; therefore the first stays, with the new
                // groups.
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
        let Some(mut source) = self.sources.get_mut(id.0 as usize).and_then(Option::take) else { return };
        source.request_last_read(&self.recorder.channels.finished);
        if let Some(source) = self.slow.close_later(id, source) {
            self.removed(id, source);
        }
    }

    /// Makes the last report of a removed source, and returns the source to the supervisor.
    pub(super) fn removed(&mut self, id: SourceId, mut source: Box<ActiveSource>) {
        self.recorder.give_up_waiting(&mut source);
        self.recorder.end_windows(&mut source);
        self.cpu_shares.close(&source);
        source.store_progress();
        self.recorder.report_end(&mut source);
        // Closing files, and perf events above all, is slow; the supervisor does it.
        self.recorder.channels.notify(Notice::Removed(id, source));
    }

    fn regroup(&mut self, id: SourceId, groups: Vec<Group>) {
        let Some(Some(source)) = self.sources.get_mut(id.0 as usize) else { return };
        self.schedule.remove(|item| matches!(item, Item::Group { source, .. } if *source == id.0));
        if source.slow.is_hung() {
            self.recorder.give_up_waiting(source);
        }
        if !source.slow.has_waiting() {
            self.recorder.end_windows(source);
        }
        source.regroup(groups);
        schedule_groups(&mut self.schedule, id, source, self.taken_until_ns);
    }

    fn record_user_value(&mut self, value: &UserValue) {
        let Some(Some(source)) = self.sources.get_mut(value.source.0 as usize) else { return };
        let recorded = self.recorder.record_user_value(source, value);
        let counted = source.count_user_value(value, recorded);
        self.recorder.count(source, &counted);
    }

    /// Reads all groups of some sources out of schedule: the first and the last reading of a job.
    fn read_now(&mut self, ids: impl Iterator<Item = SourceId>, wanted: impl Fn(&ActiveSource) -> bool) {
        self.tick_number += 1;
        let began_ns = clock::monotonic_ns();
        let tick = Tick { number: self.tick_number, began_ns, realtime_us: clock::steady_us() };
        let mut now_ns = began_ns;
        // The account of the job comes last, so that it includes these reads.
        let mut account = None;
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
            let next = if source.reads_cpu_account { account.replace(id) } else { Some(id) };
            if let Some(id) = next {
                self.read_out_of_schedule(id, tick, &mut now_ns);
            }
        }
        if let Some(id) = account {
            self.cpu_shares.divide(&mut self.sources, clock::process_cpu_ns(), now_ns);
            self.read_out_of_schedule(id, tick, &mut now_ns);
        }
        self.publish();
    }

    fn read_out_of_schedule(&mut self, id: SourceId, tick: Tick, now_ns: &mut u64) {
        let Some(Some(source)) = self.sources.get_mut(id.0 as usize) else { return };
        source.read(&mut self.buffer, tick, now_ns);
        for group in 0..source.groups.len() {
            let recorded = self.recorder.record(source, group, None);
            let counted = source.count(group, 0, false, recorded);
            self.recorder.count(source, &counted);
        }
    }

    pub(super) fn record_event(&mut self, record: EventRecord) {
        let Some(mut record) = self.slow.defer(record) else { return };
        if let Event::JobEnded { at_us, .. } = &mut record.event {
            // The time of the job's last reading is known only here.
            *at_us = clock::steady_us();
        }
        self.recorder.push_event(record);
    }
}

fn schedule_groups(schedule: &mut Schedule<Item>, id: SourceId, source: &ActiveSource, now_ns: u64) {
    for (group, period) in (0..).zip(source.periods()) {
        schedule.insert(Item::Group { source: id.0, group }, period, now_ns);
    }
}
