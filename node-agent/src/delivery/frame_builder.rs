//! What goes into a frame beside the samples: the dictionary that they need, tallies, events. Pure.

use std::collections::VecDeque;

use polymeter_proto::ledger::{Event, LedgerEntry};
use polymeter_proto::series::{JobHandle, SessionDescriptor};
use polymeter_proto::wire::dictionary::{Announced, Entry};

use super::loss_ledger::LossLedger;
use crate::lanes::{EventRecord, SampleBatch};

/// Events that are told again with one frame. Few, so that such a frame finds room where a full outbox made them untold.
const AGAIN_IN_FRAME: usize = 16;

/// Events that wait to be told again. Beyond it the oldest are lost, and counted: some 20 MiB, the jobs of a very long
/// outage.
const UNTOLD_EVENTS: usize = 64 * 1024;

/// What goes with the samples of one flush.
#[derive(Debug, Default)]
pub(super) struct FrameParts {
    pub(super) dictionary: Vec<Entry>,
    pub(super) ledger: Vec<LedgerEntry>,
    pub(super) told: Vec<EventRecord>,
    /// Jobs that were forgotten already, and are spoken of once more.
    pub(super) revived: Vec<JobHandle>,
}

/// Remembers what the collector was told.
#[derive(Debug, Default)]
pub(super) struct FrameBuilder {
    /// None where another life spoke, and all that it said is on the disk.
    descriptor: Option<SessionDescriptor>,
    announced: Announced,
    introduced: bool,
    ledger: LossLedger,
    /// Events of frames that had to go, to be told again.
    untold: VecDeque<EventRecord>,
}

impl FrameBuilder {
    pub(super) fn new(descriptor: SessionDescriptor, now_ns: u64) -> Self {
        let announced = Announced::default();
        Self {
            descriptor: Some(descriptor),
            announced,
            introduced: false,
            ledger: LossLedger::new(now_ns),
            untold: VecDeque::new(),
        }
    }

    /// What must go with the samples of `flushed` into the frame `sequence`; none where there is nothing to send and no
    /// frame `is_owed`.
    pub(super) fn build(
        &mut self,
        flushed: &SampleBatch,
        sequence: u64,
        is_owed: bool,
        now_ns: u64,
    ) -> Option<FrameParts> {
        let lines = self.ledger.enter(&flushed.reports, sequence, now_ns);
        let again = self.untold.len().min(AGAIN_IN_FRAME);
        let mut told: Vec<EventRecord> = self.untold.drain(..again).collect();
        let again = told.iter().filter_map(|told| told.job.as_ref());
        let again =
            again.chain(lines.iter().filter(|line| line.is_again).filter_map(|line| line.job.as_ref()));
        let revived = again.map(|job| job.handle).filter(|job| !self.announced.knows_job(*job)).collect();
        told.extend(flushed.events.iter().cloned());
        if !is_owed && flushed.batch.is_empty() && lines.is_empty() && told.is_empty() {
            return None;
        }
        let mut dictionary = Vec::new();
        if !std::mem::replace(&mut self.introduced, true) {
            dictionary.extend(self.descriptor.clone().map(Entry::Session));
        }
        for shape in flushed.batch.shapes() {
            self.announced.announce(shape, &mut dictionary);
        }
        let spoken_of = lines.iter().filter_map(|line| line.job.as_ref());
        for job in spoken_of.chain(told.iter().filter_map(|told| told.job.as_ref())) {
            self.announced.announce_job(job.handle, &job.descriptor, &mut dictionary);
        }
        for told in &told {
            if let Event::JobOwner(owner) = &told.event {
                self.announced.learn_owner(owner);
            }
        }
        let ledger = lines.into_iter().map(|line| line.entry).collect();
        Some(FrameParts { dictionary, ledger, told, revived })
    }

    /// What was parts for the frame `first` was divided among it and the following up to `last`.
    pub(super) fn divided(&mut self, first: u64, last: u64) {
        self.ledger.divided(first, last);
    }

    /// Frames had to go, and these events with them: they and the tallies in them are told again. Returns how many
    /// events cannot even be remembered.
    pub(super) fn lost(&mut self, frames: &[u64], events: Vec<EventRecord>) -> u64 {
        self.untold.extend(events);
        self.ledger.lost(frames);
        let too_many = self.untold.len().saturating_sub(UNTOLD_EVENTS);
        self.untold.drain(..too_many);
        too_many as u64
    }

    /// Whether events or tallies wait for a frame to be told in.
    pub(super) fn has_untold(&self) -> bool {
        !self.untold.is_empty() || self.ledger.has_untold()
    }

    /// All that was announced and is still in use.
    pub(super) fn all_entries(&self) -> Vec<Entry> {
        self.descriptor.as_ref().map_or_else(Vec::new, |descriptor| self.announced.all(descriptor))
    }

    /// Another number whenever [`FrameBuilder::all_entries`] would say something else.
    pub(super) const fn version(&self) -> u64 {
        self.announced.version()
    }

    /// Forgets a job of which everything is acknowledged.
    pub(super) fn retire(&mut self, job: JobHandle) {
        self.announced.retire_job(job);
        self.ledger.retire(job);
    }
}
