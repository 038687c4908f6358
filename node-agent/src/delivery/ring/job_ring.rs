//! The ring of one job: its newest samples in memory, and the intervals of it that are on their way. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use polymeter_proto::batch::{Batch, Job, Shape};
use polymeter_proto::ledger::KeptInterval;
use polymeter_proto::series::Identifier;
use polymeter_proto::wire::frame::Encoder;

use super::requests::{Held, HeldSpan, Wanted};
use super::segment::{Counts, Segment, counts_of};
use crate::principal::Sharer;

/// Values that are encoded together: many ticks of a source make small blocks.
const SEGMENT_VALUES: u64 = 4096;

/// Intervals of one job that wait at a time.
const INTERVALS: usize = 16;

/// Sent intervals that are remembered, to tell that they were sent.
const SENT: usize = 4 * INTERVALS;

/// A part of a kept interval that waits to be sent.
#[derive(Debug)]
pub(super) enum Part {
    Samples(Segment),
    /// Behind all samples of the interval. `dropped` counts those that did not find room while they waited.
    End {
        kept: KeptInterval,
        dropped: u64,
    },
}

impl Part {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Samples(segment) => segment.bytes(),
            Self::End { .. } => size_of::<Self>(),
        }
    }
}

#[derive(Debug)]
pub(super) struct JobRing {
    pub(super) job: Arc<Job>,
    pub(super) owner_uid: Option<u32>,
    /// Rings of an owner with smaller numbers send first.
    pub(super) turn: u64,
    /// One of the shapes of each source.
    sources: BTreeMap<Identifier, Arc<Shape>>,
    /// Newest samples, not encoded yet.
    open: Batch,
    segments: VecDeque<Segment>,
    segment_bytes: usize,
    wanted: Vec<Wanted>,
    outgoing: VecDeque<Part>,
    /// Samples of the last intervals, on their way or sent.
    sent: VecDeque<HeldSpan>,
    outgoing_bytes: usize,
    /// Microseconds since the epoch; none while the job runs.
    pub(super) ended_us: Option<i64>,
}

impl JobRing {
    pub(super) fn new(job: Arc<Job>, owner_uid: Option<u32>) -> Self {
        Self {
            job,
            owner_uid,
            turn: 0,
            sources: BTreeMap::new(),
            open: Batch::default(),
            segments: VecDeque::new(),
            segment_bytes: 0,
            wanted: Vec::new(),
            outgoing: VecDeque::new(),
            sent: VecDeque::new(),
            outgoing_bytes: 0,
            ended_us: None,
        }
    }

    /// Takes rows of the job. Returns the counts of those that cannot be encoded.
    pub(super) fn take(&mut self, rows: &Batch, encoder: &mut Encoder) -> Counts {
        for shape in rows.shapes() {
            if !self.sources.contains_key(&shape.source) {
                self.sources.insert(shape.source.clone(), Arc::clone(shape));
            }
        }
        let is_full = self.open.samples() + rows.samples() > SEGMENT_VALUES;
        let lost = if is_full { self.close(encoder) } else { Counts::new() };
        // What was in a batch fits into an empty one, and fewer values into one with few.
        self.open.append(rows, |_, _| true);
        lost
    }

    /// Encodes the newest samples. Returns the counts of those that cannot be encoded.
    fn close(&mut self, encoder: &mut Encoder) -> Counts {
        let open = std::mem::take(&mut self.open);
        match Segment::encode(encoder, &open) {
            Some(segment) => {
                self.push(segment);
                Counts::new()
            }
            None => counts_of(&open),
        }
    }

    fn push(&mut self, segment: Segment) {
        self.segment_bytes += segment.bytes();
        self.segments.push_back(segment);
    }

    /// Drops what is older than `oldest_us` and wanted by nobody, and the oldest beyond `limit_bytes`.
    /// Returns the counts.
    pub(super) fn evict(&mut self, oldest_us: i64, limit_bytes: usize) -> Counts {
        let mut dropped = Counts::new();
        self.sent.retain(|sent| sent.last_us >= oldest_us);
        while let Some(oldest) = self.segments.front() {
            let is_over = self.bytes() > limit_bytes;
            let is_wanted = self.wanted.iter().any(|of| oldest.overlaps(of.begin_us, of.end_us));
            if !is_over && (is_wanted || oldest.span_us.1 >= oldest_us) {
                break;
            }
            self.segment_bytes -= oldest.bytes();
            dropped.extend_from_slice(oldest.counts());
            self.segments.pop_front();
        }
        while self.outgoing_bytes > limit_bytes {
            let first = self.outgoing.iter().position(|part| matches!(part, Part::Samples(_)));
            let Some((first, Part::Samples(segment))) =
                first.and_then(|first| Some((first, self.outgoing.remove(first)?)))
            else {
                break;
            };
            self.outgoing_bytes -= segment.bytes();
            dropped.extend_from_slice(segment.counts());
            self.shorten(first, segment.samples());
        }
        dropped
    }

    /// Takes samples that were dropped off their interval, whose end is at `position` or behind.
    fn shorten(&mut self, position: usize, samples: u64) {
        for part in self.outgoing.iter_mut().skip(position) {
            if let Part::End { kept, dropped } = part {
                kept.samples = kept.samples.saturating_sub(samples);
                *dropped += samples;
                return;
            }
        }
    }

    /// Bytes of the samples that may still be dropped.
    fn bytes(&self) -> usize {
        self.open.capacity_bytes() + self.segment_bytes
    }

    /// Number of intervals that wait.
    fn waiting(&self) -> usize {
        self.wanted.len() + self.outgoing.iter().filter(|part| matches!(part, Part::End { .. })).count()
    }

    /// Adds an interval, for which there is room.
    pub(super) fn want(&mut self, wanted: Wanted) {
        self.wanted.push(wanted);
    }

    /// Lets the wanted intervals go out whose samples are all here: those that ended before `settled_us`, or
    /// all if the job has ended. Returns the counts of samples that cannot be encoded.
    pub(super) fn release(&mut self, settled_us: i64, encoder: &mut Encoder) -> Counts {
        let mut lost = Counts::new();
        let wanted = std::mem::take(&mut self.wanted);
        for of in wanted {
            if self.ended_us.is_none() && of.end_us > settled_us {
                self.wanted.push(of);
                continue;
            }
            lost.extend(self.close(encoder));
            let sent = self.take_out(of.begin_us, of.end_us, encoder, &mut lost);
            let samples = sent.map_or(0, |sent| sent.samples);
            if self.sent.len() >= SENT {
                self.sent.pop_front();
            }
            self.sent.extend(sent);
            let Wanted { job, begin_us, end_us, trigger, reason } = of;
            let kept = KeptInterval { job, begin_us, end_us, trigger, reason, samples };
            self.outgoing.push_back(Part::End { kept, dropped: 0 });
        }
        lost
    }

    /// Moves the samples of an interval to the outgoing ones. Returns what they are, if there are any.
    fn take_out(
        &mut self,
        begin_us: i64,
        end_us: i64,
        encoder: &mut Encoder,
        lost: &mut Counts,
    ) -> Option<HeldSpan> {
        let mut sent: Option<HeldSpan> = None;
        let mut add = |segment: &Segment| {
            let span = segment.held();
            sent = Some(sent.map_or(span, |sent| sent.joined(span)));
        };
        self.segment_bytes = 0;
        for segment in std::mem::take(&mut self.segments) {
            if !segment.overlaps(begin_us, end_us) {
                self.push(segment);
                continue;
            }
            if segment.is_within(begin_us, end_us) {
                add(&segment);
                self.send(segment);
                continue;
            }
            let rows = segment.rows();
            let (mut inside, mut outside) = (Batch::default(), Batch::default());
            inside.append(&rows, |_, time_us| (begin_us..=end_us).contains(&time_us));
            outside.append(&rows, |_, time_us| !(begin_us..=end_us).contains(&time_us));
            for (part, is_inside) in [(inside, true), (outside, false)] {
                match Segment::encode(encoder, &part) {
                    Some(part) if is_inside => {
                        add(&part);
                        self.send(part);
                    }
                    Some(part) => self.push(part),
                    None => lost.extend(counts_of(&part)),
                }
            }
        }
        sent
    }

    fn send(&mut self, segment: Segment) {
        self.outgoing_bytes += segment.bytes();
        self.outgoing.push_back(Part::Samples(segment));
    }

    pub(super) fn next_part(&mut self) -> Option<Part> {
        let part = self.outgoing.pop_front()?;
        if let Part::Samples(segment) = &part {
            self.outgoing_bytes -= segment.bytes();
        }
        Some(part)
    }

    pub(super) fn sharer(&self) -> Sharer {
        Sharer::of(self.job.handle, self.owner_uid)
    }

    pub(super) fn has_work(&self) -> bool {
        !self.wanted.is_empty() || !self.outgoing.is_empty()
    }

    pub(super) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Returns the counts of all samples that are left, and each source at least with 0.
    pub(super) fn into_counts(self) -> Counts {
        let mut dropped = counts_of(&self.open);
        for segment in &self.segments {
            dropped.extend_from_slice(segment.counts());
        }
        dropped.extend(self.sources.into_values().map(|shape| (shape, 0)));
        dropped
    }

    pub(super) fn held(&self) -> Held {
        let descriptor = &self.job.descriptor;
        let outside = self.segments.iter().map(Segment::held).chain(self.sent.iter().copied());
        let open = self.open.span_us().map(|(first_us, last_us)| HeldSpan {
            first_us,
            last_us,
            samples: self.open.samples(),
        });
        let periods = self.sources.values().map(|shape| shape.period.as_micros());
        Held {
            period_us: periods.min().and_then(|period_us| i64::try_from(period_us).ok()).unwrap_or_default(),
            spans: outside.chain(open).collect(),
            job_id: descriptor.job_id.clone(),
            owner_uid: self.owner_uid,
            room: INTERVALS.saturating_sub(self.waiting()),
            bytes: self.bytes() + self.outgoing_bytes,
        }
    }
}
