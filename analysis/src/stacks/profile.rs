//! Reads the call stacks of a job.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use polymeter_proto::catalogue::PROCESS_RANK;
use polymeter_store::StoreError;
use polymeter_store::reader::{Read, SeriesScope, StackIntervalRow};

use super::stack_names::{Function, Stacks};
use super::tree::{Tree, Weight};

/// Samples of time on a CPU.
pub const CPU: &str = "stacks.cpu";

/// Samples of time in which threads do not run.
pub const WAIT: &str = "stacks.wait";

/// Pairs of a process and a stack: about 50 MiB. The processes of others on a node count as one.
const PAIRS_MAX: usize = 500_000;

/// Nanoseconds since the epoch, each with its node, or none for all.
pub type Spans = Vec<(Option<String>, Range<i64>)>;

#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// None for [`CPU`], or another one if the job has no samples of it.
    pub metric: Option<String>,
    /// None for all.
    pub process: Option<u32>,
    /// Each with its node, as those of a rank; none for all.
    pub processes: Option<BTreeSet<(String, u32)>>,
    /// Time of the samples. The spans must not overlap on a node.
    pub spans: Spans,
}

/// Node and id of a process; none for all that are not told apart.
pub type ProcessId = (String, Option<u32>);

/// Grouped by node and process id.
pub type Ranks = BTreeMap<(String, u32), u32>;

/// Reads the ranks of the processes of a job, as far as they are known.
pub fn ranks(reader: &mut dyn Read, job_key: i64) -> Result<Ranks, StoreError> {
    let mut ranks = Ranks::new();
    for series in reader.series(SeriesScope::Job(job_key))? {
        let number = |label| series.labels.get(label).and_then(|text: &str| text.parse().ok());
        if series.metric == PROCESS_RANK.name
            && let (Some(process), Some(rank)) = (number("process"), number("rank"))
        {
            ranks.insert((series.node.clone(), process), rank);
        }
    }
    Ok(ranks)
}

#[derive(Debug, Default)]
pub struct Profile {
    pub metric: String,
    /// Sums over the intervals, of all processes on the nodes.
    pub intervals: StackIntervalRow,
    pub metrics: Vec<String>,
    /// Ranks as far as the caller knows them.
    pub ranks: Ranks,
    stacks: Stacks,
    by_process: BTreeMap<ProcessId, HashMap<i64, Weight>>,
}

impl Profile {
    pub fn read(reader: &mut dyn Read, job_key: i64, choice: &Choice) -> Result<Self, StoreError> {
        let mut by_metric: BTreeMap<String, StackIntervalRow> = BTreeMap::new();
        for (node, span_ns) in &choice.spans {
            for row in reader.stack_intervals(job_key, node.as_deref(), span_ns)? {
                match by_metric.get_mut(&row.metric) {
                    Some(sums) => add(sums, &row),
                    None => drop(by_metric.insert(row.metric.clone(), row)),
                }
            }
        }
        let metrics: Vec<String> = by_metric.keys().cloned().collect();
        let usual =
            || if metrics.iter().any(|metric| metric == CPU) { None } else { metrics.first().cloned() };
        let metric = choice.metric.clone().or_else(usual).unwrap_or_else(|| CPU.to_owned());
        let intervals = by_metric.remove(&metric).unwrap_or_default();
        let mut profile = Self { metric, metrics, intervals, ..Self::default() };
        if profile.intervals.samples > 0 {
            profile.read_samples(reader, job_key, choice)?;
        }
        Ok(profile)
    }

    fn read_samples(
        &mut self,
        reader: &mut dyn Read,
        job_key: i64,
        choice: &Choice,
    ) -> Result<(), StoreError> {
        let mut pairs = 0;
        for (node, span_ns) in &choice.spans {
            reader.stacks(job_key, node.as_deref(), span_ns, |row| {
                let is_chosen = choice.process.is_none_or(|process| process == row.process)
                    && choice
                        .processes
                        .as_ref()
                        .is_none_or(|processes| processes.contains(&(row.node.clone(), row.process)));
                if row.metric == self.metric && is_chosen {
                    let process = (pairs < PAIRS_MAX).then_some(row.process);
                    let stacks = self.by_process.entry((row.node, process)).or_default();
                    let weight = stacks.entry(row.stack_id).or_insert_with(|| {
                        pairs += 1;
                        Weight::default()
                    });
                    *weight += Weight { samples: row.samples, time_us: row.time_us };
                }
                Ok::<_, StoreError>(())
            })?;
        }
        reader.stack_nodes(job_key, |row| {
            self.stacks.add(row);
            Ok(())
        })
    }

    pub fn is_empty(&self) -> bool {
        self.by_process.is_empty()
    }

    pub fn tree(&self) -> Tree {
        let mut sums: HashMap<i64, Weight> = HashMap::new();
        for (stack_id, weight) in self.by_process.values().flatten() {
            *sums.entry(*stack_id).or_default() += *weight;
        }
        Tree::of(&self.stacks, sorted(&sums))
    }

    /// Those with the most time come first.
    pub fn trees(&self) -> Vec<(&ProcessId, Tree)> {
        let tree = |(process, stacks)| (process, Tree::of(&self.stacks, sorted(stacks)));
        let mut trees: Vec<(&ProcessId, Tree)> = self.by_process.iter().map(tree).collect();
        trees.sort_by_key(|(_, tree)| std::cmp::Reverse(tree.total().time_us));
        trees
    }

    pub fn own_times(&self) -> BTreeMap<&ProcessId, HashMap<&Function, Weight>> {
        let mut times = BTreeMap::new();
        for (process, stacks) in &self.by_process {
            let mut of_process: HashMap<&Function, Weight> = HashMap::new();
            for (stack_id, weight) in stacks {
                if let Some(function) = self.stacks.innermost(*stack_id) {
                    *of_process.entry(function).or_default() += *weight;
                }
            }
            times.insert(process, of_process);
        }
        times
    }

    /// Processes that are told apart.
    pub fn processes(&self) -> usize {
        self.by_process.keys().filter(|(_, process)| process.is_some()).count()
    }
}

/// Sorted by their ids, so that the same samples give the same tree.
fn sorted(stacks: &HashMap<i64, Weight>) -> Vec<(i64, Weight)> {
    let mut sorted: Vec<(i64, Weight)> =
        stacks.iter().map(|(stack_id, weight)| (*stack_id, *weight)).collect();
    sorted.sort_unstable_by_key(|(stack_id, _)| *stack_id);
    sorted
}

fn add(sums: &mut StackIntervalRow, row: &StackIntervalRow) {
    sums.first_ns = sums.first_ns.min(row.first_ns);
    sums.last_ns = sums.last_ns.max(row.last_ns);
    sums.period_us = sums.period_us.max(row.period_us);
    for (sum, more) in [
        (&mut sums.samples, row.samples),
        (&mut sums.lost, row.lost),
        (&mut sums.throttled, row.throttled),
        (&mut sums.cut, row.cut),
        (&mut sums.unresolved, row.unresolved),
    ] {
        *sum = sum.saturating_add(more);
    }
}
