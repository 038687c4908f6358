//! The deadlines that the agent keeps at 1 ms on a busy node: alone, with the job's call stacks, with all
//! sources of the slow lane, and while one of them hangs. Beside it those that a timer without reads and the
//! bare reads keep: what the machine allows.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::Stdio;

use polymeter_agent::sources::{KINDS, Lane, online_cpus};
use polymeter_benches::agent::Running;
use polymeter_benches::bare::Bare;
use polymeter_benches::job::{Job, pause};
use polymeter_benches::laid_out::{Hardware, LaidOut};
use polymeter_benches::plan;
use polymeter_benches::process::KilledOnDrop;
use polymeter_benches::statistics::Random;
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::catalogue;
use polymeter_proto::ledger::Tally;
use polymeter_proto::period::Period;

/// Time for which the agent runs before the measurement: the driver of the GPUs is loaded and asked
/// meanwhile.
const SETTLE_NS: i64 = 5_000_000_000;

/// Longest time for which the source hangs; that of a short run is half of it.
const HANG_S: u64 = 10;

/// GPUs and adapters of the node.
const GPUS: usize = 8;
const ADAPTERS: usize = 4;

/// Names of the sources that are read at 1 ms begin with one of these.
const FAST: [&str; 3] = ["v1/", "v2/", "perf/"];

/// First GPU.
const HANGING: &str = "nvidia/0";

#[derive(Debug, Clone, Copy)]
pub(super) struct Runs {
    pub(super) seconds: u64,
    /// Each round runs every subject once.
    pub(super) rounds: u32,
    pub(super) seed: u64,
    pub(super) slow_period: Period,
}

/// What runs at 1 ms: a timer alone, the bare reads, or an agent with some of its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Timer,
    Bare,
    Alone,
    WithStacks,
    WithSlow,
    Hanging,
}

const SUBJECTS: [Subject; 6] =
    [Subject::Timer, Subject::Bare, Subject::Alone, Subject::WithStacks, Subject::WithSlow, Subject::Hanging];

/// Deadlines of a run, or the sums over several.
#[derive(Debug, Default)]
struct Kept {
    fast: Tally,
    slow: Tally,
    hanging: Tally,
    cpu_s: f64,
    slow_sources: usize,
}

/// Counts of the sources of an agent by the job, if any, and the source's name.
type Tallies = BTreeMap<(Option<String>, String), Tally>;

/// Runs the subjects in random order, and prints the deadlines that each has kept.
pub(super) fn compare(runs: Runs) -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let jobs = [Job::make_for("hanging", 0)?];
    let hardware = Hardware { cpus: online_cpus(Path::new("/"))?.len(), gpus: GPUS, adapters: ADAPTERS };
    let mut sums = SUBJECTS.map(|subject| (subject, Kept::default()));
    let mut random = Random::new(runs.seed);
    for _ in 0..runs.rounds {
        let mut turns: Vec<_> = sums.iter_mut().collect();
        random.shuffle(&mut turns);
        for (subject, kept) in turns {
            let busy = keep_busy(&jobs[0], runs.seconds)?;
            match subject {
                Subject::Timer => kept.run_bare(runs, &[])?,
                Subject::Bare => kept.run_bare(runs, &jobs)?,
                Subject::Alone | Subject::WithStacks | Subject::WithSlow | Subject::Hanging => {
                    kept.run_agent(*subject, runs, hardware, &jobs[0], scratch.path())?
                }
            }
            drop(busy);
        }
    }
    report(runs, &sums);
    Ok(())
}

/// Starts a thread of the job on each CPU that reads the clock.
fn keep_busy(job: &Job, seconds: u64) -> Result<KilledOnDrop, Box<dyn Error>> {
    let mut command = job.command(&std::env::current_exe()?);
    let seconds = seconds + u64::try_from(SETTLE_NS / 1_000_000_000)? + 1;
    command.args(["part", "clock", &seconds.to_string()]).env("SLURM_JOB_GPUS", "0,1").stdout(Stdio::null());
    Ok(KilledOnDrop(command.spawn()?))
}

impl Kept {
    /// Runs the bare reads of the jobs' files and perf events, or without jobs a timer alone, and adds their
    /// deadlines.
    fn run_bare(&mut self, runs: Runs, jobs: &[Job]) -> Result<(), Box<dyn Error>> {
        let outcome = Bare::of(Period::MILLISECOND, runs.seconds, true, jobs).start()?.outcome()?;
        self.fast.due += outcome.due;
        self.fast.missed += outcome.due.saturating_sub(outcome.kept);
        self.fast.taken += outcome.kept;
        self.cpu_s += outcome.cpu_s;
        Ok(())
    }

    fn run_agent(
        &mut self,
        subject: Subject,
        runs: Runs,
        hardware: Hardware,
        job: &Job,
        scratch: &Path,
    ) -> Result<(), Box<dyn Error>> {
        // It has the processes that exist when it is laid out.
        let node = LaidOut::new(hardware)?;
        let config = config(subject, runs.slow_period, &node, job);
        let running = Running::start(scratch, &config)?;
        pause(SETTLE_NS);
        let (before, cpu_s) = (tallies(&running)?, running.cpu_s()?);
        let hang_s = if subject == Subject::Hanging { HANG_S.min(runs.seconds.div_ceil(2)) } else { 0 };
        if hang_s > 0 {
            node.set_hanging(true)?;
            pause(i64::try_from(hang_s)? * 1_000_000_000);
            node.set_hanging(false)?;
        }
        pause(i64::try_from(runs.seconds - hang_s)? * 1_000_000_000);
        let after = tallies(&running)?;
        self.cpu_s += running.cpu_s()? - cpu_s;
        if hang_s > 0 && !node.has_hung() {
            return Err("no read has hung".into());
        }
        self.add(&before, &after)
    }

    /// Adds the deadlines between two times.
    fn add(&mut self, before: &Tallies, after: &Tallies) -> Result<(), Box<dyn Error>> {
        let mut slow_sources = 0;
        for (key, tally) in after {
            let earlier = before.get(key).copied().unwrap_or_default();
            let is_fast = FAST.iter().any(|head| key.1.starts_with(head)) && key.0.is_some();
            let sum = match (is_fast, key.1.as_str()) {
                (true, _) => &mut self.fast,
                (false, HANGING) => &mut self.hanging,
                (false, _) => &mut self.slow,
            };
            slow_sources += usize::from(!is_fast);
            sum.due += tally.due.saturating_sub(earlier.due);
            sum.taken += tally.taken.saturating_sub(earlier.taken);
            sum.late += tally.late.saturating_sub(earlier.late);
            sum.missed += tally.missed.saturating_sub(earlier.missed);
        }
        self.slow_sources = self.slow_sources.max(slow_sources);
        if self.fast.due == 0 { Err("the agent does not sample the job".into()) } else { Ok(()) }
    }
}

fn tallies(running: &Running) -> Result<Tallies, Box<dyn Error>> {
    let mut tallies = Tallies::new();
    for subject in running.connect()?.status()?.subjects {
        for source in subject.sources {
            tallies.entry((subject.job.clone(), source.name)).or_default().add(&source.tally);
        }
    }
    Ok(tallies)
}

/// Configuration with all metrics of the job's cgroup at 1 ms, and call stacks or all metrics of the slow lane
/// as the subject says.
fn config(subject: Subject, slow_period: Period, node: &LaidOut, job: &Job) -> String {
    let baseline = plan::baseline(plan::job_metrics(true), Period::MILLISECOND);
    let mut lines = String::new();
    if subject == Subject::WithStacks {
        lines += "\"stacks.cpu\" = \"10ms\"\n";
    }
    let has_slow = matches!(subject, Subject::WithSlow | Subject::Hanging);
    for metric in catalogue::all().filter(|_| has_slow) {
        let mut slow_kinds = KINDS.iter().filter(|kind| kind.lane() == Lane::Slow);
        let origin = metric.origins.first();
        if slow_kinds.any(|kind| origin.is_some_and(|origin| origin.kind() == kind.name())) {
            lines += &format!("\"{}\" = \"{slow_period}\"\n", metric.name);
        }
    }
    format!("root = \"{}\"\njobs = [\"{}\"]\n{baseline}{lines}", node.root().display(), job.pattern())
}

fn report(runs: Runs, sums: &[(Subject, Kept)]) {
    say(&format!(
        "{} rounds of {} s in random order, seed {}; a thread of the job on each CPU reads the clock; the job's files and \
         perf events at 1 ms, sources of the slow lane at {} on a laid-out node with {GPUS} GPUs and {ADAPTERS} \
         adapters; the first GPU hangs for {} s of a run",
        runs.rounds,
        runs.seconds,
        runs.seed,
        runs.slow_period,
        HANG_S.min(runs.seconds.div_ceil(2))
    ));
    say("");
    let percent = |tally: &Tally| match tally.due {
        0 => "-".to_owned(),
        due => format!("{:.3} %", 100.0 - 100.0 * to_f64(tally.missed) / to_f64(due)),
    };
    let rows: Vec<_> = sums
        .iter()
        .map(|(subject, kept)| {
            let mut all = kept.fast;
            all.add(&kept.slow);
            all.add(&kept.hanging);
            let name = match subject {
                Subject::Timer => "none: a timer of 1 ms",
                Subject::Bare => "the job's files: bare reads",
                Subject::Alone => "the job at 1 ms",
                Subject::WithStacks => "and its call stacks at 10 ms",
                Subject::WithSlow => "and all slow sources",
                Subject::Hanging => "and one of them hangs",
            };
            let seconds = to_f64(runs.seconds * u64::from(runs.rounds));
            let late = match subject {
                Subject::Timer | Subject::Bare => "-".to_owned(),
                Subject::Alone | Subject::WithStacks | Subject::WithSlow | Subject::Hanging => {
                    format!("{:.3} %", 100.0 * to_f64(kept.fast.late) / to_f64(kept.fast.due.max(1)))
                }
            };
            vec![
                name.to_owned(),
                kept.slow_sources.to_string(),
                all.due.to_string(),
                percent(&all),
                percent(&kept.fast),
                percent(&kept.slow),
                percent(&kept.hanging),
                late,
                format!("{:.2} %", 100.0 * kept.cpu_s / seconds),
            ]
        })
        .collect();
    let head = [
        "sources",
        "others than the job's files",
        "deadlines due",
        "kept of all",
        "of those at 1 ms",
        "of the slow lane",
        "of the hanging GPU",
        "late at 1 ms",
        "agent CPU",
    ];
    table::table(&head, &rows);
}
