//! Parts of a report by node, step and task. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{NodeReport, SeriesReport, StepReport, TaskReport};
use crate::resources;

/// Listed in the order of `nodes`.
pub(crate) fn nodes(
    nodes: &[String],
    lost: &[String],
    cpus: impl Fn(&str) -> Option<u64>,
    series: &[SeriesReport],
) -> Vec<NodeReport> {
    let mut by_node: BTreeMap<&str, Vec<&SeriesReport>> = BTreeMap::new();
    let mut without_memory: BTreeSet<&str> = BTreeSet::new();
    for series in series {
        // Version 1 counts a kill in the cgroup of the step only.
        if resources::oom_kills(&[series]).is_some_and(|kills| kills > 0.0) {
            without_memory.insert(&series.node);
        }
        if !series.is_of_step {
            by_node.entry(&series.node).or_default().push(series);
        }
    }
    let mut reports = Vec::new();
    for node in nodes {
        let series = by_node.get(node.as_str()).map(Vec::as_slice).unwrap_or_default();
        let mut used = resources::of(series);
        if without_memory.contains(node.as_str()) {
            used.count_peak();
        }
        reports.push(NodeReport {
            node: node.clone(),
            cpus: cpus(node),
            cores: None,
            job_cores: None,
            roofs: None,
            samples: series.iter().map(|series| series.samples).sum(),
            is_lost: lost.contains(node),
            energy_joules: None,
            used,
        });
    }
    reports
}

/// Sorted by name.
pub(crate) fn steps(series: &[SeriesReport]) -> (Vec<StepReport>, Vec<TaskReport>) {
    // The key is the step, the task and the node.
    let mut groups: BTreeMap<(Name<'_>, Option<Name<'_>>, &str), Vec<&SeriesReport>> = BTreeMap::new();
    for series in series {
        let Some(step) = &series.step else { continue };
        let task = series.task.as_deref().map(Name);
        groups.entry((Name(step), task, &series.node)).or_default().push(series);
    }
    let (mut steps, mut tasks): (Vec<StepReport>, Vec<TaskReport>) = (Vec::new(), Vec::new());
    let mut step_nodes: BTreeSet<&str> = BTreeSet::new();
    for ((step, task, node), series) in groups {
        if steps.last().is_none_or(|last| last.step != step.0) {
            step_nodes.clear();
            let (first_us, last_us) = (i64::MAX, i64::MIN);
            steps.push(StepReport { step: step.0.to_owned(), first_us, last_us, ..StepReport::default() });
        }
        let Some(report) = steps.last_mut() else { continue };
        report.nodes += u64::from(step_nodes.insert(node));
        for series in &series {
            report.first_us = report.first_us.min(series.first_us);
            report.last_us = report.last_us.max(series.last_us);
        }
        let mut used = resources::of(&series);
        if resources::oom_kills(&series).is_some_and(|kills| kills > 0.0) {
            used.count_peak();
        }
        match task {
            None => resources::add(&mut report.used, &used),
            Some(task) => {
                report.tasks += 1;
                let (step, task, node) = (step.0.to_owned(), task.0.to_owned(), node.to_owned());
                tasks.push(TaskReport { step, task, node, used });
            }
        }
    }
    (steps, tasks)
}

/// Name of a step or a task: numbers are sorted by value, before other names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name<'a>(&'a str);

impl Name<'_> {
    fn key(&self) -> (bool, u64, &str) {
        let number = self.0.parse().ok();
        (number.is_none(), number.unwrap_or(0), self.0)
    }
}

impl Ord for Name<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Name<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{counter, labelled};

    #[test]
    fn steps_and_tasks_are_sorted_and_counted() {
        let series: Vec<SeriesReport> =
            ["step=10", "step=10,task=0", "step=2", "step=batch", "step=10,task=10", "step=10,task=9"]
                .map(|labels| labelled(counter("cpu.usage", &[1.0, 1.0]), labels))
                .into();
        let (steps, tasks) = steps(&series);
        let names: Vec<_> = steps.iter().map(|step| (step.step.as_str(), step.nodes, step.tasks)).collect();
        assert_eq!(names, [("2", 1, 0), ("10", 1, 3), ("batch", 1, 0)]);
        assert_eq!(steps[1].used.cpu_s, Some(2.0));
        let names: Vec<_> = tasks.iter().map(|task| task.task.as_str()).collect();
        assert_eq!(names, ["0", "9", "10"]);
    }

    #[test]
    fn a_node_without_samples_is_listed() {
        let names = ["n1".to_owned(), "n2".to_owned()];
        let series = [counter("cpu.usage", &[1.0]), labelled(counter("cpu.usage", &[9.0]), "step=0")];
        let reports = nodes(&names, &names[1..], |_| Some(8), &series);
        assert_eq!((reports[0].samples, reports[0].used.cpu_s, reports[0].cpus), (1, Some(1.0), Some(8)));
        assert_eq!((reports[1].samples, reports[1].used.cpu_s, reports[1].is_lost), (0, None, true));
    }
}
