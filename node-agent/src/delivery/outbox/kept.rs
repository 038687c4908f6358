//! Acknowledged frames that are kept for a while: a database that takes over after a failure may lack the
//! newest of them.

use std::collections::VecDeque;

use polymeter_proto::wire::message::SkipReason;

use super::entry::{Entry, What};
use crate::delivery::frame_summary::{FrameSummary, LostSamples};
use crate::lanes::EventRecord;

/// Most frames of which at least the numbers of samples are kept: some minutes, at the usual flush interval.
const FRAMES: usize = 1024;

#[derive(Debug)]
enum Content {
    Frame {
        bytes: Vec<u8>,
        summary: FrameSummary,
        events: Vec<EventRecord>,
    },
    /// Samples of an entry whose bytes are gone.
    Summary(LostSamples),
    Note {
        losses: LostSamples,
        reason: SkipReason,
    },
}

#[derive(Debug)]
struct KeptEntry {
    first: u64,
    last: u64,
    content: Content,
}

impl KeptEntry {
    const fn bytes(&self) -> usize {
        match &self.content {
            Content::Frame { bytes, .. } => bytes.len(),
            Content::Summary(_) | Content::Note { .. } => 0,
        }
    }
}

/// Acknowledged frames in the order of their numbers, bounded in bytes and number.
#[derive(Debug, Default)]
pub(super) struct KeptFrames {
    limit_bytes: usize,
    entries: VecDeque<KeptEntry>,
    bytes: usize,
    /// So many of the oldest entries have lost their bytes.
    reduced: usize,
}

impl KeptFrames {
    /// Keeps nothing for 0.
    pub(super) const fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn oldest(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.first)
    }

    /// Keeps an entry that was acknowledged. Older ones lose their bytes, and then their place.
    pub(super) fn keep(&mut self, entry: Entry) {
        let Entry { first, last, what, .. } = entry;
        let content = match what {
            What::Frame { bytes, summary, events } => Content::Frame { bytes, summary, events },
            What::Skipped { losses, reason } => Content::Note { losses, reason },
            // It is on the disk alone.
            What::Spilled => return self.clear(),
        };
        if self.limit_bytes == 0 {
            return;
        }
        if self.entries.back().is_some_and(|newest| newest.last + 1 != first) {
            self.clear();
        }
        let entry = KeptEntry { first, last, content };
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        while self.bytes > self.limit_bytes {
            let Some(entry) = self.entries.get_mut(self.reduced) else { break };
            let bytes = entry.bytes();
            if let Content::Frame { summary, .. } = &entry.content {
                entry.content = Content::Summary(LostSamples::from(summary));
                self.bytes -= bytes;
            }
            self.reduced += 1;
        }
        while self.entries.len() > FRAMES {
            self.bytes -= self.entries.pop_front().map_or(0, |entry| entry.bytes());
            self.reduced = self.reduced.saturating_sub(1);
        }
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        self.reduced = 0;
    }

    /// Takes everything from number `from` on, up to the frame before `until`, as entries of an outbox.
    /// Frames that are not kept become notes. Returns the numbers of frames whose tallies must be repeated,
    /// too.
    pub(super) fn take_from(&mut self, from: u64, until: u64) -> (Vec<Entry>, Vec<u64>) {
        let (mut taken, mut lost) = (Vec::new(), Vec::new());
        let begin = self.entries.partition_point(|entry| entry.last < from);
        let kept = self.entries.split_off(begin);
        self.bytes = self.entries.iter().map(KeptEntry::bytes).sum();
        self.reduced = self.reduced.min(begin);
        let mut next = from;
        for KeptEntry { first, last, content } in kept {
            if first > next {
                taken.push(unknown(next, first - 1));
            }
            next = last + 1;
            let first = first.max(from);
            let what = match content {
                Content::Frame { bytes, summary, events } => What::Frame { bytes, summary, events },
                Content::Note { losses, reason } => What::Skipped { losses, reason },
                Content::Summary(losses) => {
                    lost.push(first);
                    What::Skipped { losses, reason: SkipReason::AlreadyAcknowledged }
                }
            };
            push(&mut taken, Entry { first, last, segment: None, what });
        }
        if next < until {
            taken.push(unknown(next, until - 1));
        }
        (taken, lost)
    }
}

/// Adds an entry, or extends the last one, if both are notes on the samples of acknowledged frames: one loss
/// is recorded for all of them.
fn push(taken: &mut Vec<Entry>, entry: Entry) {
    const REASON: SkipReason = SkipReason::AlreadyAcknowledged;
    let Entry { first, last, segment, what } = entry;
    let what = match (taken.last_mut(), what) {
        (
            Some(Entry { last: end, what: What::Skipped { losses: before, reason: REASON }, .. }),
            What::Skipped { losses, reason: REASON },
        ) if !before.is_empty() => match before.join(losses) {
            Ok(()) => {
                *end = last;
                return;
            }
            Err(losses) => What::Skipped { losses, reason: REASON },
        },
        (_, what) => what,
    };
    taken.push(Entry { first, last, segment, what });
}

/// Makes a note on frames that were acknowledged before, and of which nothing is kept.
fn unknown(first: u64, last: u64) -> Entry {
    let what = What::Skipped { losses: LostSamples::default(), reason: SkipReason::AlreadyAcknowledged };
    Entry { first, last, segment: None, what }
}
