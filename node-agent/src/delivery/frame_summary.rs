//! The summary of a frame by job and source: it remains when the frame itself is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::batch::{Batch, Job, Shape};
use polymeter_proto::catalogue::{STACKS_KIND, stacks_source};
use polymeter_proto::ledger::Event;
use polymeter_proto::series::{Identifier, JobHandle, MetricId, SeriesDescriptor, SeriesId, ShapeId};
use polymeter_proto::stacks::StackInterval;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::Lost;

use crate::lanes::EventRecord;

/// Most sources in one note. With names of ordinary length its message stays far below the size limit of
/// messages.
const SOURCES: usize = 1024;

/// Source under which a note counts the samples beyond [`SOURCES`].
const OTHERS: &str = "others";

/// Owner of samples: a job and a source. A shape is available anyway and cheaper than names, which are needed
/// only if the frame is dropped.
#[derive(Debug, Clone)]
enum Origin {
    Shape(Arc<Shape>),
    Source(Option<JobHandle>, Identifier),
}

/// Made when the frame was built or read back.
#[derive(Debug, Clone, Default)]
pub struct FrameSummary {
    samples: Box<[(Origin, u64)]>,
    span_us: (i64, i64),
}

impl FrameSummary {
    pub fn of(batch: &Batch) -> Self {
        let samples = batch.shapes().iter().cloned().zip(batch.samples_by_shape());
        let samples = samples.filter(|(_, samples)| *samples > 0);
        Self {
            samples: samples.map(|(shape, samples)| (Origin::Shape(shape), samples)).collect(),
            span_us: batch.span_us().unwrap_or_default(),
        }
    }

    pub(super) fn with_stacks(
        self,
        stacks: &[StackInterval],
        source: impl Fn(MetricId) -> &'static str,
    ) -> Self {
        let mut span_us = (!self.samples.is_empty()).then_some(self.span_us);
        let mut samples = self.samples.into_vec();
        for interval in stacks.iter().filter(|interval| interval.samples() > 0) {
            let Ok(source) = Identifier::try_from(source(interval.metric)) else { continue };
            samples.push((Origin::Source(Some(interval.job), source), interval.samples()));
            let (begin_us, end_us) = span_us.unwrap_or((interval.begin_us, interval.end_us));
            span_us = Some((begin_us.min(interval.begin_us), end_us.max(interval.end_us)));
        }
        Self { samples: samples.into(), span_us: span_us.unwrap_or_default() }
    }

    /// `sources` maps the frame's shapes to jobs and sources.
    pub(super) fn of_frame(frame: &Frame, sources: &Sources) -> Self {
        let samples = frame.blocks.iter().filter_map(|block| {
            let (job, source) = sources.of(block.shape)?;
            Some((Origin::Source(job, source), block.samples()))
        });
        let times = || frame.blocks.iter().flat_map(|block| block.times_us.iter().copied());
        let span_us = times().min().zip(times().max()).unwrap_or_default();
        Self { samples: samples.collect(), span_us }
            .with_stacks(&frame.stacks, |metric| sources.stacks.get(&metric).copied().unwrap_or(STACKS_KIND))
    }

    pub fn samples(&self) -> u64 {
        self.samples.iter().map(|(_, samples)| samples).sum()
    }
}

/// Job and source of each shape, from dictionary entries.
#[derive(Debug, Default)]
pub(super) struct Sources {
    jobs: BTreeMap<JobHandle, Arc<Job>>,
    series: BTreeMap<SeriesId, JobHandle>,
    stacks: BTreeMap<MetricId, &'static str>,
    shapes: BTreeMap<ShapeId, (Option<JobHandle>, Identifier)>,
}

impl Sources {
    pub(super) fn learn(&mut self, entry: &Entry) {
        match entry {
            Entry::Job(handle, descriptor) => {
                let job = Job { handle: *handle, descriptor: descriptor.clone() };
                self.jobs.insert(*handle, Arc::new(job));
            }
            Entry::Series(id, SeriesDescriptor { job: Some(job), .. }) => {
                self.series.insert(*id, *job);
            }
            Entry::Shape(id, shape) => {
                let job = shape.series.first().and_then(|series| self.series.get(series)).copied();
                self.shapes.insert(*id, (job, shape.source.clone()));
            }
            Entry::Metric(id, metric) => {
                self.stacks.insert(*id, stacks_source(metric.name.as_str()));
            }
            Entry::Session(_) | Entry::Series(..) | Entry::Function(..) | Entry::Stack(..) => {}
        }
    }

    pub(super) fn record(&self, event: &Event) -> EventRecord {
        let job = event.job().and_then(|job| self.jobs.get(&job)).cloned();
        EventRecord { job, event: event.clone() }
    }

    /// None if no entry defines the shape.
    fn of(&self, shape: ShapeId) -> Option<(Option<JobHandle>, Identifier)> {
        self.shapes.get(&shape).cloned().or_else(|| Some((None, Identifier::try_from(OTHERS).ok()?)))
    }
}

#[derive(Debug, Default)]
pub struct LostSamples {
    samples: BTreeMap<(Option<JobHandle>, Identifier), u64>,
    /// Times of the oldest and the newest sample, in microseconds since the epoch.
    pub span_us: (i64, i64),
}

impl From<&FrameSummary> for LostSamples {
    fn from(summary: &FrameSummary) -> Self {
        let mut losses = Self { samples: BTreeMap::new(), span_us: summary.span_us };
        for (key, samples) in &summary.samples {
            let key = match key {
                Origin::Shape(shape) => (shape.job.as_ref().map(|job| job.handle), shape.source.clone()),
                Origin::Source(job, source) => (*job, source.clone()),
            };
            losses.add(key, *samples);
        }
        losses
    }
}

impl LostSamples {
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    fn add(&mut self, key: (Option<JobHandle>, Identifier), samples: u64) {
        let is_full = self.samples.len() >= SOURCES && !self.samples.contains_key(&key);
        let key =
            if is_full { Identifier::try_from(OTHERS).map_or(key, |source| (None, source)) } else { key };
        *self.samples.entry(key).or_default() += samples;
    }

    /// Adds `other`, unless one note cannot hold so many sources: then returns it.
    pub fn join(&mut self, other: Self) -> Result<(), Self> {
        let new = other.samples.keys().filter(|key| !self.samples.contains_key(key)).count();
        if self.samples.len() + new > SOURCES {
            return Err(other);
        }
        // Losses without samples have no span.
        self.span_us = match (self.samples.is_empty(), other.samples.is_empty()) {
            (_, true) => self.span_us,
            (true, false) => other.span_us,
            (false, false) => (self.span_us.0.min(other.span_us.0), self.span_us.1.max(other.span_us.1)),
        };
        other.samples.into_iter().for_each(|(key, samples)| self.add(key, samples));
        Ok(())
    }

    pub(super) fn of_lost(lost: Vec<Lost>, span_us: (i64, i64)) -> Self {
        let mut losses = Self { samples: BTreeMap::new(), span_us };
        lost.into_iter().for_each(|lost| losses.add((lost.job, lost.source), lost.samples));
        losses
    }

    pub fn to_lost(&self) -> Vec<Lost> {
        self.samples
            .iter()
            .map(|((job, source), samples)| Lost { job: *job, source: source.clone(), samples: *samples })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(sources: std::ops::Range<usize>, at_us: i64) -> LostSamples {
        let mut losses = LostSamples { span_us: (at_us, at_us), ..LostSamples::default() };
        for source in sources {
            losses.add((None, format!("s{source}").as_str().try_into().unwrap()), 1);
        }
        losses
    }

    #[test]
    fn lost_samples_are_joined_by_source_and_bounded() {
        let mut some = losses(0..3, 10);
        some.join(losses(2..4, 30)).unwrap();
        some.join(losses(0..0, -7)).unwrap();
        let samples: Vec<u64> = some.to_lost().iter().map(|lost| lost.samples).collect();
        assert_eq!((samples, some.span_us), (vec![1, 1, 2, 1], (10, 30)));
        assert_eq!(some.join(losses(0..SOURCES + 1, 0)).unwrap_err().to_lost().len(), SOURCES + 1);
        let many = losses(0..SOURCES + 9, 0).to_lost();
        assert_eq!(many.iter().map(|lost| lost.samples).sum::<u64>(), SOURCES as u64 + 9);
        assert_eq!(many.iter().find(|lost| lost.source.as_str() == OTHERS).unwrap().samples, 9);
    }
}
