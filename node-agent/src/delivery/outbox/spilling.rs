//! Entries of an outbox that are in segments on the disk.

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::message::SkipReason;

use super::Outbox;
use super::entry::{Entry, Restored, Spill, What};
use crate::delivery::frame_summary::LostSamples;

impl Outbox {
    /// Makes the outbox of an earlier process's session. All that remains of it is in `segments`, each with
    /// its first and last number. Every frame may have been sent before, even if it was only in that
    /// process's memory.
    pub fn of_segments(session: SessionId, limit_bytes: usize, segments: &[(u64, u64)]) -> Self {
        let mut outbox = Self::new(session, limit_bytes);
        for (first, last) in segments {
            let (first, last) = (*first, *last);
            outbox.entries.push_back(Entry { first, last, segment: Some(first), what: What::Spilled });
            outbox.next_sequence = last + 1;
        }
        outbox.sent_through = u64::MAX;
        outbox
    }

    /// Entries to be written to the disk next: the oldest that are not there, of about `most_bytes`. Entries
    /// under way are included, so that the disk has no gaps.
    pub fn spill(&self, most_bytes: usize) -> Option<Spill<'_>> {
        let is_new = |entry: &Entry| entry.segment.is_none() && entry.is_worth_keeping();
        let begin = self.entries.iter().position(is_new)?;
        let first = self.entries.get(begin)?.first;
        let mut bytes = 0;
        let run = self.entries.iter().skip(begin).take_while(|entry| {
            let fits = bytes < most_bytes && is_new(entry);
            bytes += entry.weight();
            fits
        });
        let records: Vec<_> = run.map(|entry| self.outgoing(entry)).collect();
        let before = begin.checked_sub(1).and_then(|before| self.entries.get(before));
        let continues = before.and_then(|entry| entry.segment);
        Some(Spill { first, continues, entries: records.len(), records })
    }

    /// Records that the first `entries` of [`Outbox::spill`], from number `first` on, are in `segment`. Those
    /// under way also stay in memory.
    pub fn spilled(&mut self, first: u64, entries: usize, segment: u64) {
        let begin = self.position(first);
        let end = (begin + entries).min(self.entries.len());
        for entry in self.entries.range_mut(begin..end) {
            self.own_bytes -= entry.own_bytes();
            entry.segment = Some(segment);
        }
        let begin = begin.max(self.under_way);
        if begin >= end {
            return;
        }
        let run: Vec<Entry> = self.entries.drain(begin..end).collect();
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        self.bytes -= run.iter().map(Entry::bytes).sum::<usize>();
        let (first, last) = (first.first, last.last);
        match begin.checked_sub(1).and_then(|before| self.entries.get_mut(before)) {
            Some(before) if before.segment == Some(segment) && matches!(before.what, What::Spilled) => {
                before.last = last;
            }
            _ => {
                let entry = Entry { first, last, segment: Some(segment), what: What::Spilled };
                self.entries.insert(begin, entry);
            }
        }
    }

    /// True if everything without an acknowledgement is in segments.
    pub fn is_spilled(&self) -> bool {
        self.entries.iter().all(|entry| entry.segment.is_some() || !entry.is_worth_keeping())
    }

    /// Takes the entries that were read back from `segment`, in order. Damaged frames become a note. Returns
    /// how many were damaged.
    pub fn restored(&mut self, segment: u64, restored: Vec<Restored>) -> u64 {
        let position = self
            .entries
            .iter()
            .position(|entry| entry.segment == Some(segment) && matches!(entry.what, What::Spilled));
        let Some(position) = position else { return 0 };
        let Some(Entry { first, last, .. }) = self.entries.remove(position) else { return 0 };
        let mut entries = Vec::new();
        let (mut next, mut count) = (first, 0);
        for restored in restored {
            let (begin, end) = (restored.first(), restored.last());
            // Skips entries that were acknowledged meanwhile, and those that do not belong to the segment.
            if begin < next || end < begin || end > last {
                continue;
            }
            if begin > next {
                entries.push(damaged(segment, next, begin - 1));
                count += begin - next;
            }
            let what = match restored {
                Restored::Frame(_, bytes, summary, events) => {
                    self.bytes += bytes.len();
                    What::Frame { bytes, summary, events }
                }
                Restored::Skipped(_, _, losses, reason) => What::Skipped { losses, reason },
            };
            entries.push(Entry { first: begin, last: end, segment: Some(segment), what });
            next = end + 1;
        }
        if next <= last {
            entries.push(damaged(segment, next, last));
            count += last + 1 - next;
        }
        let behind = self.entries.split_off(position);
        self.entries.extend(entries);
        self.entries.extend(behind);
        count
    }
}

fn damaged(segment: u64, first: u64, last: u64) -> Entry {
    let what = What::Skipped { losses: LostSamples::default(), reason: SkipReason::Damaged };
    Entry { first, last, segment: Some(segment), what }
}
