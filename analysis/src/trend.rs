//! Trend of the runs of one name: what each used, where that changed its level, and what else changed
//! there.
//!
//! Everything comes from the stored figures of the jobs: samples are not read, and may be gone.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use polymeter_proto::units::{self, to_f64};
use polymeter_store::StoreError;
use polymeter_store::reader::{JobFilter, JobRow, JobUsage, Read};
use serde::Serialize;

use crate::change_points::{PART_MIN, change_points, median};
use crate::proposals::has_finished;

/// Runs that are read, those that started last.
const RUNS_MAX: u32 = 10_000;

/// Runs with a value from which on a change can be told from chance.
pub const RUNS_MIN: usize = 14;

/// Least change of a level, as a share of it: less is of no use to anyone.
const CHANGE_MIN: f64 = 0.01;

/// Least share of runs that have an attribute's usual value, and the largest share that have another one.
const USUAL_MIN: f64 = 0.8;
const UNUSUAL_MAX: f64 = 0.2;

const NODES_NAMED: usize = 8;

#[derive(Debug, Default)]
pub struct Choice {
    pub name: String,
    /// Owner, by name or numeric id; none for the owner of the run that started last.
    pub user: Option<String>,
    /// Nanoseconds since the epoch. Runs that ended before it are left out.
    pub since_ns: Option<i64>,
    /// Nanoseconds since the epoch. Runs that started after it are left out.
    pub until_ns: Option<i64>,
}

/// Runs of one name and owner over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Trend {
    pub name: String,
    /// Owner's name, if known.
    pub user: Option<String>,
    /// Owner's numeric id, if known.
    pub uid: Option<i64>,
    /// Runs that did not finish, or have no figures yet.
    pub left_out: usize,
    /// Sorted by time.
    pub changes: Vec<Change>,
    /// Sorted by their starts, without those that are left out.
    pub runs: Vec<Run>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    pub key: i64,
    pub job: String,
    /// Microseconds since the epoch.
    pub started_us: i64,
    #[serde(flatten)]
    pub figures: Figures,
}

/// What a run used; none where that is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Seconds from the start to the end.
    pub elapsed_s: Option<f64>,
    pub cpu_s: Option<f64>,
    pub cores_used: Option<f64>,
    /// Peak of used memory, on the node with the most.
    pub memory_used_bytes: Option<f64>,
    pub energy_j: Option<f64>,
    /// Requested and not used.
    pub wasted_core_hours: Option<f64>,
}

#[derive(Debug)]
pub struct Quantity {
    pub key: &'static str,
    pub title: &'static str,
    unit: &'static str,
    pub value: fn(&Figures) -> Option<f64>,
}

/// Most important first.
pub const QUANTITIES: [Quantity; 6] = [
    Quantity { key: "elapsed_s", title: "elapsed", unit: "s", value: |of| of.elapsed_s },
    Quantity { key: "cpu_s", title: "CPU time", unit: "s", value: |of| of.cpu_s },
    Quantity { key: "cores_used", title: "cores used", unit: "cores", value: |of| of.cores_used },
    Quantity {
        key: "memory_used_bytes",
        title: "memory peak",
        unit: "bytes",
        value: |of| of.memory_used_bytes,
    },
    Quantity { key: "energy_j", title: "energy", unit: "joules", value: |of| of.energy_j },
    Quantity {
        key: "wasted_core_hours",
        title: "wasted core-hours",
        unit: "core-hours",
        value: |of| of.wasted_core_hours,
    },
];

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    pub key: i64,
    /// Id as the scheduler prints it.
    pub job: String,
    /// Microseconds since the epoch.
    pub started_us: i64,
    /// Quantities that changed, the most important first.
    pub levels: Vec<Level>,
    pub with: Vec<Attribute>,
}

/// Levels of a quantity before and after a change: the medians of the runs between its changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Level {
    pub quantity: &'static str,
    pub before: f64,
    pub after: f64,
    /// Relative to the level before; none if that is 0.
    pub percent: Option<f64>,
}

/// Attribute whose usual value differs before and after a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attribute {
    pub attribute: &'static str,
    /// `various` if no value is usual.
    pub before: String,
    pub after: String,
}

impl Quantity {
    pub fn text(&self, value: f64) -> String {
        match self.unit {
            "s" => units::elapsed(value),
            "core-hours" => format!("{} core-h", units::number(value)),
            unit => units::value(unit, value),
        }
    }
}

impl Figures {
    fn of(usage: &JobUsage) -> Self {
        Self {
            elapsed_s: Some(usage.elapsed_s),
            cpu_s: usage.cpu_s,
            cores_used: usage.cpu_s.filter(|_| usage.elapsed_s > 0.0).map(|cpu_s| cpu_s / usage.elapsed_s),
            memory_used_bytes: usage.memory_used_bytes,
            energy_j: usage.energy_j,
            wasted_core_hours: usage.wasted_core_s().map(|core_s| core_s / 3600.0),
        }
    }
}

/// None if the reader sees no such run that has ended.
pub fn trend(reader: &mut dyn Read, choice: &Choice) -> Result<Option<Trend>, StoreError> {
    let owner_uid = choice.user.as_ref().and_then(|user| user.parse::<u32>().ok()).map(i64::from);
    let mut filter = JobFilter {
        whole_name: Some(choice.name.clone()),
        owner: choice.user.clone().filter(|_| owner_uid.is_none()),
        owner_uid,
        since_ns: choice.since_ns,
        until_ns: choice.until_ns,
        is_ended: Some(true),
        limit: 1,
        ..JobFilter::default()
    };
    let Some(last) = reader.jobs(&filter)?.pop() else { return Ok(None) };
    // The jobs of a name may have several owners.
    filter.owner_uid = last.owner_uid;
    filter.owner = last.owner.clone().filter(|_| last.owner_uid.is_none());
    filter.limit = RUNS_MAX;
    let mut jobs = reader.jobs(&filter)?;
    jobs.reverse();
    Ok(Some(Trend { name: choice.name.clone(), user: last.owner, uid: last.owner_uid, ..of_jobs(&jobs) }))
}

impl Trend {
    /// Level since the last change; none without values.
    pub fn level(&self, quantity: &Quantity) -> Option<f64> {
        let last = self
            .changes
            .iter()
            .rev()
            .find(|change| change.levels.iter().any(|of| of.quantity == quantity.key));
        let since = self.runs.iter().skip_while(|run| last.is_some_and(|last| run.key != last.key));
        let values: Vec<f64> = since.filter_map(|run| (quantity.value)(&run.figures)).collect();
        (!values.is_empty()).then(|| median(Some(&values)))
    }
}

/// Expects the job that started first first.
fn of_jobs(jobs: &[JobRow]) -> Trend {
    let finished: Vec<(&JobRow, Run)> = jobs
        .iter()
        .filter(|job| has_finished(job))
        .filter_map(|job| Some((job, job.usage.as_ref()?)))
        .map(|(job, usage)| {
            let id = job.display_id.as_ref().unwrap_or(&job.job_id).clone();
            let started_us = job.started_ns.div_euclid(1000);
            (job, Run { key: job.job_key, job: id, started_us, figures: Figures::of(usage) })
        })
        .collect();
    let (jobs_of_runs, runs): (Vec<&JobRow>, Vec<Run>) = finished.into_iter().unzip();
    let mut levels: BTreeMap<usize, Vec<Level>> = BTreeMap::new();
    for quantity in &QUANTITIES {
        add_levels(&mut levels, quantity, &runs);
    }
    let edges: Vec<usize> = levels.keys().copied().chain([runs.len()]).collect();
    let mut begin = 0;
    let mut changes = Vec::new();
    for ((at, levels), end) in levels.into_iter().zip(edges.into_iter().skip(1)) {
        let of = |runs: Range<usize>| jobs_of_runs.get(runs).unwrap_or_default();
        let with = changed_attributes(of(begin..at), of(at..end));
        if let Some(Run { key, job, started_us, .. }) = runs.get(at).cloned() {
            changes.push(Change { key, job, started_us, levels, with });
        }
        begin = at;
    }
    Trend { left_out: jobs.len() - runs.len(), changes, runs, ..Trend::default() }
}

/// Adds the changes of a quantity, by the number of the run. One that is next to a change of a more important
/// quantity is taken to be at the same run.
fn add_levels(changes: &mut BTreeMap<usize, Vec<Level>>, quantity: &Quantity, runs: &[Run]) {
    let known = runs.iter().enumerate();
    let known = known.filter_map(|(number, run)| Some((number, (quantity.value)(&run.figures)?)));
    let (numbers, values): (Vec<usize>, Vec<f64>) = known.filter(|(_, value)| value.is_finite()).unzip();
    let level = |points: &[usize], number: usize| {
        let begin = number.checked_sub(1).and_then(|before| points.get(before)).copied().unwrap_or(0);
        let end = points.get(number).copied().unwrap_or(values.len());
        median(values.get(begin..end))
    };
    let found = change_points(&values);
    let levels: Vec<f64> = (0..=found.len()).map(|number| level(&found, number)).collect();
    let large = found.iter().zip(levels.windows(2)).filter(|(_, levels)| match levels {
        [before, after] => (after - before).abs() >= CHANGE_MIN * before.abs().max(after.abs()),
        _ => false,
    });
    // The number of the run and the position of its value.
    let mut places: Vec<(usize, usize)> = Vec::new();
    for (point, _) in large {
        let Some(number) = numbers.get(*point).copied() else { continue };
        let near = changes.keys().copied().find(|known| known.abs_diff(number) < PART_MIN);
        let number = near.unwrap_or(number);
        let position = numbers.partition_point(|of| *of < number);
        if places.last().is_none_or(|(last, before)| *last < number && *before < position) {
            places.push((number, position));
        }
    }
    let positions: Vec<usize> = places.iter().map(|(_, position)| *position).collect();
    for (place, (number, _)) in places.iter().enumerate() {
        let (before, after) = (level(&positions, place), level(&positions, place + 1));
        let percent = (before != 0.0).then(|| 100.0 * (after - before) / before.abs());
        changes.entry(*number).or_default().push(Level { quantity: quantity.key, before, after, percent });
    }
}

/// Attribute of jobs: its name and its text; none if it is not known.
type Known = (&'static str, fn(&JobRow) -> Option<String>);

/// Attributes that may explain a change.
const ATTRIBUTES: [Known; 13] = [
    ("nodes", nodes),
    ("number of nodes", |job| Some(job.nodes.len().to_string()).filter(|_| !job.nodes.is_empty())),
    ("cores", |job| job.cores.map(|cores| cores.to_string())),
    ("GPUs", |job| job.gpus.map(|gpus| gpus.to_string())),
    ("memory per node", |job| Some(units::bytes(u64::try_from(job.memory_bytes?).ok()?))),
    ("time limit", |job| Some(units::elapsed(to_f64(u64::try_from(job.time_limit_s?).ok()?)))),
    ("queue", |job| job.queue.clone()),
    ("account", |job| job.account.clone()),
    ("cluster", |job| job.cluster.clone()),
    ("command", |job| job.run.as_ref().map(|run| run.command.join(" "))),
    ("directory", |job| job.run.as_ref()?.directory.clone()),
    ("host", |job| job.run.as_ref()?.host.clone()),
    ("environment", environment),
];

/// Nodes of a job: as the scheduler writes them, or some of the names.
fn nodes(job: &JobRow) -> Option<String> {
    let named = job.nodes.get(..NODES_NAMED.min(job.nodes.len()))?;
    let more = job.nodes.len() - named.len();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    job.node_list.clone().or_else(|| (!named.is_empty()).then(|| format!("{}{rest}", named.join(" "))))
}

/// Variables that the user of a run chose: modules and versions, for example.
fn environment(job: &JobRow) -> Option<String> {
    let variables = job.run.as_ref()?.environment.iter().map(|(name, value)| format!("{name}={value}"));
    Some(variables.collect::<Vec<_>>().join(" "))
}

struct Values {
    counts: HashMap<Option<String>, u32>,
    all: u32,
}

impl Values {
    fn of(jobs: &[&JobRow], text: fn(&JobRow) -> Option<String>) -> Self {
        let mut values = Self { counts: HashMap::new(), all: 0 };
        for job in jobs {
            *values.counts.entry(text(job)).or_default() += 1;
            values.all += 1;
        }
        values
    }

    fn share(&self, value: &Option<String>) -> f64 {
        f64::from(self.counts.get(value).copied().unwrap_or(0)) / f64::from(self.all.max(1))
    }

    /// Value that most jobs have.
    fn usual(&self) -> Option<&Option<String>> {
        self.counts.keys().find(|value| self.share(value) >= USUAL_MIN)
    }

    fn usual_text(&self) -> String {
        match self.usual() {
            Some(Some(text)) => text.clone(),
            Some(None) => "unknown".to_owned(),
            None => "various".to_owned(),
        }
    }
}

fn is_unusual(value: Option<&Option<String>>, others: &Values) -> bool {
    value.is_some_and(|value| others.share(value) <= UNUSUAL_MAX)
}

/// Attributes of which a value is usual on one side and not on the other.
fn changed_attributes(before: &[&JobRow], after: &[&JobRow]) -> Vec<Attribute> {
    let mut changed = Vec::new();
    for (attribute, text) in ATTRIBUTES {
        let (before, after) = (Values::of(before, text), Values::of(after, text));
        if is_unusual(before.usual(), &after) || is_unusual(after.usual(), &before) {
            let (before, after) = (before.usual_text(), after.usual_text());
            changed.push(Attribute { attribute, before, after });
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use polymeter_proto::run::Run as Command;

    use super::*;
    use crate::testing::{Random, job_row};

    /// Run of `elapsed_s` that used one of its two cores, at an hour of its own.
    fn job(number: i64, elapsed_s: f64) -> JobRow {
        let usage = JobUsage {
            elapsed_s,
            cores: Some(2.0),
            cpu_s: Some(elapsed_s),
            memory_used_bytes: Some(1e9),
            ..JobUsage::default()
        };
        JobRow {
            job_key: number,
            started_ns: number * 3_600_000_000_000,
            cores: Some(2),
            usage: Some(usage),
            ..job_row(&number.to_string())
        }
    }

    /// Runs with 2 % of noise.
    fn jobs(random: &mut Random, elapsed_s: impl Fn(i64) -> f64, count: i64) -> Vec<JobRow> {
        (0..count).map(|number| job(number, elapsed_s(number) * (1.0 + 0.02 * random.noise()))).collect()
    }

    fn median_by_sorting(values: impl Iterator<Item = f64>) -> f64 {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    fn attribute(attribute: &'static str, before: &str, after: &str) -> Attribute {
        Attribute { attribute, before: before.to_owned(), after: after.to_owned() }
    }

    #[test]
    fn a_change_is_found_at_its_run_with_its_levels_and_what_else_changed() {
        let mut random = Random(1);
        let mut jobs = jobs(&mut random, |number| if number < 25 { 100.0 } else { 118.0 }, 46);
        for (number, job) in (0..).zip(&mut jobs) {
            let is_new = number >= 25;
            job.nodes = vec![if is_new { "n9".to_owned() } else { format!("n{}", number % 5) }];
            job.queue = Some(["a", "b"][number % 2].to_owned());
            let usage = job.usage.as_mut().unwrap();
            usage.energy_j = Some(if is_new { 5e3 } else { 5.02e3 });
            let command = vec!["./solve".to_owned(), format!("--size={}", if is_new { 2 } else { 1 })];
            job.run = Some(Box::new(Command { command, ..Command::default() }));
        }
        // Runs that failed say nothing about the others, nor does one that has not been summarised.
        jobs[30].usage.as_mut().unwrap().elapsed_s = 1.0;
        jobs[30].exit_code = Some(1);
        jobs[40].usage = None;
        let trend = of_jobs(&jobs);
        assert_eq!((trend.runs.len(), trend.left_out, trend.changes.len()), (44, 2, 1), "{trend:?}");
        let change = &trend.changes[0];
        assert_eq!((change.key, change.job.as_str(), change.started_us), (25, "25", 25 * 3_600_000_000));
        let quantities: Vec<_> = change.levels.iter().map(|level| level.quantity).collect();
        assert_eq!(quantities, ["elapsed_s", "cpu_s", "wasted_core_hours"]);
        let elapsed = |new: bool| {
            let runs = jobs.iter().filter(|job| job.job_key != 30 && (job.job_key >= 25) == new);
            median_by_sorting(runs.filter_map(|job| Some(job.usage.as_ref()?.elapsed_s)))
        };
        let level = &change.levels[0];
        assert!((level.before - elapsed(false)).abs() < 0.5 && (level.after - elapsed(true)).abs() < 0.5);
        assert!((level.percent.unwrap() - 18.0).abs() < 2.0, "{level:?}");
        assert_eq!(
            change.with,
            [
                attribute("nodes", "various", "n9"),
                attribute("command", "./solve --size=1", "./solve --size=2")
            ]
        );
    }

    #[test]
    fn quantities_change_together_or_alone() {
        let mut random = Random(2);
        let mut jobs = jobs(&mut random, |number| [60.0, 90.0][usize::from(number >= 30)], 90);
        for job in &mut jobs {
            let usage = job.usage.as_mut().unwrap();
            // The CPU time follows two runs later, and the memory much later; some runs have none.
            usage.cpu_s = Some(if job.job_key >= 32 { 80.0 } else { 50.0 } + random.noise());
            usage.memory_used_bytes = Some(if job.job_key >= 61 { 3e9 } else { 2e9 } + 1e8 * random.noise())
                .filter(|_| job.job_key % 3 != 0);
        }
        let trend = of_jobs(&jobs);
        let found: Vec<(i64, Vec<&str>)> = trend
            .changes
            .iter()
            .map(|change| (change.key, change.levels.iter().map(|level| level.quantity).collect()))
            .collect();
        assert_eq!(
            found,
            [
                (30, vec!["elapsed_s", "cpu_s", "cores_used", "wasted_core_hours"]),
                (61, vec!["memory_used_bytes"])
            ]
        );
        assert!(trend.changes[1].with.is_empty());
    }

    #[test]
    fn runs_that_do_not_change_have_no_trend() {
        let mut random = Random(3);
        let noisy = of_jobs(&jobs(&mut random, |_| 300.0, 60));
        assert_eq!((noisy.changes, noisy.runs.len()), (Vec::new(), 60));
        // A change that is certain, and so small that nobody wants to know it.
        let small = (0..60).map(|number| job(number, if number < 30 { 1000.0 } else { 1001.0 }));
        assert_eq!(of_jobs(&small.collect::<Vec<_>>()).changes, []);
        assert_eq!(of_jobs(&[]), Trend::default());
        let strange = [0.0, f64::NAN, f64::INFINITY, -1.0].repeat(10);
        let strange: Vec<JobRow> =
            (0..).zip(strange).map(|(number, elapsed_s)| job(number, elapsed_s)).collect();
        assert!(of_jobs(&strange).changes.is_empty());
    }
}
