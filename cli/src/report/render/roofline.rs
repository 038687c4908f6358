//! Roofline of a job. Pure.

use polymeter_analysis::model::Report;

use super::detail::Detail;
use super::paragraph;
use crate::report::summary::{ROOFLINE_HEAD, roofline_remarks, roofline_row};

/// Whole job, and its phases.
pub(super) fn text(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    let Some(roofline) = &report.roofline else {
        return paragraph::remark("no floating-point operations were sampled (perf.flops)", limit);
    };
    let mut text = String::new();
    if !roofline.parts.is_empty() {
        let mut rows = vec![ROOFLINE_HEAD.map(str::to_owned).to_vec()];
        rows.extend(roofline.parts.iter().map(|part| roofline_row(part).to_vec()));
        text = paragraph::shortened_table(rows, detail.lines_max(), limit);
    }
    for remark in roofline_remarks(report) {
        text.push_str(&paragraph::remark(&remark, limit));
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use polymeter_analysis::model::{LeftOutNodes, Roof, Roofline, RooflinePart};

    use super::*;

    pub(in crate::report::render) fn roofline() -> Roofline {
        let whole = RooflinePart {
            phase: None,
            nodes: 2,
            time_s: 7200.0,
            flop_per_s: 3.5e11,
            bytes_per_s: 1e11,
            flop_per_byte: Some(3.5),
            bound: Roof::Memory,
            roof_percent: 26.3,
        };
        let solve = RooflinePart {
            phase: Some("solve\u{202e}".to_owned()),
            flop_per_byte: None,
            bytes_per_s: 0.0,
            bound: Roof::Arithmetic,
            ..whole.clone()
        };
        Roofline {
            memory_bytes_per_s: Some(3.8e11),
            double_flop_per_s: Some(2.4e12),
            single_flop_per_s: Some(4.8e12),
            parts: vec![whole, solve],
            left_out: vec![LeftOutNodes {
                reason: "perf.flops was not sampled".to_owned(),
                nodes: 3,
                node: "n7".to_owned(),
            }],
        }
    }

    #[test]
    fn a_roofline_has_a_table() {
        let report = Report { roofline: Some(roofline()), ..Report::default() };
        let shown = text(&report, Detail::Summary, Some(80));
        assert!(shown.lines().all(|line| crate::output::layout::width(line) <= 80), "{shown}");
        crate::snapshot::check("report-roofline", &text(&report, Detail::Summary, None));
        assert!(text(&Report::default(), Detail::Summary, None).contains("perf.flops"));
    }
}
