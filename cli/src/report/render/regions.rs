//! Regions of instrumented programs. Pure.

use polymeter_analysis::model::Report;

use super::detail::Detail;
use super::paragraph;
use crate::report::summary::{REGION_HEAD, region_remarks, region_row};

/// Those with the most time of their own first.
pub(super) fn text(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    if report.regions.is_empty() {
        return paragraph::remark("no program with regions ran; link it with -lpolymeter_regions", limit);
    }
    let mut rows = vec![REGION_HEAD.map(str::to_owned).to_vec()];
    rows.extend(report.regions.iter().map(|region| region_row(region).to_vec()));
    let mut text = paragraph::shortened_table(rows, detail.lines_max(), limit);
    for remark in region_remarks(report) {
        text.push_str(&paragraph::remark(&remark, limit));
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use polymeter_analysis::model::{RegionReport, RegionSpread};

    use super::*;

    pub(in crate::report::render) fn regions() -> Vec<RegionReport> {
        let spread =
            RegionSpread { count: 2, least_s: 1.0, mean_s: 4.0, most_s: 7.0, most: "rank 1".to_owned() };
        let solve = RegionReport {
            region: "solve\u{202e}".to_owned(),
            entries: 1000,
            time_s: 12.0,
            self_s: 8.0,
            run_percent: Some(37.5),
            processes: 2,
            threads: 8,
            thread_imbalance: Some(1.25),
            ranks: Some(spread),
        };
        vec![solve, RegionReport { region: "io".to_owned(), threads: 1, ..RegionReport::default() }]
    }

    #[test]
    fn regions_have_a_table() {
        let report = Report { regions: regions(), ..Report::default() };
        let shown = text(&report, Detail::Summary, Some(80));
        assert!(shown.lines().all(|line| crate::output::layout::width(line) <= 80), "{shown}");
        crate::snapshot::check("report-regions", &text(&report, Detail::Summary, None));
        assert!(text(&Report::default(), Detail::Summary, None).contains("-lpolymeter_regions"));
    }
}
