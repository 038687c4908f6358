//! The table of the costs, as `polymeter metrics --markdown` includes it.

use std::path::Path;

use polymeter_agent::sources::{Opened, Source};
use polymeter_benches::table::markdown;

use super::cases::{Case, Place};
use super::measure::Cost;

pub(crate) const PATH: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/client/src/commands/metrics/read_cost.md");

#[derive(Debug)]
pub(crate) struct Row(Vec<String>);

impl Row {
    /// Describes the cost of a source, and of the bare read of the file at `path`.
    pub(crate) fn new(case: &Case, opened: &Opened, cost: &Cost, path: &Path) -> Self {
        let place = if case.place == Place::Here { "real" } else { "laid out" };
        let is_slow = matches!(opened.source, Source::Threaded(_));
        let bare = if path == Path::new("/proc/loadavg") { "`/proc/loadavg`" } else { "the same file" };
        Self(vec![
            case.kind.to_owned(),
            format!("`{}`", opened.name),
            if is_slow { "slow" } else { "fast" }.to_owned(),
            place.to_owned(),
            cost.values.to_string(),
            format!("{:.0}", cost.ns),
            format!("{bare}, {:.0}", cost.bare_ns),
            format!("{:.1}", cost.ratio),
        ])
    }

    pub(crate) fn missing(kind: &str, reason: String) -> Self {
        let mut cells = vec![kind.to_owned(), format!("not measured: {}", reason.replace('|', "/"))];
        cells.resize(8, String::new());
        Self(cells)
    }
}

pub(crate) fn table(rows: &[Row]) -> String {
    let head = ["kind", "source", "lane", "source is", "values", "ns per read", "bare read of, ns", "ratio"];
    let rows: Vec<_> = rows.iter().map(|row| row.0.clone()).collect();
    markdown(&head, &rows)
}

#[cfg(test)]
mod tests {
    use polymeter_agent::sources::KINDS;
    use polymeter_proto::catalogue::DEVICE_KIND;

    #[test]
    fn the_page_of_the_metrics_has_the_cost_of_every_kind() {
        let page = include_str!("../../../../docs/reference/metrics.md");
        let costs = page.split_once("## Cost of a read").map_or("", |(_, costs)| costs);
        // A read of a device outside the node takes as long as that takes to answer.
        for kind in KINDS.iter().filter(|kind| kind.name() != DEVICE_KIND) {
            assert!(
                costs.contains(&format!("\n| {} | ", kind.name())),
                "run polymeter-bench read-cost --write: {kind:?}"
            );
        }
    }
}
