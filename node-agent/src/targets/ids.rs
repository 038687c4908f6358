//! The compact ids of a session: each is assigned once, and never gets another meaning.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use polymeter_proto::batch::{Column, Job, Shape};
use polymeter_proto::catalogue::is_stacks_source;
use polymeter_proto::limits;
use polymeter_proto::name::{MetricName, Selector};
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::series::{
    Identifier, JobDescriptor, JobHandle, Labels, MetricDescriptor, MetricId, SeriesId, ShapeId,
};

use crate::lanes::Group;
use crate::sources::Slot;

/// Series of one source whose windows have histograms because users want them: each takes 4 KiB. Further ones
/// have none.
const REQUESTED_HISTOGRAMS: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Ids {
    metrics: BTreeMap<MetricName, MetricId>,
    next_series: u32,
    next_shape: u32,
    /// Metrics whose windows have a histogram whether it was requested or not.
    histograms: Vec<Selector>,
}

/// Each handle is assigned once in a session.
#[derive(Debug, Default)]
pub(crate) struct JobHandles {
    next: u32,
}

impl JobHandles {
    pub(crate) fn assign(&mut self, descriptor: JobDescriptor) -> Arc<Job> {
        let handle = JobHandle(self.next);
        self.next += 1;
        Arc::new(Job { handle, descriptor })
    }
}

/// Series of one job, or of the node: a source that is opened anew gets the same ids.
pub(crate) type SeriesIds = BTreeMap<(MetricId, Labels), SeriesId>;

impl Ids {
    pub(crate) fn with_histograms(histograms: &[Selector]) -> Self {
        Self { histograms: histograms.to_vec(), ..Self::default() }
    }

    /// Divides the slots of `source` into groups by their sampling, which `sampling` returns for each metric.
    /// Slots without any are in no group.
    pub(crate) fn groups(
        &mut self,
        job: Option<&Arc<Job>>,
        source: &Identifier,
        series: &mut SeriesIds,
        slots: &[Slot],
        sampling: impl Fn(&str) -> Option<Sampling>,
    ) -> Vec<Group> {
        let mut by_sampling: BTreeMap<(Period, Sampling), (Vec<Column>, Vec<u32>)> = BTreeMap::new();
        let mut numbered = 0..;
        for run in slots.chunk_by(|one, next| one.definition == next.definition) {
            let numbered = numbered.by_ref().take(run.len());
            let Some(definition) = run.first().map(|slot| &slot.definition) else { continue };
            let known = sampling(&definition.name()).zip(definition.descriptor());
            let Some((sampling, descriptor)) = known else {
                numbered.for_each(drop);
                continue;
            };
            let origins = definition.metric.origins;
            let is_of_stacks = origins.iter().any(|origin| is_stacks_source(origin.kind()));
            let period = sampling.period;
            let read_period = if is_of_stacks { period.max(Period::SECOND) } else { period };
            let (columns, numbers) = by_sampling.entry((read_period, sampling)).or_default();
            let metric = self.metric(descriptor);
            columns.extend(run.iter().map(|slot| self.column(series, &metric, &slot.labels)));
            numbers.extend(numbered);
        }
        let (mut groups, requested) = (Vec::new(), Cell::new(0));
        for ((period, sampling), (columns, numbers)) in by_sampling {
            // A node with hundreds of CPUs has more series of one source than fit into a block.
            let mut columns = columns.into_iter();
            for numbers in numbers.chunks(limits::BLOCK_COLUMNS) {
                let columns = columns.by_ref().take(limits::BLOCK_COLUMNS).collect();
                let id = ShapeId(self.next_shape);
                self.next_shape += 1;
                let (job, source) = (job.cloned(), source.clone());
                let shape = Shape { id, job, source, period, window: sampling.window, columns };
                let group = Group::new(Arc::new(shape), numbers.to_vec()).sampled_at(sampling.period);
                let has_histogram = |name: &str| {
                    let is_requested = sampling.has_histogram && requested.get() < REQUESTED_HISTOGRAMS;
                    requested.set(requested.get() + usize::from(is_requested));
                    is_requested || self.histograms.iter().any(|of| of.matches(name))
                };
                groups.push(group.with_histograms(has_histogram));
            }
        }
        groups
    }

    /// Assigns a shape to series without deadlines, whose values a user supplies together.
    pub(crate) fn shape_of(
        &mut self,
        job: Option<&Arc<Job>>,
        source: Identifier,
        series: &mut SeriesIds,
        descriptors: impl IntoIterator<Item = MetricDescriptor>,
        labels: &Labels,
    ) -> Shape {
        let id = ShapeId(self.next_shape);
        self.next_shape += 1;
        let descriptors = descriptors.into_iter();
        let columns = descriptors.map(|descriptor| {
            let metric = self.metric(descriptor);
            self.column(series, &metric, labels)
        });
        let columns = columns.collect();
        // Its rows have no deadlines, so the period is meaningless.
        Shape { id, job: job.cloned(), source, period: Period::SECOND, window: None, columns }
    }

    /// Assigns an id to a metric. All its columns share one name.
    fn metric(&mut self, mut descriptor: MetricDescriptor) -> (MetricId, MetricDescriptor) {
        let next_metric = MetricId(u32::try_from(self.metrics.len()).unwrap_or(u32::MAX));
        let metric = match self.metrics.entry(descriptor.name.clone()) {
            Entry::Occupied(known) => {
                descriptor.name = known.key().clone();
                *known.get()
            }
            Entry::Vacant(place) => *place.insert(next_metric),
        };
        (metric, descriptor)
    }

    fn column(
        &mut self,
        series: &mut SeriesIds,
        metric: &(MetricId, MetricDescriptor),
        labels: &Labels,
    ) -> Column {
        let next = &mut self.next_series;
        // A role that has changed does not begin another series.
        let series = *series.entry((metric.0, labels.clone().with_role(None))).or_insert_with(|| {
            *next += 1;
            SeriesId(*next - 1)
        });
        Column { series, metric: metric.clone(), labels: labels.clone() }
    }
}
