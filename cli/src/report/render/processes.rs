//! Table of the busiest processes, which have series of their own with the labels `comm`, `pid` and
//! `started`. Pure.

use std::collections::BTreeMap;

use polymeter_analysis::model::{Report, SeriesReport};
use polymeter_proto::units;

use super::detail::Detail;
use super::paragraph;
use crate::output::table::head;
use crate::report::summary;

const METRICS: &str = "busiest.";

#[derive(Debug, Default)]
struct Process<'a> {
    by_metric: BTreeMap<&'a str, &'a SeriesReport>,
}

/// Those with the most CPU time first.
pub(super) fn text(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    let mut processes: BTreeMap<(&str, &str), Process<'_>> = BTreeMap::new();
    for series in &report.series {
        if let Some(quantity) = series.metric.strip_prefix(METRICS) {
            let process = processes.entry((&series.node, &series.labels)).or_default();
            process.by_metric.insert(quantity, series);
        }
    }
    if processes.is_empty() {
        return paragraph::remark("no process was sampled; sample `busiest.*`", limit);
    }
    let mut processes: Vec<_> = processes.into_iter().collect();
    let cpu = |process: &Process<'_>| process.growth("cpu.usage").unwrap_or_default();
    processes.sort_by(|(_, one), (_, other)| cpu(other).total_cmp(&cpu(one)));
    let has_nodes = report.nodes.len() > 1;
    let mut columns =
        head(["process", "pid", "node", "CPU time", "cores used", "threads", "memory", "read", "written"]);
    columns.retain(|name| has_nodes || name != "node");
    let mut rows = vec![columns];
    for ((node, labels), process) in &processes {
        let mut row = vec![label(labels, "comm").to_owned(), label(labels, "pid").to_owned()];
        row.extend(has_nodes.then(|| (*node).to_owned()));
        row.extend([
            summary::figure(process.growth("cpu.usage"), |ns| units::elapsed(ns / 1e9)),
            summary::cores(process.mean("cpu.usage")),
            summary::figure(process.max("threads"), |threads| format!("{threads:.0}")),
            summary::bytes(process.max("memory.resident")),
            summary::bytes(process.growth("io.read.bytes")),
            summary::bytes(process.growth("io.write.bytes")),
        ]);
        rows.push(row);
    }
    paragraph::shortened_table(rows, detail.lines_max(), limit)
}

pub(super) fn are_sampled(report: &Report) -> bool {
    report.series.iter().any(|series| series.metric.starts_with(METRICS))
}

impl Process<'_> {
    fn growth(&self, quantity: &str) -> Option<f64> {
        self.by_metric.get(quantity)?.growth
    }

    fn mean(&self, quantity: &str) -> Option<f64> {
        self.by_metric.get(quantity)?.mean
    }

    fn max(&self, quantity: &str) -> Option<f64> {
        self.by_metric.get(quantity)?.max
    }
}

/// A program's name may contain anything, and comes first: the others are behind the last `,pid=`.
fn label<'a>(labels: &'a str, key: &str) -> &'a str {
    let Some((name, others)) = labels.rsplit_once(",pid=") else { return "-" };
    let (pid, started) = others.split_once(",started=").unwrap_or((others, "-"));
    match key {
        "comm" => name.strip_prefix("comm=").unwrap_or("-"),
        "pid" => pid,
        _ => started,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(metric: &str, pid: u32, value: f64) -> SeriesReport {
        SeriesReport {
            metric: metric.to_owned(),
            labels: format!("comm=a.out,pid={pid},started=7"),
            node: "n1".to_owned(),
            growth: metric.ends_with("usage").then_some(value * 1e9),
            mean: Some(value / 100.0),
            max: Some(value),
            ..SeriesReport::default()
        }
    }

    #[test]
    fn processes_are_listed_by_their_cpu_time() {
        let report = Report {
            series: vec![
                series("busiest.cpu.usage", 10, 30.0),
                series("busiest.threads", 10, 4.0),
                series("busiest.cpu.usage", 11, 50.0),
                series("cpu.usage", 12, 90.0),
            ],
            ..Report::default()
        };
        assert!(are_sampled(&report));
        let text = text(&report, Detail::All, None);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert_eq!(rows[1], ["a.out", "11", "50", "s", "0.50", "-", "-", "-", "-"]);
        assert_eq!(rows[2], ["a.out", "10", "30", "s", "0.30", "4", "-", "-", "-"]);
        assert!(super::text(&Report::default(), Detail::All, None).contains("busiest.*"));
    }
}
