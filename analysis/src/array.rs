//! Summary of an array over its tasks, or of a heterogeneous job over its components.

use std::collections::BTreeMap;

use polymeter_proto::units;

use polymeter_store::StoreError;
use polymeter_store::reader::{JobRow, Read};
use serde::Serialize;

use crate::gather::{end_or_now_ns, gather};
use crate::model::SCHEMA_VERSION;

/// Samples are read of at most so many tasks. The other figures are those of all tasks.
const READ: usize = 200;

#[derive(Debug, Serialize)]
pub struct ArrayReport {
    pub schema_version: u32,
    pub array: String,
    /// Sorted by their numbers; of several runs of a task the last.
    pub tasks: Vec<ArrayTask>,
    pub states: BTreeMap<String, usize>,
    /// Spread over the tasks that have ended.
    pub elapsed_s: Option<Spread>,
    /// Sum over the tasks whose samples were read.
    pub cpu_s: Option<f64>,
    /// Share of the CPU time of the cores of these tasks.
    pub cpu_share: Option<f64>,
    pub peak_memory_bytes: Option<f64>,
    /// Tasks whose samples were not read.
    pub not_read: usize,
}

#[derive(Debug, Serialize)]
pub struct ArrayTask {
    pub job: String,
    /// Id that the scheduler gave to the task itself.
    pub job_id: String,
    pub key: i64,
    pub runs: usize,
    /// Final state, `running`, or `ended` if it is not known.
    pub state: String,
    pub started_us: i64,
    /// Microseconds since the epoch; none while it runs.
    pub ended_us: Option<i64>,
    /// Seconds from the start to the end, or to now.
    pub elapsed_s: f64,
    pub cores: Option<i64>,
    pub cpu_s: Option<f64>,
    pub peak_memory_bytes: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub min: f64,
    pub mean: f64,
    pub max: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Self> {
        let (min, max) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
        Some(Self { min, mean: values.iter().sum::<f64>() / units::to_f64(values.len() as u64), max })
    }
}

/// Orders tasks by their numbers, where the ids have some.
fn order(display_id: &str) -> (Option<u64>, String) {
    let number = display_id.rsplit_once(['_', '+']).and_then(|(_, part)| part.parse().ok());
    (number, display_id.to_owned())
}

fn shown_id(job: &JobRow) -> &str {
    job.display_id.as_deref().unwrap_or(&job.job_id)
}

/// Last run of each task, in the order of their numbers, with the number of its runs.
pub fn last_runs(jobs: &[JobRow]) -> Vec<(&JobRow, usize)> {
    let mut tasks: BTreeMap<_, Vec<&JobRow>> = BTreeMap::new();
    for job in jobs {
        tasks.entry(order(shown_id(job))).or_default().push(job);
    }
    let last = tasks.into_values().filter_map(|runs| {
        let count = runs.len();
        runs.into_iter().max_by_key(|run| (run.started_ns, run.job_key)).map(|run| (run, count))
    });
    last.collect()
}

/// Summarises the array `array` over `jobs`, the runs of its tasks.
pub fn summarise(reader: &mut dyn Read, array: &str, jobs: &[JobRow]) -> Result<ArrayReport, StoreError> {
    let mut tasks = Vec::new();
    for (position, (job, runs)) in last_runs(jobs).into_iter().enumerate() {
        let used = if position < READ { Some(gather(reader, job, None)?.used) } else { None };
        let state = job.state.clone();
        let state =
            state.unwrap_or_else(|| if job.ended_ns.is_none() { "running" } else { "ended" }.to_owned());
        tasks.push(ArrayTask {
            job: shown_id(job).to_owned(),
            job_id: job.job_id.clone(),
            key: job.job_key,
            runs,
            state,
            started_us: job.started_ns.div_euclid(1000),
            ended_us: job.ended_ns.map(|ended_ns| ended_ns.div_euclid(1000)),
            elapsed_s: units::seconds_between(job.started_ns, end_or_now_ns(job)),
            cores: job.cores,
            cpu_s: used.as_ref().and_then(|used| used.cpu_s),
            peak_memory_bytes: used.and_then(|used| used.peak_memory_bytes),
        });
    }
    Ok(of_tasks(array, tasks))
}

fn of_tasks(array: &str, tasks: Vec<ArrayTask>) -> ArrayReport {
    let mut states = BTreeMap::new();
    for task in &tasks {
        *states.entry(task.state.clone()).or_default() += 1;
    }
    let ended = tasks.iter().filter(|task| task.ended_us.is_some()).map(|task| task.elapsed_s);
    let cpu_s = tasks.iter().filter_map(|task| task.cpu_s).reduce(|sum, cpu_s| sum + cpu_s);
    let of_cores = tasks.iter().filter_map(|task| {
        let cores = u64::try_from(task.cores?).ok()?;
        Some((task.cpu_s?, units::to_f64(cores) * task.elapsed_s))
    });
    let (used_s, offered_s) = of_cores
        .fold((0.0, 0.0), |(used_s, offered_s), (cpu_s, core_s)| (used_s + cpu_s, offered_s + core_s));
    ArrayReport {
        schema_version: SCHEMA_VERSION,
        array: array.to_owned(),
        states,
        elapsed_s: Spread::of(&ended.collect::<Vec<_>>()),
        cpu_s,
        cpu_share: (offered_s > 0.0).then(|| used_s / offered_s),
        peak_memory_bytes: tasks.iter().filter_map(|task| task.peak_memory_bytes).reduce(f64::max),
        not_read: tasks.len().saturating_sub(READ),
        tasks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job_row;

    fn run(display_id: &str, key: i64) -> JobRow {
        JobRow {
            job_key: key,
            display_id: Some(display_id.to_owned()),
            started_ns: key,
            ..job_row(&key.to_string())
        }
    }

    #[test]
    fn tasks_are_listed_once_in_the_order_of_their_numbers() {
        let jobs = [run("8_10", 5), run("8_9", 4), run("8_10", 7), run("8_10", 6)];
        let last: Vec<_> =
            last_runs(&jobs).into_iter().map(|(job, runs)| (shown_id(job), job.job_key, runs)).collect();
        assert_eq!(last, [("8_9", 4, 1), ("8_10", 7, 3)]);
    }

    fn task(state: &str, elapsed_s: f64, cores: Option<i64>, cpu_s: Option<f64>) -> ArrayTask {
        ArrayTask {
            job: "8_1".to_owned(),
            job_id: "9".to_owned(),
            key: 1,
            runs: 1,
            state: state.to_owned(),
            started_us: 0,
            ended_us: (state != "running").then_some(1),
            elapsed_s,
            cores,
            cpu_s,
            peak_memory_bytes: cpu_s,
        }
    }

    #[test]
    fn figures_are_those_of_all_tasks() {
        let report = of_tasks(
            "8",
            vec![
                task("COMPLETED", 10.0, Some(2), Some(15.0)),
                task("COMPLETED", 30.0, Some(2), Some(15.0)),
                task("FAILED", 20.0, None, Some(7.0)),
                task("running", 1000.0, Some(4), None),
            ],
        );
        assert_eq!(
            report.states,
            [("COMPLETED", 2), ("FAILED", 1), ("running", 1)]
                .map(|(state, count)| (state.to_owned(), count))
                .into()
        );
        assert_eq!(report.elapsed_s, Some(Spread { min: 10.0, mean: 20.0, max: 30.0 }));
        assert_eq!((report.cpu_s, report.cpu_share), (Some(37.0), Some(30.0 / 80.0)));
        assert_eq!((report.peak_memory_bytes, report.not_read), (Some(15.0), 0));
    }
}
