//! Places of the charts, and the table of their values for readers without them. Pure.

use polymeter_analysis::charts::{Chart, Charts, Spread};
use polymeter_proto::units;

use super::element::{Cell, Table};
use crate::report::summary::figure;

/// Writes the section that the script fills with charts.
pub(super) fn section(page: &mut String, charts: &Charts) {
    page.push_str("<section aria-labelledby=\"charts\">\n<h2 id=\"charts\">Over time</h2>\n");
    if charts.charts.is_empty() {
        page.push_str("<p>No samples.</p>\n</section>\n");
        return;
    }
    page.push_str("<noscript><p class=\"remark\">Charts need JavaScript. The tables contain their figures.</p></noscript>\n");
    page.push_str("<div id=\"figures\"></div>\n");
    if charts.left_out > 0 {
        let left_out = charts.left_out;
        page.push_str(&format!(
            "<p class=\"remark\">{left_out} metrics are not drawn; polymeter export writes the samples of all.</p>\n"
        ));
    }
    if charts.bands_left_out > 0 {
        let left_out = charts.bands_left_out;
        page.push_str(&format!("<p class=\"remark\">The {left_out} shortest phases are not drawn.</p>\n"));
    }
    page.push_str("</section>\n");
}

/// Extent and distribution of the quantities.
pub(super) fn table(charts: &Charts) -> Table<'_> {
    let over = if charts.is_of_one_node { "over time" } else { "over nodes and time" };
    Table {
        caption: "Quantities",
        head: vec![
            ("quantity", false),
            ("min", true),
            ("mean", true),
            ("median", true),
            ("95 %", true),
            ("max", true),
        ],
        rows: charts.charts.iter().map(row).collect(),
        remarks: vec![format!("The figures of a quantity are those of a node, {over}, as in the charts.")],
    }
}

fn row(chart: &Chart) -> Vec<Cell<'_>> {
    let (median, most) = match &chart.over_time {
        Some(Spread { quantiles: [_, _, _, median, _, most, _], .. }) => (Some(*median), Some(*most)),
        None => (None, None),
    };
    let mut cells = vec![Cell::Name(chart.title.as_str())];
    for value in [Some(chart.extent.min), Some(chart.extent.mean), median, most, Some(chart.extent.max)] {
        cells.push(Cell::Number(figure(value, |value| value_text(&chart.unit, value))));
    }
    cells
}

fn value_text(unit: &str, value: f64) -> String {
    match unit {
        "s/s" => units::value("percent", value * 100.0),
        unit => units::value(unit, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_unit() {
        for (unit, value, expected) in [
            ("cores", 1.5, "1.50 cores"),
            ("bytes/s", 2048.0, "2 KiB/s"),
            ("s/s", 0.125, "12.5 %"),
            ("bytes", 1024.0, "1 KiB"),
            ("count", 7.0, "7"),
        ] {
            assert_eq!(value_text(unit, value), expected);
        }
    }
}
