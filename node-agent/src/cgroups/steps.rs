//! Steps and tasks: the steps of a job to which Slurm gives cgroups of their own.
//!
//! Version 1 has `job_J/step_S/task_T`, version 2 `job_J/step_S/user/task_T`
//! (<https://slurm.schedmd.com/cgroup_v2.html>).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use polymeter_proto::step_level::StepLevel;

use super::hierarchy::JobCgroups;

/// Most steps and tasks of a job that are tracked at a time. Each is read at the periods of the plan.
const STEPS_LIMIT: usize = 256;

const STEP: &str = "step";
const TASK: &str = "task";

/// Directory of version 2 between a step and its tasks.
const USER: &str = "user";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub level: StepLevel,
    /// Name such as `step_0` or `step_0/task_1`.
    pub name: String,
    /// `step`, and of a task `task`, with the scheduler's number or name.
    pub labels: Vec<(String, String)>,
    pub cgroups: JobCgroups,
}

/// Names of the steps and tasks that a job has had so far: at most [`SeenSteps::LIMIT`], because each leaves
/// its tallies and series behind until the job ends, and a user may run many steps.
#[derive(Debug, Default)]
pub struct SeenSteps(BTreeSet<String>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepAdmission {
    Admitted,
    /// Sampled, as the last within the limit.
    Last,
    /// Not sampled: the job has had too many.
    Refused,
}

impl SeenSteps {
    pub const LIMIT: usize = 1024;

    /// Admits a step or task if it is known or within the limit.
    pub fn admit(&mut self, step: &str) -> StepAdmission {
        if self.0.contains(step) {
            return StepAdmission::Admitted;
        }
        if self.0.len() >= Self::LIMIT {
            return StepAdmission::Refused;
        }
        self.0.insert(step.to_owned());
        if self.0.len() == Self::LIMIT { StepAdmission::Last } else { StepAdmission::Admitted }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepCounts {
    steps: usize,
    tasks: usize,
}

impl StepCounts {
    pub fn of<'a>(steps: impl IntoIterator<Item = &'a Step>) -> Self {
        let mut counts = Self::default();
        for step in steps {
            match step.level {
                StepLevel::Step => counts.steps += 1,
                StepLevel::Task => counts.tasks += 1,
            }
        }
        counts
    }

    pub const fn at(self, level: StepLevel) -> usize {
        match level {
            StepLevel::Step => self.steps,
            StepLevel::Task => self.tasks,
        }
    }
}

/// Current steps and tasks of a job, by name. The names are not checked.
pub fn find(job: &JobCgroups) -> BTreeMap<String, Step> {
    let mut steps: BTreeMap<String, Step> = BTreeMap::new();
    let v1 = job.v1.iter().map(|(controller, path)| (Some(controller.as_str()), path));
    for (controller, top) in v1.chain(job.v2.iter().map(|path| (None, path))) {
        for (step, path) in below(top, STEP) {
            let labels = vec![(STEP.to_owned(), step.clone())];
            let name = format!("{STEP}_{step}");
            let tasks = below(&path, TASK).into_iter().chain(below(&path.join(USER), TASK));
            for (task, path) in tasks {
                let mut labels = labels.clone();
                labels.push((TASK.to_owned(), task.clone()));
                add(&mut steps, StepLevel::Task, format!("{name}/{TASK}_{task}"), labels, controller, path);
            }
            add(&mut steps, StepLevel::Step, name, labels, controller, path);
        }
    }
    steps
}

/// Directories `KIND_NAME` in a directory: each name with its path.
fn below(directory: &Path, kind: &str) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let named = directories.filter_map(|entry| {
        let name = entry.file_name().to_str()?.strip_prefix(kind)?.strip_prefix('_')?.to_owned();
        (!name.is_empty()).then(|| (name, entry.path()))
    });
    named.take(STEPS_LIMIT).collect()
}

fn add(
    steps: &mut BTreeMap<String, Step>,
    level: StepLevel,
    name: String,
    labels: Vec<(String, String)>,
    controller: Option<&str>,
    path: PathBuf,
) {
    if steps.len() >= STEPS_LIMIT && !steps.contains_key(&name) {
        return;
    }
    let step = steps.entry(name.clone()).or_insert_with(|| Step {
        level,
        name: name.clone(),
        labels,
        cgroups: JobCgroups::default(),
    });
    match controller {
        None => step.cgroups.v2 = Some(path),
        Some(controller) => drop(step.cgroups.v1.insert(controller.to_owned(), path)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn labels(step: &Step) -> Vec<(&str, &str)> {
        step.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    #[test]
    fn number_of_sampled_steps_is_bounded_and_a_step_may_return() {
        let mut seen = SeenSteps::default();
        let admitted =
            (1..SeenSteps::LIMIT).all(|step| seen.admit(&format!("step_{step}")) == StepAdmission::Admitted);
        assert!(admitted);
        assert_eq!(seen.admit("step_0"), StepAdmission::Last);
        assert_eq!(seen.admit("step_batch"), StepAdmission::Refused);
        assert_eq!(seen.admit("step_0"), StepAdmission::Admitted, "a step that returns takes no place");
        assert_eq!(seen.admit("step_batch"), StepAdmission::Refused);
    }

    #[test]
    fn finds_steps_and_tasks_in_both_versions() {
        let directory = tempfile::tempdir().unwrap();
        let make = |path: &str| fs::create_dir_all(directory.path().join(path)).unwrap();
        make("memory/step_batch/task_0");
        make("memory/step_extern");
        make("cpuacct/step_batch");
        make("v2/step_0/user/task_3");
        make("v2/step_0/slurm");
        make("v2/stepping");
        make("v2/step_");
        fs::write(directory.path().join("v2/step_9"), "no directory").unwrap();
        let place = |name: &str| directory.path().join(name);
        let v1 = ["memory", "cpuacct"].map(|name| (name.to_owned(), place(name)));
        let job = JobCgroups { v2: Some(place("v2")), v1: v1.into(), ..JobCgroups::default() };
        let steps = find(&job);
        let names: Vec<&str> = steps.keys().map(String::as_str).collect();
        assert_eq!(names, ["step_0", "step_0/task_3", "step_batch", "step_batch/task_0", "step_extern"]);
        assert_eq!(labels(&steps["step_0/task_3"]), [("step", "0"), ("task", "3")]);
        assert_eq!(steps["step_0/task_3"].cgroups.v2, Some(place("v2/step_0/user/task_3")));
        assert_eq!(
            (labels(&steps["step_batch"]), steps["step_batch"].level),
            (vec![("step", "batch")], StepLevel::Step)
        );
        assert_eq!(steps["step_batch"].cgroups.v1.len(), 2, "both controllers' directories are the step's");
        assert_eq!(steps["step_batch/task_0"].cgroups.v1.len(), 1);
        let counts = StepCounts::of(steps.values());
        assert_eq!((counts.at(StepLevel::Step), counts.at(StepLevel::Task)), (3, 2));
    }

    #[test]
    fn number_of_found_steps_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        for step in 0..STEPS_LIMIT + 10 {
            fs::create_dir_all(directory.path().join(format!("step_{step}/task_0"))).unwrap();
        }
        let job = JobCgroups { v2: Some(directory.path().to_owned()), ..JobCgroups::default() };
        assert_eq!(find(&job).len(), STEPS_LIMIT);
    }
}
