//! The parts of a job that a scheduler gives cgroups of their own: Slurm's steps, and the tasks of each.
//!
//! Version 1 has `job_J/step_S/task_T`, version 2 `job_J/step_S/user/task_T`
//! (<https://slurm.schedmd.com/cgroup_v2.html>).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::hierarchy::JobCgroups;

/// How many parts of a job are known at a time. Each is read as often as the plan says.
const STEPS_LIMIT: usize = 256;

const STEP: &str = "step";
const TASK: &str = "task";

/// The directory of version 2 between a step and its tasks.
const USER: &str = "user";

/// What a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepLevel {
    /// A step of a job.
    Step,
    /// A task of a step.
    Task,
}

/// A step, or a task of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Which of both.
    pub level: StepLevel,
    /// `step_0`, `step_0/task_1`.
    pub name: String,
    /// `step`, and of a task `task`, as the scheduler numbers or calls them.
    pub labels: Vec<(String, String)>,
    /// Its directories.
    pub cgroups: JobCgroups,
}

/// The names of the parts that a job has had so far: at most [`SeenSteps::LIMIT`], since each leaves its tallies and series
/// behind until the job ends, and whoever may run a job may run many steps.
#[derive(Debug, Default)]
pub struct SeenSteps(BTreeSet<String>);

/// Whether a part may be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepAdmission {
    /// It may, as one more or once more.
    Admitted,
    /// It may, and has taken the last place.
    Last,
    /// It may not: there is no place left.
    Refused,
}

impl SeenSteps {
    /// How many parts of one job are followed in all.
    pub const LIMIT: usize = 1024;

    /// Puts a part on the roll, unless it is there.
    pub fn admit(&mut self, part: &str) -> StepAdmission {
        if self.0.contains(part) {
            return StepAdmission::Admitted;
        }
        if self.0.len() >= Self::LIMIT {
            return StepAdmission::Refused;
        }
        self.0.insert(part.to_owned());
        if self.0.len() == Self::LIMIT { StepAdmission::Last } else { StepAdmission::Admitted }
    }
}

/// The parts of a job that are there now, by name. Names are taken as they are: whoever makes series of them checks them.
pub fn find(job: &JobCgroups) -> BTreeMap<String, Step> {
    let mut parts: BTreeMap<String, Step> = BTreeMap::new();
    let v1 = job.v1.iter().map(|(controller, path)| (Some(controller.as_str()), path));
    for (controller, top) in v1.chain(job.v2.iter().map(|path| (None, path))) {
        for (step, path) in below(top, STEP) {
            let labels = vec![(STEP.to_owned(), step.clone())];
            let name = format!("{STEP}_{step}");
            let tasks = below(&path, TASK).into_iter().chain(below(&path.join(USER), TASK));
            for (task, path) in tasks {
                let mut labels = labels.clone();
                labels.push((TASK.to_owned(), task.clone()));
                add(&mut parts, StepLevel::Task, format!("{name}/{TASK}_{task}"), labels, controller, path);
            }
            add(&mut parts, StepLevel::Step, name, labels, controller, path);
        }
    }
    parts
}

/// The directories `KIND_NAME` in a directory: each name, and where it is.
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
    parts: &mut BTreeMap<String, Step>,
    level: StepLevel,
    name: String,
    labels: Vec<(String, String)>,
    controller: Option<&str>,
    path: PathBuf,
) {
    if parts.len() >= STEPS_LIMIT && !parts.contains_key(&name) {
        return;
    }
    let new = || Step { level, name: name.clone(), labels, cgroups: JobCgroups::default() };
    let part = parts.entry(name.clone()).or_insert_with(new);
    match controller {
        None => part.cgroups.v2 = Some(path),
        Some(controller) => drop(part.cgroups.v1.insert(controller.to_owned(), path)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn labels(part: &Step) -> Vec<(&str, &str)> {
        part.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    #[test]
    fn a_job_has_so_many_parts_in_all_and_each_as_often_as_it_comes() {
        let mut roll = SeenSteps::default();
        let admitted =
            (1..SeenSteps::LIMIT).all(|step| roll.admit(&format!("step_{step}")) == StepAdmission::Admitted);
        assert!(admitted);
        assert_eq!(roll.admit("step_0"), StepAdmission::Last);
        assert_eq!(roll.admit("step_batch"), StepAdmission::Refused);
        assert_eq!(roll.admit("step_0"), StepAdmission::Admitted, "one that comes again takes no place");
        assert_eq!(roll.admit("step_batch"), StepAdmission::Refused);
    }

    #[test]
    fn both_versions_have_steps_and_tasks() {
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
        let parts = find(&job);
        let names: Vec<&str> = parts.keys().map(String::as_str).collect();
        assert_eq!(names, ["step_0", "step_0/task_3", "step_batch", "step_batch/task_0", "step_extern"]);
        assert_eq!(labels(&parts["step_0/task_3"]), [("step", "0"), ("task", "3")]);
        assert_eq!(parts["step_0/task_3"].cgroups.v2, Some(place("v2/step_0/user/task_3")));
        assert_eq!(
            (labels(&parts["step_batch"]), parts["step_batch"].level),
            (vec![("step", "batch")], StepLevel::Step)
        );
        assert_eq!(parts["step_batch"].cgroups.v1.len(), 2, "both controllers' directories are the step's");
        assert_eq!(parts["step_batch/task_0"].cgroups.v1.len(), 1);
    }

    #[test]
    fn the_number_of_parts_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        for step in 0..STEPS_LIMIT + 10 {
            fs::create_dir_all(directory.path().join(format!("step_{step}/task_0"))).unwrap();
        }
        let job = JobCgroups { v2: Some(directory.path().to_owned()), ..JobCgroups::default() };
        assert_eq!(find(&job).len(), STEPS_LIMIT);
    }
}
