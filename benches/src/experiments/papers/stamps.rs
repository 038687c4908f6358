//! Time stamps that processes of a job take as fast as they can: a gap between two of them shows that
//! something else ran.

use std::error::Error;
use std::path::Path;
use std::process::Stdio;
use std::sync::Barrier;
use std::thread;

use polymeter_benches::agent::Running;
use polymeter_benches::clock::now_ns;
use polymeter_benches::histogram::Histogram;
use polymeter_benches::job::{Job, pause};
use polymeter_benches::plan;
use polymeter_benches::table::{say, to_f64};
use polymeter_benches::tool::RunningTool;
use polymeter_proto::period::Period;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::node::SETTLE_NS;
use super::paper::{Cell, Paper};
use super::results::Values;

/// Time stamps of a block, as in the report. Gaps are counted after the block.
const BLOCK: usize = 1_000_000;

/// Shortest gap that another task or a long interrupt causes.
const LONG_NS: u64 = 10_000;

/// Length of the parts of the time in which long gaps are counted.
const PART_NS: u64 = 10_000_000;

/// Work of the processes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Stamps {
    /// Time stamps of each process.
    pub(crate) each: u64,
    pub(crate) on_all_cpus: bool,
    pub(crate) has_barriers: bool,
}

/// Gaps that they saw.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Seen {
    /// Mean time for which a process took stamps.
    wall_s: f64,
    /// Histogram of the gaps in ns: its buckets that are not empty, and the longest gap.
    gaps: (Vec<(usize, u64)>, u64),
    long: u64,
    /// Variance of the number of long gaps in a part of the time, divided by its mean.
    dispersion: f64,
}

/// One process.
#[derive(Debug, Default)]
struct Rank {
    wall_ns: u64,
    gaps: Histogram,
    /// Long gaps in each part of the time.
    parts: Vec<u64>,
}

/// Runs the processes in a job that an agent or a tool samples.
pub(super) fn measure(
    paper: &Paper,
    cell: &Cell,
    (stamps, period_us): (Stamps, Option<u64>),
    scratch: &Path,
) -> Result<Values<'static>, Box<dyn Error>> {
    let job = Job::make_for("papers", 0)?;
    let (mut agent, mut other) = (None, None);
    match (paper.tool(&cell.tool), period_us) {
        (Some(tool), _) => other = Some(tool.start(vec![("CGROUPS", job.cgroups())])?),
        (None, Some(period_us)) => {
            let baseline = plan::baseline(plan::job_metrics(true), Period::from_micros(period_us)?);
            let config = format!("jobs = [\"{}\"]\n{baseline}", job.pattern());
            agent = Some(Running::start(scratch, &config)?);
        }
        (None, None) => {}
    }
    // Without a tool, too, so that the processes start with the machine in the same state.
    pause(SETTLE_NS);
    let mut command = job.command(&std::env::current_exe()?);
    let output = command
        .args(["part", "stamps", &serde_json::to_string(&stamps)?])
        .stderr(Stdio::inherit())
        .output()?;
    agent.map_or(Ok(()), Running::stop)?;
    other.map_or(Ok(()), RunningTool::stop)?;
    if !output.status.success() {
        return Err("the processes that take time stamps failed".into());
    }
    let seen: Seen = serde_json::from_slice(&output.stdout)?;
    let gaps = Histogram::from_filled(&seen.gaps.0, seen.gaps.1);
    let quantile_ns = |part| to_f64(gaps.quantile(part));
    Ok(vec![
        ("wall_s", seen.wall_s),
        ("p50_ns", quantile_ns(0.5)),
        ("p99_ns", quantile_ns(0.99)),
        ("p99_9_ns", quantile_ns(0.999)),
        ("p99_99_ns", quantile_ns(0.9999)),
        ("p99_999_ns", quantile_ns(0.99999)),
        ("p99_9999_ns", quantile_ns(0.999_999)),
        ("most_ns", to_f64(gaps.most())),
        ("long_per_s", to_f64(seen.long) / seen.wall_s),
        ("dispersion", seen.dispersion),
    ])
}

/// Takes the stamps, with a thread for each process, and prints what they saw.
pub(crate) fn take(stamps: Stamps) -> Result<(), Box<dyn Error>> {
    let allowed = sched_getaffinity(None)?;
    let mut cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    if !stamps.on_all_cpus {
        cpus.truncate(1);
    }
    let barrier = Barrier::new(cpus.len());
    let ranks = thread::scope(|scope| {
        let barrier = &barrier;
        let start = |cpu: &usize| {
            let cpu = *cpu;
            scope.spawn(move || rank(cpu, stamps, barrier))
        };
        let threads: Vec<_> = cpus.iter().map(start).collect();
        let ranks = threads.into_iter().map(|thread| thread.join().map_err(|_panic| "a thread broke"));
        ranks.collect::<Result<Vec<Rank>, _>>()
    })?;
    let mut seen = Seen::default();
    let (mut gaps, count) = (Histogram::default(), to_f64(ranks.len() as u64));
    for rank in &ranks {
        gaps.add(&rank.gaps);
        seen.wall_s += to_f64(rank.wall_ns) / 1e9 / count;
        seen.long += rank.parts.iter().sum::<u64>();
        seen.dispersion += dispersion(&rank.parts) / count;
    }
    seen.gaps = (gaps.filled(), gaps.most());
    say(&serde_json::to_string(&seen)?);
    Ok(())
}

fn rank(cpu: usize, stamps: Stamps, barrier: &Barrier) -> Rank {
    let mut only = CpuSet::new();
    only.set(cpu);
    // If the kernel refuses it, the thread may migrate, which makes gaps longer, never shorter.
    sched_setaffinity(None, &only).ok();
    let mut block = vec![0; BLOCK];
    let (mut rank, mut left) = (Rank::default(), stamps.each);
    barrier.wait();
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        let block = block.get_mut(..length).unwrap_or_default();
        block.iter_mut().for_each(|stamp| *stamp = now_ns());
        rank.count(block);
        left -= length as u64;
        if stamps.has_barriers {
            barrier.wait();
        }
    }
    rank
}

impl Rank {
    fn count(&mut self, block: &[u64]) {
        let Some(first_ns) = block.first() else { return };
        for (before_ns, after_ns) in block.iter().zip(block.iter().skip(1)) {
            let gap_ns = after_ns - before_ns;
            self.gaps.record(gap_ns);
            // Blocks follow one another without the time between them.
            let part = usize::try_from((self.wall_ns + before_ns - first_ns) / PART_NS).unwrap_or(usize::MAX);
            if part >= self.parts.len() {
                self.parts.resize(part + 1, 0);
            }
            if gap_ns > LONG_NS
                && let Some(count) = self.parts.get_mut(part)
            {
                *count += 1;
            }
        }
        self.wall_ns += block.last().map_or(0, |last_ns| last_ns - first_ns);
    }
}

/// 1 for events that do not depend on each other (Poisson), more if they come in clusters, less if they are
/// regular; 0 without events.
fn dispersion(counts: &[u64]) -> f64 {
    let length = to_f64(counts.len() as u64);
    let mean = to_f64(counts.iter().sum()) / length;
    let squares: f64 = counts.iter().map(|count| (to_f64(*count) - mean).powi(2)).sum();
    if mean > 0.0 { squares / length / mean } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use polymeter_benches::statistics::Random;

    use super::*;

    #[test]
    fn gaps_are_counted_across_blocks() {
        let mut rank = Rank::default();
        rank.count(&[100, 120, 140, 20_140]);
        rank.count(&[1_000_000, 1_000_020, 21_000_020]);
        assert_eq!((rank.gaps.total(), rank.gaps.most(), rank.wall_ns), (5, 20_000_000, 20_020_060));
        assert_eq!(rank.parts, [2]);
        rank.count(&[5, 10_000_005]);
        assert_eq!(rank.parts, [2, 0, 1]);
    }

    #[test]
    fn the_dispersion_tells_independent_events_from_clusters_and_regular_ones() {
        let mut random = Random::new(5);
        let mut counts = vec![0; 10_000];
        for _ in 0..50_000 {
            counts[usize::try_from(random.below(10_000)).unwrap()] += 1;
        }
        assert!((dispersion(&counts) - 1.0).abs() < 0.06, "{}", dispersion(&counts));
        assert!(dispersion(&[5; 100]) < 1e-9 && dispersion(&[]) < 1e-9);
        // All in one tenth of the time: the variance is 10 * 90 * 25 / 100 = 225 of 25.
        let clustered: Vec<u64> = (0..100).map(|part| if part % 10 == 0 { 50 } else { 0 }).collect();
        assert!((dispersion(&clustered) - 45.0).abs() < 1e-9, "{}", dispersion(&clustered));
    }

    #[test]
    fn all_stamps_are_taken_with_and_without_barriers() {
        for has_barriers in [false, true] {
            let stamps = Stamps { each: 1_500_001, on_all_cpus: true, has_barriers };
            let barrier = Barrier::new(2);
            let ranks = thread::scope(|scope| {
                let threads = [0, 1].map(|cpu| {
                    scope.spawn({
                        let barrier = &barrier;
                        move || rank(cpu, stamps, barrier)
                    })
                });
                threads.map(|thread| thread.join().unwrap())
            });
            for rank in ranks {
                // Each of the two blocks has one gap less than stamps.
                assert_eq!(rank.gaps.total(), 1_499_999);
                assert!(rank.wall_ns > 1_500_000);
            }
        }
    }
}
