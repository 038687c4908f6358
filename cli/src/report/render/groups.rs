//! Tables of nodes, steps, tasks and phases: all rows, or those at both ends and the distribution. Pure.

use polymeter_analysis::model::{Report, Resources, StepReport, TaskReport};
use polymeter_analysis::phases;
use polymeter_proto::units;

use super::detail::Detail;
use super::paragraph;
use crate::output::table::head;
use crate::report::summary::{self, Imbalance};

/// The number of rows at each end of a table.
const ENDS: usize = 10;

/// A row of a table: its name cells, and the resources.
struct Group<'a> {
    names: Vec<String>,
    /// The time to which the mean of the cores in use refers, in seconds.
    time_s: f64,
    energy_joules: Option<f64>,
    used: &'a Resources,
}

impl Group<'_> {
    /// Returns the mean number of cores in use.
    fn cores(&self) -> Option<f64> {
        self.used.cpu_s.filter(|_| self.time_s > 0.0).map(|cpu_s| cpu_s / self.time_s)
    }
}

/// Lays out all nodes, and the steps, tasks and phases if there are any.
pub(super) fn all(report: &Report, limit: Option<usize>) -> String {
    let tables = [
        Some(nodes(report, Detail::All, limit)),
        (!report.steps.is_empty()).then(|| steps(report, Detail::All, limit)),
        (!report.tasks.is_empty()).then(|| tasks(report, Detail::All, limit)),
        (!report.phases.is_empty()).then(|| phases(report, Detail::All, limit)),
    ];
    tables.into_iter().flatten().map(|table| table + "\n").collect()
}

/// Lays out the nodes.
pub(super) fn nodes(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    let group = |node: &'_ polymeter_analysis::model::NodeReport| {
        vec![node.node.clone(), summary::figure(node.cpus, |cpus| cpus.to_string())]
    };
    let groups = report
        .by_node
        .iter()
        .map(|node| Group {
            names: group(node),
            time_s: report.wall_s,
            energy_joules: node.energy_joules,
            used: &node.used,
        })
        .collect();
    let mut text = table(&["node", "CPUs"], groups, detail, limit);
    let cpu = report.by_node.iter().map(|node| (node.node.as_str(), node.used.cpu_s));
    text.push_str(&imbalance("node", cpu, limit));
    let kind = report.by_node.iter().find_map(|node| node.used.memory_kind);
    if let Some(kind) = kind {
        text.push_str(&paragraph::remark(&format!("memory: {}", kind.text()), limit));
    }
    text
}

/// Lays out the steps.
pub(super) fn steps(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    if report.steps.is_empty() {
        return paragraph::remark("no step was sampled", limit);
    }
    let names = |step: &StepReport| {
        let duration = units::elapsed(step.duration_s());
        vec![step.step.clone(), step.nodes.to_string(), step.tasks.to_string(), duration]
    };
    let groups = report
        .steps
        .iter()
        .map(|step| Group {
            names: names(step),
            time_s: step.duration_s(),
            energy_joules: None,
            used: &step.used,
        })
        .collect();
    table(&["step", "nodes", "tasks", "time"], groups, detail, limit)
}

/// Lays out the tasks of steps, and the imbalance of each step with several.
pub(super) fn tasks(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    if report.tasks.is_empty() {
        return paragraph::remark("no task was sampled", limit);
    }
    let durations = report.step_durations();
    let names = |task: &TaskReport| vec![format!("{}.{}", task.step, task.task), task.node.clone()];
    let groups = report
        .tasks
        .iter()
        .map(|task| Group {
            names: names(task),
            time_s: durations.get(task.step.as_str()).copied().unwrap_or_default(),
            energy_joules: None,
            used: &task.used,
        })
        .collect();
    let mut text = table(&["task", "node"], groups, detail, limit);
    let steps = report.tasks.chunk_by(|one, other| one.step == other.step).take(detail.lines_max());
    for tasks in steps.filter(|tasks| tasks.len() > 1) {
        let Some(first) = tasks.first() else { continue };
        let cpu = tasks.iter().map(|task| (task.task.as_str(), task.used.cpu_s));
        text.push_str(&imbalance(&format!("step {}, task", first.step), cpu, limit));
    }
    text
}

/// Lays out the totals of the phases.
pub(super) fn phases(report: &Report, detail: Detail, limit: Option<usize>) -> String {
    let totals = phases::totals(report);
    let has_energy = totals.iter().any(|phase| phase.energy_joules.is_some());
    let mut rows = vec![head(["phase", "times", "duration", "share", "cores used", "memory", "written"])];
    rows.iter_mut().for_each(|row| row.extend(has_energy.then(|| "energy".to_owned())));
    for phase in totals.iter().take(detail.lines_max()) {
        let share = if report.wall_s > 0.0 { 100.0 * phase.duration_s / report.wall_s } else { 0.0 };
        let mut row = vec![
            phase.name.clone(),
            phase.count.to_string(),
            units::elapsed(phase.duration_s),
            units::value("percent", share),
            summary::cores(phase.cores_mean),
            summary::bytes(phase.memory_bytes),
            summary::bytes(phase.written_bytes),
        ];
        row.extend(has_energy.then(|| summary::joules(phase.energy_joules)));
        rows.push(row);
    }
    if totals.is_empty() {
        return paragraph::remark("no phase has a begin and an end", limit);
    }
    let mut text = paragraph::indented_table_within(&rows, limit);
    let hidden = totals.len().saturating_sub(detail.lines_max());
    if hidden > 0 {
        text.push_str(&paragraph::remark(
            &format!("{hidden} more; `polymeter report --all` shows them"),
            limit,
        ));
    }
    text
}

/// Lays out groups, sorted by their CPU time. Of many the first and the last are listed, and the distribution
/// of all.
fn table(names: &[&str], mut groups: Vec<Group<'_>>, detail: Detail, limit: Option<usize>) -> String {
    let cpu_s = |group: &Group<'_>| group.used.cpu_s.unwrap_or(f64::NEG_INFINITY);
    let is_long = detail == Detail::Summary && groups.len() > 2 * ENDS;
    if is_long {
        groups.sort_by(|one, other| cpu_s(other).total_cmp(&cpu_s(one)));
    }
    let has_energy = groups.iter().any(|group| group.energy_joules.is_some());
    let mut columns = vec!["cores used", "memory", "cache", "read", "written"];
    columns.extend(has_energy.then_some("energy"));
    let row = |group: &Group<'_>| {
        let used = group.used;
        let mut cells = group.names.clone();
        cells.extend([
            summary::cores(group.cores()),
            summary::bytes(used.memory_bytes),
            summary::bytes(used.cache_bytes),
            summary::bytes(used.read_bytes),
            summary::bytes(used.written_bytes),
        ]);
        cells.extend(has_energy.then(|| summary::joules(group.energy_joules)));
        cells
    };
    let mut rows: Vec<Vec<String>> =
        vec![names.iter().chain(&columns).map(|name| (*name).to_owned()).collect()];
    let (first, last) = if is_long { (ENDS, groups.len() - ENDS) } else { (groups.len(), groups.len()) };
    rows.extend(groups.iter().take(first).map(row));
    if is_long {
        rows.push(vec!["…".to_owned()]);
    }
    rows.extend(groups.iter().skip(last).map(row));
    let mut text = paragraph::indented_table_within(&rows, limit);
    if is_long {
        let hidden = format!("{} between are not shown; `polymeter report --all` shows them", last - first);
        text.push_str(&paragraph::remark(&hidden, limit));
        text.push_str(&distribution(&groups, limit));
    }
    text
}

/// Describes the distribution of the cores in use and of the memory over groups.
fn distribution(groups: &[Group<'_>], limit: Option<usize>) -> String {
    let of = |name: &str, values: Vec<f64>, text: &dyn Fn(f64) -> String| {
        let mut values = values;
        values.sort_by(f64::total_cmp);
        let at = |percent: usize| values.get((values.len().saturating_sub(1) * percent + 50) / 100).copied();
        let points: Option<Vec<String>> = [0, 10, 50, 90, 100]
            .into_iter()
            .map(|percent| Some(format!("{} {}", percentile(percent), text(at(percent)?))))
            .collect();
        points.map(|points| format!("{name} of {}: {}", values.len(), points.join(", ")))
    };
    let cores = groups.iter().filter_map(Group::cores);
    let memory = groups.iter().filter_map(|group| group.used.memory_bytes);
    let lines = [
        of("cores used", cores.collect(), &|cores| format!("{cores:.2}")),
        of("memory", memory.collect(), &|bytes| units::value("bytes", bytes)),
    ];
    lines.into_iter().flatten().map(|line| paragraph::remark(&line, limit)).collect()
}

const fn percentile(percent: usize) -> &'static str {
    match percent {
        0 => "min",
        10 => "10 %",
        50 => "median",
        90 => "90 %",
        _ => "max",
    }
}

/// Describes the imbalance of the CPU time: the largest over the mean, and both ends.
fn imbalance<'a>(
    kind: &str,
    used: impl Iterator<Item = (&'a str, Option<f64>)>,
    limit: Option<usize>,
) -> String {
    let Some(imbalance) = Imbalance::of(used) else { return String::new() };
    let Imbalance { ratio, most: (most, most_time), least: (least, least_time) } = imbalance;
    let text = format!(
        "imbalance of CPU time, max / mean: {ratio:.2}; most: {kind} {most} with {most_time}, \
         least: {kind} {least} with {least_time}"
    );
    paragraph::remark(&text, limit)
}

#[cfg(test)]
mod tests {
    use polymeter_analysis::model::NodeReport;

    use super::*;

    fn report(nodes: u32) -> Report {
        let node = |number: u32| NodeReport {
            node: format!("n{number:04}"),
            cpus: Some(64),
            used: Resources {
                cpu_s: Some(f64::from(number) * 100.0),
                memory_bytes: Some(1_073_741_824.0),
                ..Resources::default()
            },
            ..NodeReport::default()
        };
        let step = |number: u32| StepReport {
            step: number.to_string(),
            nodes: 1,
            last_us: 5_000_000,
            used: Resources { cpu_s: Some(f64::from(number)), ..Resources::default() },
            ..StepReport::default()
        };
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
