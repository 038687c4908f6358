//! GPUs of a job, as its series show them. Pure.

use std::collections::BTreeSet;

use polymeter_proto::units::seconds_between;

use crate::model::SeriesReport;
use crate::resources::of_metric;

/// GPU or MIG device: its node, and its labels `gpu` and `mig`.
type Gpu<'a> = (&'a str, &'a str, Option<&'a str>);

fn gpu(series: &SeriesReport) -> Option<Gpu<'_>> {
    Some((&series.node, series.label("gpu=")?, series.label("mig=")))
}

/// GPUs of which a series has a value other than 0; none without any.
pub(super) fn count(series: &[&SeriesReport]) -> Option<u64> {
    let of_gpus = series.iter().filter(|series| series.metric.starts_with("gpu."));
    let with_values = of_gpus.filter(|series| series.max.is_some_and(|max| max > 0.0));
    let gpus: BTreeSet<Gpu<'_>> = with_values.filter_map(|series| gpu(series)).collect();
    (!gpus.is_empty()).then_some(gpus.len() as u64)
}

/// Time up to the last sample of a GPU in which its utilization was never above `percent`; none without
/// samples.
pub(super) fn idle_s(utilization: &SeriesReport, percent: f64) -> Option<f64> {
    let (first_ns, last_ns) = utilization.curve.ends_ns()?;
    let intervals = utilization.curve.intervals();
    let since_ns = match intervals.iter().rposition(|interval| interval.max > percent) {
        Some(busy) => intervals.get(busy + 1).map_or(last_ns, |next| next.time_ns),
        None => first_ns,
    };
    Some(seconds_between(since_ns, last_ns).max(0.0))
}

/// Utilization of each GPU, in percent. The driver knows none of MIG devices, but the activity of their
/// multiprocessors.
pub(super) fn utilization<'a>(series: &'a [&'a SeriesReport]) -> Vec<&'a SeriesReport> {
    let mut found: Vec<&SeriesReport> = of_metric(series, "gpu.utilization").collect();
    let known: BTreeSet<Option<Gpu<'_>>> = found.iter().map(|series| gpu(series)).collect();
    found.extend(of_metric(series, "gpu.gpm.sm.active").filter(|series| !known.contains(&gpu(series))));
    found
}
