//! The input and output of the sampler: bounded queues without locks, and eventfds.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;
use polymeter_proto::batch::{Batch, Job};
use polymeter_proto::catalogue::unread_source;
use polymeter_proto::ledger::{Event, Tally};
use polymeter_proto::limits;
use polymeter_proto::series::{Identifier, JobHandle};
use rustix::io::Errno;
use rustix::thread::Pid;
use tokio::sync::oneshot;

use super::active_source::ActiveSource;
use super::source_group::{Group, ReadCost, SourceId, SourceKey, StackRecord, UserValue};
use crate::event_fd::EventFd;
use crate::sources::Outcome;
use crate::sources::reader_thread::FinishedReads;

/// One batch is filled, one is encoded, and two are there in case the sender is delayed.
pub(super) const BATCHES: usize = 4;

/// Most commands that wait. Beyond that the supervisor waits, and the sampler never does.
const COMMANDS: usize = 1024;

/// Reports for which a batch has memory from the beginning, so that the first loss of a sample takes none.
/// With more sources it grows by their first report.
const REPORTS: usize = 256;

/// Most events in one batch: far more than a change of a whole plan makes, and few enough for a frame.
const EVENTS: usize = 4096;

/// Intervals of call stacks in one batch: of as many jobs as one expects on a node.
const STACKS: usize = 64;

/// Most notices that wait. One that does not fit is sent again at the next read, or its source is closed by
/// the sampler itself.
const NOTICES: usize = 4096;

#[derive(Debug)]
pub enum Command {
    /// Sample this source, from the next deadline of each of its groups. A source with the same id is
    /// replaced, and its tally continues.
    Add(SourceId, Box<ActiveSource>),
    /// Stop sampling this source, and give it back.
    Remove(SourceId),
    /// Remove sources and add others, with no reading in between: both may give the same series.
    Exchange {
        removed: Vec<SourceId>,
        added: Vec<(SourceId, Box<ActiveSource>)>,
    },
    /// Sample at other periods, from the next deadline of each group.
    Regroup(SourceId, Vec<Group>),
    /// Read these sources once, out of schedule.
    ReadNow(Vec<SourceId>),
    ReadJob(JobHandle),
    RecordUserValues(Vec<UserValue>),
    RecordEvent(Box<EventRecord>),
    /// Answer when all earlier commands are done.
    Confirm(oneshot::Sender<()>),
    /// Hand on the samples so far, and all tallies.
    Flush,
    /// Hand on the samples so far for watchers, or the record of a new job, and the tallies when they are
    /// due.
    FlushForWatch,
    Stop,
}

#[derive(Debug)]
pub enum Notice {
    /// Files or devices of the source have appeared or disappeared: it should be opened anew.
    Changed(SourceId),
    /// Ended as expected.
    Gone(SourceId),
    /// Unreadable: it should be opened anew.
    Failed(SourceId, Errno),
    /// Several consecutive reads have failed for this reason, which may be temporary: its samples are absent
    /// until a read succeeds.
    Failing(SourceId, Errno),
    /// A read in the slow lane lasts far beyond a deadline: its samples are missed until it returns.
    Hung(SourceId),
    Recovered(SourceId),
    /// Processes whose call stacks are sampled, each with its rank.
    Ranks(SourceId, Vec<(u32, u32)>),
    Removed(SourceId, Box<ActiveSource>),
    Replaced(Box<ActiveSource>),
}

impl Notice {
    pub(super) const fn of(id: SourceId, outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Read | Outcome::Retry(_) => None,
            Outcome::Changed => Some(Self::Changed(id)),
            Outcome::Gone => Some(Self::Gone(id)),
            Outcome::Fault(errno) => Some(Self::Failed(id, errno)),
        }
    }
}

/// An event with its job, of which the receiver may have no sample yet.
#[derive(Debug, Clone)]
pub struct EventRecord {
    pub job: Option<Arc<Job>>,
    pub event: Event,
}

#[derive(Debug, Clone)]
pub struct SourceReport {
    pub key: Arc<SourceKey>,
    pub tally: Tally,
    pub cost: ReadCost,
    /// True for the last report of this source.
    pub last: bool,
}

impl SourceReport {
    pub(super) fn of(source: &ActiveSource, last: bool) -> Self {
        Self { key: Arc::clone(&source.key), tally: source.tally, cost: source.cost, last }
    }

    /// Returns the report of a last reading of the source that was given up.
    pub(super) fn unread(&self) -> Option<Self> {
        let name = Identifier::escaped(unread_source(self.key.name.as_str()).as_bytes())?;
        let key = Arc::new(SourceKey { job: self.key.job.clone(), name });
        let tally = Tally { due: 1, missed: 1, ..Tally::default() };
        Some(Self { key, tally, cost: ReadCost::default(), last: true })
    }
}

#[derive(Debug, Default)]
pub struct SampleBatch {
    pub batch: Batch,
    /// Rows for the ring.
    pub ring: Batch,
    /// Tallies of all sources once a second, and of those that have lost samples in this batch.
    pub reports: Vec<SourceReport>,
    /// Events in their order with the samples.
    pub events: Vec<EventRecord>,
    pub stacks: Vec<StackRecord>,
    pub sum: Tally,
}

impl SampleBatch {
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
            && self.ring.is_empty()
            && self.reports.is_empty()
            && self.events.is_empty()
            && self.stacks.is_empty()
    }

    /// True if no more events should be added before it is handed on.
    pub(super) fn is_full_of_events(&self) -> bool {
        self.events.len() >= EVENTS
    }

    /// True if it should be handed on before further call stacks.
    pub(super) fn is_full_of_stacks(&self) -> bool {
        self.stacks.len() >= STACKS
    }

    pub(super) const fn batch_of(&mut self, is_ring: bool) -> &mut Batch {
        if is_ring { &mut self.ring } else { &mut self.batch }
    }

    fn clear(&mut self) {
        self.batch.clear();
        self.ring.clear();
        self.stacks.clear();
        self.reports.clear();
        self.events.clear();
    }
}

#[derive(Debug)]
pub struct Channels {
    commands: ArrayQueue<Command>,
    /// Signal of finished reads. The sampler sleeps on its timer: until a deadline, a command, or the end of
    /// a read of the slow lane.
    pub(super) finished: Arc<FinishedReads>,
    notices: ArrayQueue<Notice>,
    notices_event: EventFd,
    full: ArrayQueue<SampleBatch>,
    full_event: EventFd,
    empty: ArrayQueue<SampleBatch>,
    /// True if finished reads of the slow lane wait for an empty batch.
    is_batch_awaited: AtomicBool,
    realtime_thread: OnceLock<Pid>,
}

impl Channels {
    pub fn new() -> io::Result<Self> {
        let empty = ArrayQueue::new(BATCHES);
        while !empty.is_full() {
            let batch = Batch::with_capacity(limits::BATCH_VALUES / 8);
            // The queue has room: the line above checks that.
            let reports = Vec::with_capacity(REPORTS);
            drop(empty.push(SampleBatch { batch, reports, ..SampleBatch::default() }));
        }
        Ok(Self {
            commands: ArrayQueue::new(COMMANDS),
            finished: Arc::default(),
            notices: ArrayQueue::new(NOTICES),
            notices_event: EventFd::new()?,
            full: ArrayQueue::new(BATCHES),
            full_event: EventFd::new()?,
            empty,
            is_batch_awaited: AtomicBool::new(false),
            realtime_thread: OnceLock::new(),
        })
    }

    /// Passes a command to the sampler and wakes it. Returns the command if too many wait.
    pub fn command(&self, command: Command) -> Result<(), Command> {
        self.commands.push(command)?;
        self.finished.timer.notify();
        Ok(())
    }

    /// Announces that the sampler's thread has real-time priority, so that the kernel does not move it to an
    /// idle CPU.
    pub(crate) fn set_realtime_thread(&self, thread: Pid) {
        // Set once, by the thread itself.
        self.realtime_thread.set(thread).ok();
    }

    pub(crate) fn realtime_thread(&self) -> Option<Pid> {
        self.realtime_thread.get().copied()
    }

    pub(super) fn next_command(&self) -> Option<Command> {
        self.commands.pop()
    }

    /// Sends a notice. Returns true if the supervisor will get it.
    pub(super) fn notify(&self, notice: Notice) -> bool {
        let fits = self.notices.push(notice).is_ok();
        self.notices_event.notify();
        fits
    }

    pub fn next_notice(&self) -> Option<Notice> {
        self.notices.pop()
    }

    /// Readable when there are notices.
    pub fn notices_event(&self) -> &EventFd {
        &self.notices_event
    }

    pub(super) fn take_empty(&self) -> Option<SampleBatch> {
        self.empty.pop()
    }

    pub(super) fn empty_batches(&self) -> usize {
        self.empty.len()
    }

    /// Lets the next batch that is given back wake the sampler as the end of a read does.
    pub(super) fn await_batch(&self) {
        self.is_batch_awaited.store(true, SeqCst);
    }

    pub(super) fn hand_on(&self, batch: SampleBatch) {
        // There are as many places as batches.
        drop(self.full.push(batch));
        self.full_event.notify();
    }

    pub fn next_batch(&self) -> Option<SampleBatch> {
        self.full.pop()
    }

    pub fn give_back(&self, mut batch: SampleBatch) {
        batch.clear();
        // There are as many places as batches.
        drop(self.empty.push(batch));
        if self.is_batch_awaited.swap(false, SeqCst) {
            self.finished.signal();
        }
    }

    /// Readable when a batch was handed on.
    pub fn full_event(&self) -> &EventFd {
        &self.full_event
    }
}
