//! What goes into a frame beside the samples: the dictionary that they need, tallies, events. Pure.

use std::collections::VecDeque;

use polymeter_proto::batch::Job;
use polymeter_proto::ledger::{Event, LedgerEntry, Tally};
use polymeter_proto::series::{JobHandle, SessionDescriptor};
use polymeter_proto::wire::dictionary::{Announced, Entry};

use crate::sampler::{Flushed, SourceReport, Told};

/// How often tallies travel when nothing was lost. A loss travels at once.
const LEDGER_NS: u64 = 10_000_000_000;

/// Events that are told again with one frame. Few, so that such a frame finds room where a full outbox made them untold.
const AGAIN_IN_FRAME: usize = 16;

/// Events that wait to be told again. Beyond it the oldest are lost, and counted: some 20 MiB, the jobs of a very long
/// outage.
const UNTOLD_EVENTS: usize = 64 * 1024;

/// What goes with the samples of one flush.
#[derive(Debug, Default)]
pub(super) struct Packed {
    pub(super) dictionary: Vec<Entry>,
    pub(super) ledger: Vec<LedgerEntry>,
    pub(super) told: Vec<Told>,
    /// Jobs that were forgotten already, and are spoken of once more.
    pub(super) revived: Vec<JobHandle>,
}

/// Remembers what the collector was told.
#[derive(Debug)]
pub(super) struct Packer {
    descriptor: SessionDescriptor,
    announced: Announced,
    introduced: bool,
    /// Tallies as they were last sent, to send only what has changed.
    told: Vec<(Option<JobHandle>, String, Tally)>,
    told_ns: u64,
    /// Events of frames that had to go, to be told again.
    untold: VecDeque<Told>,
}

impl Packer {
    pub(super) fn new(descriptor: SessionDescriptor, now_ns: u64) -> Self {
        let announced = Announced::default();
        Self {
            descriptor,
            announced,
            introduced: false,
            told: Vec::new(),
            told_ns: now_ns,
            untold: VecDeque::new(),
        }
    }

    /// What must go with the samples of `flushed`; none where there is nothing to send.
    pub(super) fn pack(&mut self, flushed: &Flushed, now_ns: u64) -> Option<Packed> {
        let ledger = self.ledger(&flushed.reports, now_ns);
        let again = self.untold.len().min(AGAIN_IN_FRAME);
        let mut told: Vec<Told> = self.untold.drain(..again).collect();
        let told_again = told.iter().filter_map(|told| Some(told.job.as_ref()?.handle));
        let revived: Vec<_> = told_again.filter(|job| !self.announced.knows_job(*job)).collect();
        told.extend(flushed.events.iter().cloned());
        if flushed.batch.is_empty() && ledger.is_empty() && told.is_empty() {
            return None;
        }
        let mut dictionary = Vec::new();
        if !std::mem::replace(&mut self.introduced, true) {
            dictionary.push(Entry::Session(self.descriptor.clone()));
        }
        for shape in flushed.batch.shapes() {
            self.announced.announce(shape, &mut dictionary);
        }
        let of_ledger = flushed.reports.iter().filter_map(|report| report.key.job.as_deref());
        let spoken_of = told.iter().filter_map(|told| told.job.as_deref());
        let in_ledger = |job: &&Job| ledger.iter().any(|entry| entry.job == Some(job.handle));
        for job in of_ledger.filter(in_ledger).chain(spoken_of) {
            self.announced.announce_job(job.handle, &job.descriptor, &mut dictionary);
        }
        for told in &told {
            if let Event::JobEnded { job, .. } = told.event {
                self.told.retain(|(of, ..)| *of != Some(job));
            }
        }
        Some(Packed { dictionary, ledger, told, revived })
    }

    /// The tallies that must travel now: of losses and of sources that end at once, of others now and then.
    fn ledger(&mut self, reports: &[SourceReport], now_ns: u64) -> Vec<LedgerEntry> {
        if reports.is_empty() {
            return Vec::new();
        }
        let all = now_ns.saturating_sub(self.told_ns) >= LEDGER_NS;
        if all {
            self.told_ns = now_ns;
        }
        let mut ledger = Vec::new();
        for report in reports {
            let job = report.key.job.as_ref().map(|job| job.handle);
            let source = report.key.name.as_str();
            let known = self.told.iter().position(|(of, name, _)| *of == job && name == source);
            let before = known.and_then(|at| self.told.get(at)).map(|(.., tally)| *tally).unwrap_or_default();
            let lost = |tally: &Tally| tally.missed + tally.dropped + tally.absent;
            let tell = report.tally != before && (all || report.last || lost(&report.tally) != lost(&before));
            if tell {
                ledger.push(LedgerEntry { job, source: report.key.name.clone(), tally: report.tally });
                match known.and_then(|at| self.told.get_mut(at)) {
                    Some((.., tally)) => *tally = report.tally,
                    None => self.told.push((job, source.to_owned(), report.tally)),
                }
            }
        }
        ledger
    }

    /// A frame had to go, and these events with it: they and the tallies, which may have been in it, are told again.
    /// Returns how many events cannot even be remembered.
    pub(super) fn lost(&mut self, events: Vec<Told>) -> u64 {
        self.untold.extend(events);
        self.told.clear();
        let too_many = self.untold.len().saturating_sub(UNTOLD_EVENTS);
        self.untold.drain(..too_many);
        too_many as u64
    }

    /// Whether events wait for a frame to be told in.
    pub(super) fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// All that was announced and is still in use.
    pub(super) fn all_entries(&self) -> Vec<Entry> {
        self.announced.all(&self.descriptor)
    }

    /// Forgets a job of which everything is acknowledged.
    pub(super) fn retire(&mut self, job: JobHandle) {
        self.announced.retire_job(job);
    }
}
