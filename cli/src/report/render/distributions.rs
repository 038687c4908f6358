//! Distributions of the samples in windows. Pure.

use polymeter_analysis::model::Report;

use super::detail::Detail;
use super::paragraph;
use crate::report::summary::{DISTRIBUTION_HEAD, distribution_remark, distribution_row};

/// Empty unless windows have histograms.
pub(super) fn text(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    if report.distributions.is_empty() {
        return String::new();
    }
    let mut rows = vec![DISTRIBUTION_HEAD.map(str::to_owned).to_vec()];
    rows.extend(report.distributions.iter().map(|of| distribution_row(of).to_vec()));
    let table = paragraph::shortened_table(rows, detail.lines_max(), limit);
    table + &paragraph::remark(&distribution_remark(), limit)
}

#[cfg(test)]
pub(super) mod tests {
    use polymeter_analysis::model::DistributionReport;

    use super::*;

    pub(in crate::report::render) fn distributions() -> Vec<DistributionReport> {
        let of = |metric: &str, unit: &str, factor: f64| DistributionReport {
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            samples: 60_000,
            p50: 0.5 * factor,
            p90: 0.9 * factor,
            p99: factor,
            max: 3.5 * factor,
        };
        vec![of("cpu.usage", "cores", 1.0), of("memory.current", "bytes", 1_048_576.0)]
    }

    #[test]
    fn distributions_have_a_table() {
        let report = Report { distributions: distributions(), ..Report::default() };
        let shown = text(&report, Detail::Summary, Some(80));
        assert!(shown.lines().all(|line| crate::output::layout::width(line) <= 80), "{shown}");
        assert!(shown.contains("3.50 MiB") && shown.contains("at most 3.1 %"), "{shown}");
        assert_eq!(text(&Report::default(), Detail::Summary, None), "");
    }
}
