//! What was in a frame, by job and source: all that is left of it when it must go.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::batch::{Batch, Shape};
use polymeter_proto::series::{Identifier, JobHandle};
use polymeter_proto::wire::message::Lost;

/// Sources of which one note tells. With names of ordinary length its message stays far below what a message may have.
const SOURCES: usize = 1024;

/// The source under which a note counts what is beyond [`SOURCES`].
const OTHERS: &str = "others";

/// What was known of a frame when it was made. It points to shapes, which are there anyway, for it may never be asked.
#[derive(Debug, Clone, Default)]
pub struct Content {
    samples: Box<[(Arc<Shape>, u64)]>,
    span_us: (i64, i64),
}

impl Content {
    /// What is in `batch`.
    pub fn of(batch: &Batch) -> Self {
        let samples = batch.shapes().iter().cloned().zip(batch.samples_by_shape());
        Self {
            samples: samples.filter(|(_, samples)| *samples > 0).collect(),
            span_us: batch.span_us().unwrap_or_default(),
        }
    }

    /// How many samples it is.
    pub fn samples(&self) -> u64 {
        self.samples.iter().map(|(_, samples)| samples).sum()
    }
}

/// What was in frames that went.
#[derive(Debug, Default)]
pub struct Losses {
    samples: BTreeMap<(Option<JobHandle>, Identifier), u64>,
    /// When the oldest and the newest of the samples were taken, in microseconds since the epoch.
    pub span_us: (i64, i64),
}

impl From<&Content> for Losses {
    fn from(content: &Content) -> Self {
        let mut losses = Self { samples: BTreeMap::new(), span_us: content.span_us };
        for (shape, samples) in &content.samples {
            let job = shape.job.as_ref().map(|job| job.handle);
            losses.add((job, shape.source.clone()), *samples);
        }
        losses
    }
}

impl Losses {
    fn add(&mut self, whose: (Option<JobHandle>, Identifier), samples: u64) {
        let others = || Identifier::try_from(OTHERS).map(|others| (None, others));
        let is_full = self.samples.len() >= SOURCES && !self.samples.contains_key(&whose);
        let whose = if is_full { others().unwrap_or(whose) } else { whose };
        *self.samples.entry(whose).or_default() += samples;
    }

    /// Takes in `other`, unless they are too many sources for one note; it is given back then.
    ///
    /// # Errors
    /// The other, when there is no room for it.
    pub fn join(&mut self, other: Self) -> Result<(), Self> {
        let new = other.samples.keys().filter(|whose| !self.samples.contains_key(whose)).count();
        if self.samples.len() + new > SOURCES {
            return Err(other);
        }
        // What holds no samples has no span.
        self.span_us = match (self.samples.is_empty(), other.samples.is_empty()) {
            (_, true) => self.span_us,
            (true, false) => other.span_us,
            (false, false) => (self.span_us.0.min(other.span_us.0), self.span_us.1.max(other.span_us.1)),
        };
        other.samples.into_iter().for_each(|(whose, samples)| self.add(whose, samples));
        Ok(())
    }

    /// As the collector is told.
    pub fn to_lost(&self) -> Vec<Lost> {
        let lost = |((job, source), samples): (&(Option<JobHandle>, Identifier), &u64)| Lost {
            job: *job,
            source: source.clone(),
            samples: *samples,
        };
        self.samples.iter().map(lost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(sources: std::ops::Range<usize>, at_us: i64) -> Losses {
        let mut losses = Losses { span_us: (at_us, at_us), ..Losses::default() };
        for source in sources {
            losses.add((None, format!("s{source}").as_str().try_into().unwrap()), 1);
        }
        losses
    }

    #[test]
    fn what_is_lost_is_joined_by_source_and_bounded() {
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
