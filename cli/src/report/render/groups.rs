//! Tables of nodes, steps, tasks and phases: all rows, or those at both ends and the distribution. Pure.

use polymeter_analysis::model::{Report, Resources};
use polymeter_analysis::statistics::quantile;
use polymeter_proto::units;

use super::detail::Detail;
use super::paragraph;
use crate::report::summary::{self, Imbalance};

/// Rows at each end.
const ENDS: usize = 10;

struct Group<'a> {
    names: Vec<String>,
    /// Time to which the mean of the cores in use refers.
    time_s: f64,
    energy_joules: Option<f64>,
    used: &'a Resources,
}

impl Group<'_> {
    fn cores(&self) -> Option<f64> {
        self.used.cores(self.time_s)
    }

    fn row(&self, has_energy: bool) -> Vec<String> {
        let used = self.used;
        let mut cells = self.names.clone();
        cells.extend([
            summary::cores(self.cores()),
            summary::bytes(used.memory_bytes),
            summary::bytes(used.cache_bytes),
            summary::bytes(used.read_bytes),
            summary::bytes(used.written_bytes),
        ]);
        cells.extend(has_energy.then(|| summary::joules(self.energy_joules)));
        cells
    }
}

/// All nodes, and the steps, tasks and phases if there are any.
pub(super) fn all(report: &Report, limit: Option<usize>) -> String {
    let tables = [
        Some(nodes(report, Detail::All, limit)),
        (!report.steps.is_empty()).then(|| steps(report, Detail::All, limit)),
        (!report.tasks.is_empty()).then(|| tasks(report, Detail::All, limit)),
        (!report.phases.is_empty()).then(|| phases(report, Detail::All, limit)),
    ];
    tables.into_iter().flatten().map(|table| table + "\n").collect()
}

pub(super) fn nodes(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    let mut groups = Vec::new();
    for node in &report.by_node {
        groups.push(Group {
            names: vec![node.node.clone(), summary::figure(node.cpus, |cpus| cpus.to_string())],
            time_s: report.wall_s,
            energy_joules: node.energy_joules,
            used: &node.used,
        });
    }
    let mut text = table(&["node", "CPUs"], groups, detail, limit);
    text.extend(Imbalance::of_nodes(report).map(|imbalance| imbalance_text("node", &imbalance, limit)));
    if let Some(kind) = report.memory_kind() {
        text.push_str(&paragraph::remark(&format!("memory: {}", kind.text()), limit));
    }
    text
}

pub(super) fn steps(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    if report.steps.is_empty() {
        return paragraph::remark("no step was sampled", limit);
    }
    let mut groups = Vec::new();
    for step in &report.steps {
        let time_s = step.duration_s();
        let duration = units::elapsed(time_s);
        groups.push(Group {
            names: vec![step.step.clone(), step.nodes.to_string(), step.tasks.to_string(), duration],
            time_s,
            energy_joules: None,
            used: &step.used,
        });
    }
    table(&["step", "nodes", "tasks", "time"], groups, detail, limit)
}

/// Tasks of steps, and the imbalance of each step with several.
pub(super) fn tasks(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    if report.tasks.is_empty() {
        return paragraph::remark("no task was sampled", limit);
    }
    let durations = report.step_durations();
    let mut groups = Vec::new();
    for task in &report.tasks {
        groups.push(Group {
            names: vec![format!("{}.{}", task.step, task.task), task.node.clone()],
            time_s: durations.get(task.step.as_str()).copied().unwrap_or_default(),
            energy_joules: None,
            used: &task.used,
        });
    }
    let mut text = table(&["task", "node"], groups, detail, limit);
    for (step, imbalance) in Imbalance::of_steps(report).take(detail.lines_max()) {
        let kind = format!("step {step}, task");
        text.extend(imbalance.map(|imbalance| imbalance_text(&kind, &imbalance, limit)));
    }
    text
}

pub(super) fn phases(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    let (names, totals) = summary::phase_totals(report);
    if totals.is_empty() {
        return paragraph::remark("no phase has a begin and an end", limit);
    }
    let mut rows = vec![names.into_iter().map(str::to_owned).collect()];
    rows.extend(totals);
    paragraph::shortened_table(rows, detail.lines_max(), limit)
}

/// Sorts groups by their CPU time. If there are many, lists the first and the last, and the distribution of
/// all.
fn table(names: &[&str], mut groups: Vec<Group<'_>>, detail: Detail, limit: Option<usize>) -> String {
    let has_energy = groups.iter().any(|group| group.energy_joules.is_some());
    let columns = ["cores used", "memory", "cache", "read", "written"];
    let head = names.iter().copied().chain(columns).chain(has_energy.then_some("energy"));
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).collect()];
    if detail == Detail::All || groups.len() <= 2 * ENDS {
        rows.extend(groups.iter().map(|group| group.row(has_energy)));
        return paragraph::indented_table_within(&rows, limit);
    }
    let cpu_s = |group: &Group<'_>| group.used.cpu_s.unwrap_or(f64::NEG_INFINITY);
    groups.sort_by(|one, other| cpu_s(other).total_cmp(&cpu_s(one)));
    rows.extend(groups.iter().take(ENDS).map(|group| group.row(has_energy)));
    rows.push(vec!["…".to_owned()]);
    rows.extend(groups.iter().skip(groups.len() - ENDS).map(|group| group.row(has_energy)));
    let mut text = paragraph::indented_table_within(&rows, limit);
    let hidden = groups.len() - 2 * ENDS;
    let hidden = format!("{hidden} between are not shown; `polymeter report --show all` shows them");
    text.push_str(&paragraph::remark(&hidden, limit));
    text.push_str(&distribution(&groups, limit));
    text
}

/// Percent of the values, and a name.
const POINTS: [(usize, &str); 5] = [(0, "min"), (10, "10 %"), (50, "median"), (90, "90 %"), (100, "max")];

fn distribution(groups: &[Group<'_>], limit: Option<usize>) -> String {
    let cores = groups.iter().filter_map(Group::cores).collect();
    let memory = groups.iter().filter_map(|group| group.used.memory_bytes).collect();
    points("cores used", cores, limit, |cores| summary::cores(Some(cores)))
        + &points("memory", memory, limit, |bytes| summary::bytes(Some(bytes)))
}

/// Empty without values.
fn points(name: &str, mut values: Vec<f64>, limit: Option<usize>, text: impl Fn(f64) -> String) -> String {
    if values.is_empty() {
        return String::new();
    }
    values.sort_by(f64::total_cmp);
    let points: Vec<String> = POINTS
        .into_iter()
        .filter_map(|(percent, point)| Some(format!("{point} {}", text(quantile(&values, percent)?))))
        .collect();
    paragraph::remark(&format!("{name} of {}: {}", values.len(), points.join(", ")), limit)
}

/// Largest CPU time over the mean, and both ends.
fn imbalance_text(kind: &str, imbalance: &Imbalance<'_>, limit: Option<usize>) -> String {
    let Imbalance { ratio, most: (most, most_time), least: (least, least_time) } = imbalance;
    let text = format!(
        "imbalance of CPU time, max / mean: {ratio:.2}; most: {kind} {most} with {most_time}, \
         least: {kind} {least} with {least_time}"
    );
    paragraph::remark(&text, limit)
}

#[cfg(test)]
mod tests {
    use polymeter_analysis::model::{NodeReport, StepReport, TaskReport};

    use super::*;

    fn node(number: u32) -> NodeReport {
        NodeReport {
            node: format!("n{number:04}"),
            cpus: Some(64),
            used: Resources {
                cpu_s: Some(f64::from(number) * 100.0),
                memory_bytes: Some(1_073_741_824.0),
                ..Resources::default()
            },
            ..NodeReport::default()
        }
    }

    fn step(number: u32) -> StepReport {
        StepReport {
            step: number.to_string(),
            nodes: 1,
            last_us: 5_000_000,
            used: Resources { cpu_s: Some(f64::from(number)), ..Resources::default() },
            ..StepReport::default()
        }
    }

    fn report(nodes: u32) -> Report {
        Report {
            by_node: (1..=nodes).map(node).collect(),
            steps: (0..10 * nodes).map(step).collect(),
            wall_s: 100.0,
            ..Report::default()
        }
    }

    #[test]
    fn many_nodes_are_shown_by_both_ends() {
        let text = nodes(&report(1000), Detail::Summary, Some(80));
        assert!(text.lines().count() < 32, "{text}");
        assert!(
            text.contains("(980 between are not shown")
                && text.contains("  n1000 ")
                && text.contains("  n0001 "),
            "{text}"
        );
        assert!(text.contains("cores used of 1000: min 1.00, 10 % 101.00, median 501.00"), "{text}");
        assert!(text.contains("max / mean: 2.00; most: node n1000"), "{text}");
        assert_eq!(nodes(&report(1000), Detail::All, None).lines().count(), 1002);
        let steps = steps(&report(1000), Detail::Summary, Some(80));
        assert!(steps.lines().count() < 30 && steps.contains("(9980 between are not shown"), "{steps}");
    }

    #[test]
    fn the_cores_of_a_step_and_its_tasks_are_those_during_the_step() {
        let used = |cpu_s: f64| Resources { cpu_s: Some(cpu_s), ..Resources::default() };
        let step = StepReport {
            step: "0".to_owned(),
            last_us: 10_000_000,
            used: used(40.0),
            ..StepReport::default()
        };
        let task = TaskReport {
            step: "0".to_owned(),
            task: "1".to_owned(),
            used: used(10.0),
            ..TaskReport::default()
        };
        let report = Report { steps: vec![step], tasks: vec![task], wall_s: 100.0, ..Report::default() };
        let text = steps(&report, Detail::Summary, None);
        assert!(text.contains("  4.00  "), "{text}");
        let text = tasks(&report, Detail::Summary, None);
        assert!(text.contains("  1.00  "), "{text}");
    }

    #[test]
    fn few_nodes_keep_their_order() {
        let text = nodes(&report(3), Detail::Summary, None);
        let names: Vec<_> =
            text.lines().skip(1).take(3).map(|line| line.split_whitespace().next().unwrap()).collect();
        assert_eq!(names, ["n0001", "n0002", "n0003"]);
        assert!(tasks(&report(3), Detail::Summary, None).contains("no task was sampled"));
    }
}
