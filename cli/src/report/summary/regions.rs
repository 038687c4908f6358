//! Texts about regions of instrumented programs.

use polymeter_analysis::model::{RegionReport, Report};
use polymeter_proto::units;

use super::figure;

pub(crate) const REGION_HEAD: [&str; 8] =
    ["self", "time", "of run", "entries", "threads", "self by rank", "most", "region"];

/// First column of names; those before it are numbers.
pub(crate) const REGION_NAMES_FROM: usize = 6;

pub(crate) fn region_row(region: &RegionReport) -> [String; 8] {
    let threads = match region.thread_imbalance {
        Some(imbalance) => format!("{} ({imbalance:.2})", region.threads),
        None => region.threads.to_string(),
    };
    let spread = |text: fn(&polymeter_analysis::model::RegionSpread) -> String| {
        region.ranks.as_ref().map_or_else(|| "-".to_owned(), text)
    };
    [
        units::elapsed(region.self_s),
        units::elapsed(region.time_s),
        figure(region.run_percent, |percent| format!("{percent:.1} %")),
        region.entries.to_string(),
        threads,
        spread(|ranks| {
            let [least, mean, most] = [ranks.least_s, ranks.mean_s, ranks.most_s].map(units::elapsed);
            format!("{least} / {mean} / {most}")
        }),
        spread(|ranks| ranks.most.clone()),
        region.region.clone(),
    ]
}

/// Explains the columns which occur.
pub(crate) fn region_remarks(report: &Report) -> Vec<String> {
    let mut remarks = vec![
        "times are summed over threads; self: without regions inside; of run: time / (time of the job x threads)"
            .to_owned(),
    ];
    if report.regions.iter().any(|region| region.ranks.is_some()) {
        remarks.push("self by rank: the smallest, mean and largest, and the rank with the most".to_owned());
    }
    if report.regions.iter().any(|region| region.thread_imbalance.is_some()) {
        remarks.push("threads: in parentheses the largest time of a thread / mean of its process".to_owned());
    }
    remarks
}
