//! What users put into the data themselves: marks, and values of metrics of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::batch::Shape;
use polymeter_proto::ledger::{Event, Mark};
use polymeter_proto::series::{Identifier, Kind, Labels, MetricDescriptor, Number, Unit};

use super::access::Access;
use super::{Manager, TargetKey};
use crate::clock;
use crate::lanes::{ActiveSource, Command, EventRecord, SourceId, SourceKey, UserValue};
use crate::request::{AccessError, AnnotateError, MarkSpec, PushSpec};
use crate::sources::Source;
use polymeter_service::token_bucket::TokenBucket;

use super::tracked_target::{OpenSource, TrackedTarget};

/// What users' values are called as a source.
pub(super) const PUSHED: &str = "pushed";

/// Series of one job that its user makes up.
const SERIES: usize = 256;

/// Marks of one job per second, each of which is a row of text, and how many may come at once.
const MARKS: (u32, u32) = (100, 1_000);

/// Values of one job's own metrics per second, and how many may come at once.
const VALUES: (u32, u32) = (1_000, 5_000);

/// What a user has put into the data of one job.
#[derive(Debug)]
pub(super) struct Annotations {
    marks: TokenBucket,
    values: TokenBucket,
    source: Option<SourceId>,
    series: BTreeMap<(String, Labels), Arc<Shape>>,
}

impl Default for Annotations {
    fn default() -> Self {
        let full = |(per_second, at_once)| TokenBucket::new(f64::from(per_second), f64::from(at_once));
        Self { marks: full(MARKS), values: full(VALUES), source: None, series: BTreeMap::new() }
    }
}

impl Manager {
    /// Puts a mark into the data, behind the samples so far.
    pub(super) async fn mark(&mut self, spec: MarkSpec) -> Result<(), AnnotateError> {
        self.access(spec.principal, &spec.job_id, Access::Change)?;
        let followed = self.followed.get_mut(&spec.job_id).ok_or(AccessError::Unknown)?;
        if !followed.annotations.marks.try_take(1.0, clock::monotonic_ns()) {
            return Err(AnnotateError::TooFast { per_second: MARKS.0 });
        }
        let job = followed.job.clone();
        let mark = Mark {
            at_us: clock::realtime_us(),
            job: job.as_ref().map(|job| job.handle),
            name: spec.name,
            kind: spec.kind,
            by: spec.principal.name(),
        };
        self.command(Command::RecordEvent(Box::new(EventRecord { job, event: Event::Mark(mark) }))).await;
        Ok(())
    }

    /// Puts a value into the data, dated now.
    pub(super) async fn push(&mut self, spec: PushSpec) -> Result<(), AnnotateError> {
        let time_us = clock::realtime_us();
        self.access(spec.principal, &spec.job_id, Access::Change)?;
        let followed = self.followed.get_mut(&spec.job_id).ok_or(AccessError::Unknown)?;
        if !followed.annotations.values.try_take(1.0, clock::monotonic_ns()) {
            return Err(AnnotateError::TooFast { per_second: VALUES.0 });
        }
        let identity = (spec.metric.as_str().to_owned(), spec.labels.clone());
        let known = followed.annotations.series.get(&identity).cloned();
        let shape = match known {
            Some(shape) => shape,
            None if followed.annotations.series.len() >= SERIES => {
                return Err(AnnotateError::TooManySeries(SERIES));
            }
            None => {
                let descriptor = MetricDescriptor {
                    name: spec.metric,
                    unit: Unit::Labelled,
                    kind: Kind::Gauge,
                    number: Number::Float,
                };
                let job = followed.job.as_ref();
                let Ok(source) = Identifier::try_from(PUSHED) else {
                    return Err(AccessError::Unknown.into());
                };
                let shape = self.ids.shape_of(job, source, &mut followed.series, descriptor, &spec.labels);
                let shape = Arc::new(shape);
                followed.annotations.series.insert(identity, Arc::clone(&shape));
                shape
            }
        };
        let source = self.pushed_source(&spec.job_id).await.ok_or(AccessError::Unknown)?;
        let pushed = UserValue { source, shape, time_us, bits: spec.value.to_bits() };
        self.command(Command::RecordUserValue(Box::new(pushed))).await;
        Ok(())
    }

    /// The source that counts the values which a job's user gives; made when the first comes.
    async fn pushed_source(&mut self, key: &TargetKey) -> Option<SourceId> {
        let followed = self.followed.get(key)?;
        if let Some(id) = followed.annotations.source {
            return Some(id);
        }
        let source_key = SourceKey { job: followed.job.clone(), name: Identifier::try_from(PUSHED).ok()? };
        let id = self.new_source_id();
        let active = ActiveSource::new(Arc::new(source_key), Source::user_supplied(), Vec::new());
        self.owners.insert(id, key.clone());
        self.command(Command::Add(id, Box::new(active))).await;
        let followed: &mut TrackedTarget = self.followed.get_mut(key)?;
        followed.annotations.source = Some(id);
        let open = OpenSource { id, slots: Vec::new(), part: None, is_lasting: true, below: None };
        followed.sources.insert(PUSHED.to_owned(), open);
        self.count();
        Some(id)
    }
}
