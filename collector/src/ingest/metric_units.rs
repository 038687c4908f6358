//! One unit and one kind for each name of a metric. A store has one row for a metric, whichever node sends
//! it: the kernels of two nodes may state different units of a perf event, and two versions of the agent may
//! disagree. What the store has counts, and samples in another unit are lost.

use std::collections::HashMap;

use polymeter_proto::name::MetricName;
use polymeter_proto::series::{Kind, MetricDescriptor, Unit};
use polymeter_store::accepted::{Accepted, LossReason, SampleBlock, SeriesRecord, WindowColumns};

use super::times::loss;

/// Metrics that are remembered. With more of them all are read again from the store.
const KNOWN_MAX: usize = 65_536;

/// Unit and kind, as the store writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measure {
    pub(crate) unit: String,
    pub(crate) kind: String,
}

impl Measure {
    fn is_of(&self, unit: Unit, kind: Kind) -> bool {
        self.unit == unit.as_str() && self.kind == kind.as_str()
    }
}

#[derive(Debug, Default)]
pub(crate) struct MetricUnits {
    known: HashMap<MetricName, Measure>,
}

/// A metric whose samples were refused, and the unit and kind that it has in the store.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RefusedMetric {
    pub(crate) metric: MetricDescriptor,
    pub(crate) stored: Measure,
}

impl MetricUnits {
    /// Metrics of new series in `accepted` that were not looked up in the store.
    pub(crate) fn unknown(&self, accepted: &Accepted) -> Vec<MetricDescriptor> {
        let mut unknown: Vec<MetricDescriptor> = Vec::new();
        for series in accepted.series().filter(|series| series.id.get().is_none()) {
            let name = &series.metric.name;
            if !self.known.contains_key(name) && unknown.iter().all(|metric| metric.name != *name) {
                unknown.push((*series.metric).clone());
            }
        }
        unknown
    }

    /// Takes what the store has of metrics.
    pub(crate) fn learn(&mut self, stored: impl IntoIterator<Item = (MetricName, Measure)>) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.extend(stored);
    }

    /// Removes the samples in another unit or of another kind than the store's from `accepted`, and counts
    /// them as lost. Returns their metrics.
    pub(crate) fn enforce(&self, accepted: &mut Accepted) -> Vec<RefusedMetric> {
        let mut refused = Vec::new();
        // The series of a store are known to fit.
        if accepted.series().all(|series| self.fits(series)) {
            return refused;
        }
        let mut losses = Vec::new();
        let blocks = accepted.samples.iter_mut().chain(&mut accepted.kept).chain(&mut accepted.quarantined);
        for samples in blocks {
            let (kept, others) = self.divided(samples);
            for series in &others.series {
                refused.extend(self.refusal(series).filter(|refusal| !refused.contains(refusal)));
            }
            losses.push(loss(&others, LossReason::Contradiction));
            *samples = kept;
        }
        accepted.samples.retain(|samples| !samples.series.is_empty());
        accepted.kept.retain(|samples| !samples.series.is_empty());
        accepted.quarantined.retain(|samples| !samples.series.is_empty());
        losses.into_iter().for_each(|loss| accepted.add_loss(loss));
        refused
    }

    fn fits(&self, series: &SeriesRecord) -> bool {
        let stored = self.known.get(&series.metric.name).filter(|_| series.id.get().is_none());
        stored.is_none_or(|stored| stored.is_of(series.metric.unit, series.metric.kind))
    }

    fn refusal(&self, series: &SeriesRecord) -> Option<RefusedMetric> {
        let stored = self.known.get(&series.metric.name)?.clone();
        Some(RefusedMetric { metric: (*series.metric).clone(), stored })
    }

    /// Columns that fit, and the others.
    fn divided(&self, samples: &SampleBlock) -> (SampleBlock, SampleBlock) {
        let fits: Vec<bool> = samples.series.iter().map(|series| self.fits(series)).collect();
        let others: Vec<bool> = fits.iter().map(|fits| !fits).collect();
        (columns_of(samples, &fits), columns_of(samples, &others))
    }
}

/// The columns of a block that are wanted.
fn columns_of(samples: &SampleBlock, wanted: &[bool]) -> SampleBlock {
    let rows = samples.times_us.len();
    let windows = samples.windows.as_ref().map(|windows| WindowColumns {
        counts: cells_of(&windows.counts, rows, wanted),
        min: cells_of(&windows.min, rows, wanted),
        max: cells_of(&windows.max, rows, wanted),
        sum: cells_of(&windows.sum, rows, wanted),
    });
    let series = samples.series.iter().zip(wanted).filter(|(_, wanted)| **wanted);
    SampleBlock {
        line: samples.line.clone(),
        series: series.map(|(series, _)| series.clone()).collect(),
        times_us: samples.times_us.clone(),
        values: cells_of(&samples.values, rows, wanted),
        windows,
    }
}

fn cells_of<T: Copy>(cells: &[T], rows: usize, wanted: &[bool]) -> Vec<T> {
    let columns = cells.chunks(rows.max(1)).zip(wanted).filter(|(_, wanted)| **wanted);
    columns.flat_map(|(column, _)| column).copied().collect()
}
