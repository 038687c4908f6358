//! What goes into the sampler and what comes out of it: bounded queues without locks, and events.

use std::io;
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;
use polymeter_proto::batch::{Batch, Job, Shape};
use polymeter_proto::ledger::{Event, Tally};
use polymeter_proto::limits;
use polymeter_proto::series::JobHandle;
use rustix::io::Errno;
use rustix::thread::Pid;
use tokio::sync::oneshot;

use super::active_source::{ActiveSource, Cost, Group, SourceId, SourceKey};
use super::futex_timer::FutexTimer;
use crate::event_fd::EventFd;
use crate::sources::Outcome;

/// Batches in all: one that is being filled, one that is being encoded, and two for a sender that was held up.
const BATCHES: usize = 4;

/// Commands that may wait. Beyond that the manager waits, and the sampler never does.
const COMMANDS: usize = 1024;

/// Events in one batch: far more than a change of a whole plan makes, and few enough for a frame.
const EVENTS: usize = 4096;

/// Notices that may wait. What does not fit is noticed again at the next read, or closed by the sampler itself.
const NOTICES: usize = 4096;

/// What the manager wants of the sampler.
#[derive(Debug)]
pub enum Command {
    /// Sample this source, from the next deadline of each of its groups. One that has this id already is replaced, and
    /// its tally goes on.
    Add(SourceId, Box<ActiveSource>),
    /// Sample it no more, and give it back.
    Remove(SourceId),
    /// Remove these sources and add those, with no reading in between: both may give the same series.
    Exchange {
        /// Those that are sampled no more.
        removed: Vec<SourceId>,
        /// Those that are sampled from now on.
        added: Vec<(SourceId, Box<ActiveSource>)>,
    },
    /// Sample its metrics at other periods, from the next deadline of each.
    Regroup(SourceId, Vec<Group>),
    /// Read these once, now.
    ReadNow(Vec<SourceId>),
    /// Read all sources of this job once, now.
    ReadJob(JobHandle),
    /// Put this value, which a user gave, behind the samples so far.
    RecordUserValue(Box<UserValue>),
    /// Put this event behind the samples so far.
    RecordEvent(Box<EventRecord>),
    /// Answer when everything before this is done.
    Confirm(oneshot::Sender<()>),
    /// Hand on what there is, and all tallies.
    Flush,
    /// Hand on what there is, because somebody watches; the tallies when it is their time.
    FlushForWatch,
    /// Hand on what there is, and end.
    Stop,
}

/// What the sampler has to say to the manager.
#[derive(Debug)]
pub enum Notice {
    /// Something in the source came or went; open it anew.
    Changed(SourceId),
    /// The source is gone, as sources end.
    Gone(SourceId),
    /// It cannot be read.
    Failed(SourceId, Errno),
    /// The source that was removed, to be closed.
    Removed(SourceId, Box<ActiveSource>),
    /// The source that was replaced, to be closed.
    Replaced(Box<ActiveSource>),
}

impl Notice {
    pub(super) const fn of(id: SourceId, outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Read => None,
            Outcome::Changed => Some(Self::Changed(id)),
            Outcome::Gone => Some(Self::Gone(id)),
            Outcome::Failed(errno) => Some(Self::Failed(id, errno)),
        }
    }
}

/// A value that a user gave.
#[derive(Debug)]
pub struct UserValue {
    /// The source that counts it.
    pub source: SourceId,
    /// Its series.
    pub shape: Arc<Shape>,
    /// When it was given, in microseconds since the epoch.
    pub time_us: i64,
    /// The bits of the value.
    pub bits: u64,
}

/// An event, with the job that it speaks of: the receiver may not have heard of it by a sample.
#[derive(Debug, Clone)]
pub struct EventRecord {
    /// The job.
    pub job: Option<Arc<Job>>,
    /// The event.
    pub event: Event,
}

/// The tally and cost of one source so far.
#[derive(Debug, Clone)]
pub struct SourceReport {
    /// Which.
    pub key: Arc<SourceKey>,
    /// What became of its samples.
    pub tally: Tally,
    /// What its reads cost.
    pub cost: Cost,
    /// Whether it is the last report of this source.
    pub last: bool,
}

impl SourceReport {
    pub(super) fn of(source: &ActiveSource, last: bool) -> Self {
        Self { key: Arc::clone(&source.key), tally: source.tally, cost: source.cost, last }
    }
}

/// What the sampler hands to the sender.
#[derive(Debug, Default)]
pub struct SampleBatch {
    /// The samples.
    pub batch: Batch,
    /// The tallies, once a second.
    pub reports: Vec<SourceReport>,
    /// What happened, in its order with the samples.
    pub events: Vec<EventRecord>,
    /// The sum of all tallies since the beginning.
    pub sum: Tally,
}

impl SampleBatch {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.reports.is_empty() && self.events.is_empty()
    }

    /// Whether no more events should be added before it is handed on.
    pub(super) fn is_full_of_events(&self) -> bool {
        self.events.len() >= EVENTS
    }

    fn clear(&mut self) {
        self.batch.clear();
        self.reports.clear();
        self.events.clear();
    }
}

/// The sampler's connections to the manager and the sender.
#[derive(Debug)]
pub struct Channels {
    commands: ArrayQueue<Command>,
    pub(super) commands_timer: FutexTimer,
    notices: ArrayQueue<Notice>,
    notices_event: EventFd,
    full: ArrayQueue<SampleBatch>,
    full_event: EventFd,
    empty: ArrayQueue<SampleBatch>,
    realtime_thread: OnceLock<Pid>,
}

impl Channels {
    /// Connections with empty queues and a stock of empty batches.
    ///
    /// # Errors
    /// When no descriptors can be had.
    pub fn new() -> io::Result<Self> {
        let empty = ArrayQueue::new(BATCHES);
        while !empty.is_full() {
            let batch = Batch::with_capacity(limits::BATCH_VALUES / 8);
            // The queue has room: it was asked a line above.
            drop(empty.push(SampleBatch { batch, ..SampleBatch::default() }));
        }
        Ok(Self {
            commands: ArrayQueue::new(COMMANDS),
            commands_timer: FutexTimer::default(),
            notices: ArrayQueue::new(NOTICES),
            notices_event: EventFd::new()?,
            full: ArrayQueue::new(BATCHES),
            full_event: EventFd::new()?,
            empty,
            realtime_thread: OnceLock::new(),
        })
    }

    /// Gives a command to the sampler and wakes it.
    ///
    /// # Errors
    /// Gives the command back when too many wait.
    pub fn command(&self, command: Command) -> Result<(), Command> {
        self.commands.push(command)?;
        self.commands_timer.notify();
        Ok(())
    }

    /// Says that the sampler's thread is one that the kernel leaves where it is.
    pub(crate) fn set_realtime_thread(&self, thread: Pid) {
        // EventRecord once, by the thread itself.
        self.realtime_thread.set(thread).ok();
    }

    /// The sampler's thread, if it is one that the kernel leaves where it is.
    pub(crate) fn realtime_thread(&self) -> Option<Pid> {
        self.realtime_thread.get().copied()
    }

    pub(super) fn next_command(&self) -> Option<Command> {
        self.commands.pop()
    }

    /// Whether the manager will get it.
    pub(super) fn notify(&self, notice: Notice) -> bool {
        let fits = self.notices.push(notice).is_ok();
        self.notices_event.notify();
        fits
    }

    /// What the sampler has to say.
    pub fn next_notice(&self) -> Option<Notice> {
        self.notices.pop()
    }

    /// Rings when there are notices.
    pub fn notices_event(&self) -> &EventFd {
        &self.notices_event
    }

    pub(super) fn take_empty(&self) -> Option<SampleBatch> {
        self.empty.pop()
    }

    pub(super) fn hand_on(&self, flushed: SampleBatch) {
        // There are as many places as batches.
        drop(self.full.push(flushed));
        self.full_event.notify();
    }

    /// What the sampler has handed on.
    pub fn next_batch(&self) -> Option<SampleBatch> {
        self.full.pop()
    }

    /// Gives a batch back when it has been encoded.
    pub fn give_back(&self, mut flushed: SampleBatch) {
        flushed.clear();
        // There are as many places as batches.
        drop(self.empty.push(flushed));
    }

    /// Rings when something has been handed on.
    pub fn full_event(&self) -> &EventFd {
        &self.full_event
    }
}
