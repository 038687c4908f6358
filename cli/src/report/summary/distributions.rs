//! Texts about the distributions of samples in windows.

use polymeter_analysis::model::DistributionReport;
use polymeter_proto::{histogram, units};

pub(crate) const DISTRIBUTION_HEAD: [&str; 6] = ["p50", "p90", "p99", "max", "samples", "metric"];

pub(crate) fn distribution_row(of: &DistributionReport) -> [String; 6] {
    let [p50, p90, p99, max] = [of.p50, of.p90, of.p99, of.max].map(|value| units::value(&of.unit, value));
    [p50, p90, p99, max, of.samples.to_string(), of.metric.clone()]
}

pub(crate) fn distribution_remark() -> String {
    let error = histogram::ERROR * 100.0;
    format!(
        "of the samples in windows, on all nodes; each value is at most {error:.1} % too small or too large"
    )
}
