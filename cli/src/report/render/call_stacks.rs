//! Where the time went: the functions of a job by its call stacks. Pure.

use polymeter_analysis::model::{Report, StackPart, StackReport};
use polymeter_proto::units;

use super::detail::Detail;
use super::paragraph;
use crate::report::summary::{FUNCTION_HEAD, function_row, part_functions, stack_activities, stack_sums};

/// Grouped by metric, phase, node and process.
pub(super) fn text(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    if report.call_stacks.is_empty() {
        return paragraph::remark("no call stacks were sampled; sample stacks.cpu", limit);
    }
    report.call_stacks.iter().map(|stacks| of_metric(stacks, detail, limit)).collect()
}

fn of_metric(stacks: &StackReport, detail: Detail, limit: Option<usize>) -> String {
    let mut text = paragraph::paragraph("where time went", &stack_sums(stacks), limit);
    if let Some(activities) = stack_activities(stacks) {
        text.push_str(&paragraph::paragraph("activities", &activities, limit));
    }
    for remark in stacks.remarks() {
        text.push_str(&paragraph::remark(&remark, limit));
    }
    let mut rows = vec![FUNCTION_HEAD.map(str::to_owned).to_vec()];
    rows.extend(stacks.functions.iter().map(|function| function_row(function).to_vec()));
    text.push_str(&paragraph::shortened_table(rows, detail.lines_max(), limit));
    let (phases, nodes, processes) = (&stacks.phases, &stacks.nodes, &stacks.by_process);
    for (name, parts) in [("phase", phases), ("node", nodes), ("process", processes)] {
        if parts.len() > 1 || name == "phase" && !parts.is_empty() {
            text.push('\n');
            text.push_str(&paragraph::shortened_table(rows_of(name, parts), detail.lines_max(), limit));
        }
    }
    text
}

fn rows_of(name: &str, parts: &[StackPart]) -> Vec<Vec<String>> {
    let mut rows = vec![[name, "time", "functions"].map(str::to_owned).to_vec()];
    rows.extend(
        parts.iter().map(|part| vec![part.name.clone(), units::elapsed(part.time_s), part_functions(part)]),
    );
    rows
}

#[cfg(test)]
pub(super) mod tests {
    use polymeter_analysis::model::{
        ActivityReport, FunctionImbalance, FunctionReport, FunctionShare, FunctionSpread,
    };

    use super::*;

    fn function(name: &str, self_s: f64, total_s: f64, is_spread: bool) -> FunctionReport {
        FunctionReport {
            function: name.to_owned(),
            module: "a.out".to_owned(),
            self_s,
            self_percent: 10.0 * self_s,
            total_s,
            total_percent: 10.0 * total_s,
            processes: is_spread.then(|| FunctionSpread {
                least_s: self_s / 4.0,
                most_s: self_s,
                most_node: "n1".to_owned(),
                most_process: Some(42),
            }),
        }
    }

    fn share(name: &str, self_percent: f64) -> FunctionShare {
        FunctionShare { function: name.to_owned(), module: "a.out".to_owned(), self_percent }
    }

    fn part(name: &str, functions: Vec<FunctionShare>) -> StackPart {
        StackPart { name: name.to_owned(), time_s: 5.0, functions }
    }

    pub(in crate::report::render) fn report() -> StackReport {
        StackReport {
            metric: "stacks.cpu".to_owned(),
            time_s: 10.0,
            samples: 1000,
            period_s: 0.01,
            processes: 2,
            without_symbol_percent: 2.5,
            lost: 3,
            unread: 2,
            not_stored: 40,
            unexplained: 1,
            throttled: 1,
            cut: 7,
            activities: vec![ActivityReport {
                activity: "locks".to_owned(),
                percent: 12.25,
                functions: vec![share("pthread_spin_lock", 12.25)],
            }],
            imbalance: Some(FunctionImbalance {
                function: "solve".to_owned(),
                ..FunctionImbalance::default()
            }),
            functions: vec![
                function("solve(std::vector<double>&)\u{202e}", 8.0, 9.0, true),
                function("main", 0.0, 10.0, false),
            ],
            phases: vec![part("solve", vec![share("solve", 90.0), share("dot", 5.0)])],
            nodes: vec![part("n1", vec![share("solve", 80.0)]), part("n2", vec![share("wait", 80.0)])],
            by_process: vec![
                part("42 on n1", vec![share("solve", 80.0)]),
                part("7 on n2", vec![share("wait", 80.0)]),
            ],
        }
    }

    #[test]
    fn functions_phases_and_nodes_have_tables() {
        let report = Report { call_stacks: vec![report()], ..Report::default() };
        let text = text(&report, Detail::Summary, Some(80));
        assert!(text.lines().all(|line| crate::output::layout::width(line) <= 80), "{text}");
        crate::snapshot::check("report-call-stacks", &text);
        let none = super::text(&Report::default(), Detail::Summary, Some(80));
        assert!(none.contains("no call stacks"), "{none}");
    }
}
