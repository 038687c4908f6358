//! Runs many short jobs as a scheduler does, and measures the delay of `polymeter job start` in a prolog.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polymeter_agent::cgroups::Mounts;
use polymeter_agent::clock::realtime_us;
use polymeter_benches::agent::Running;
use polymeter_benches::job::{Job, pause, write};
use polymeter_benches::process::KilledOnDrop;
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::series::{JobHandle, MetricId, SeriesDescriptor, SeriesId, ShapeId};
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::Frame;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Measures many short jobs: final samples, growth, delay of a prolog.
///
/// Needs root, for cgroups. Each job creates its cgroups one hierarchy after the other, runs for a tenth of
/// a second, and has its cgroups removed --removed-after its end. All periods are a day, so that all
/// samples are those at a job's start and end. The share is the CPU time in the final sample divided by the
/// CPU time that the kernel reports before the cgroup is removed.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of jobs.
    #[arg(long, default_value_t = 10_000)]
    jobs: u32,
    /// Number of jobs that start each second.
    #[arg(long, default_value_t = 50)]
    per_second: u32,
    /// Delay from a job's end to the removal of its cgroups, in microseconds: 500 to 10000 under Slurm.
    #[arg(long, default_value_t = 10_000, value_name = "MICROSECONDS")]
    removed_after: u32,
    /// Keep each CPU busy with a program in its own session.
    #[arg(long)]
    busy: bool,
    /// Number of measurements of each latency.
    #[arg(long, default_value_t = 20)]
    times: usize,
    /// Run everything for a short time, as a functional check.
    #[arg(long)]
    quick: bool,
}

/// Enters its cgroups, computes a little, and sleeps.
const WORK: &str = "for d; do echo $$ > $d/cgroup.procs; done; i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; exec sleep 0.08";

/// Keeps a CPU busy, in its own session like another job.
const BURN: &str = "while :; do :; done";

/// Jobs between two reports of the agent's size.
const LOOK: u32 = 1_000;

/// `cpu.usage` has the job's CPU time in either cgroup version.
const BASELINE: &str =
    "[baseline]\n\"cpu.usage\" = \"1d\"\n\"memory.current\" = \"1d\"\n\"pids.current\" = \"1d\"\n";

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.quick {
        (arguments.jobs, arguments.times) = (100, 3);
    }
    table::machine();
    let scratch = tempfile::tempdir()?;
    flood(&arguments, scratch.path())?;
    say("");
    latencies(&arguments, scratch.path())
}

fn burn() -> std::io::Result<KilledOnDrop> {
    Command::new("setsid").args(["sh", "-c", BURN]).stdin(Stdio::null()).spawn().map(KilledOnDrop)
}

/// A job that runs, or that has ended and will be removed.
struct Short {
    number: u32,
    job: Job,
    process: Child,
    ended_us: Option<i64>,
}

fn flood(arguments: &Arguments, scratch: &Path) -> Result<(), Box<dyn Error>> {
    let mounts = Mounts::read(Path::new("/"))?;
    let parent = format!("polymeter_jobs_{}", std::process::id());
    let _parent = Job::make(&mounts, &parent)?;
    let agent = Running::start(scratch, &format!("jobs = [\"{parent}/job_{{job}}\"]\n{BASELINE}"))?;
    let cpus = if arguments.busy { std::thread::available_parallelism()?.get() } else { 0 };
    let _busy = (0..cpus).map(|_| burn()).collect::<Result<Vec<_>, _>>()?;
    let removed_after_us = i64::from(arguments.removed_after);
    // The polling interval: a tenth of the delay of the removal, at most 1 ms.
    let look_ns = i64::from(arguments.removed_after).saturating_mul(100).min(1_000_000);
    let cpu_before_s = agent.cpu_s()?;
    let (mut running, mut used, mut seen, mut sizes) =
        (Vec::new(), BTreeMap::new(), Seen::default(), Vec::new());
    let began_us = realtime_us();
    for number in 0..arguments.jobs {
        let due_us = began_us + i64::from(number) * 1_000_000 / i64::from(arguments.per_second);
        while realtime_us() < due_us || running.len() > 500 {
            tend(&mut running, &mut used, removed_after_us)?;
            pause(look_ns);
        }
        let job = Job::make(&mounts, &format!("{parent}/job_{number}"))?;
        let process = Command::new("sh")
            .args(["-c", WORK, "sh"])
            .args(job.directories())
            .stdin(Stdio::null())
            .spawn()?;
        running.push(Short { number, job, process, ended_us: None });
        agent.frames().for_each(|frame| seen.learn(&frame));
        if number % LOOK == 0 {
            sizes.push(vec![number.to_string(), size(&agent, scratch)?]);
        }
    }
    let took_s = to_f64((realtime_us() - began_us).unsigned_abs()) / 1e6;
    while !running.is_empty() {
        tend(&mut running, &mut used, removed_after_us)?;
        pause(look_ns);
    }
    pause(3_000_000_000);
    let cpu_s = agent.cpu_s()? - cpu_before_s;
    agent.frames().for_each(|frame| seen.learn(&frame));
    sizes.push(vec![arguments.jobs.to_string(), size(&agent, scratch)?]);
    seen.report(arguments.jobs, &used);
    let jobs = f64::from(arguments.jobs);
    say(&format!(
        "{:.1} jobs per second; {:.2} ms of the agent's CPU time per job",
        jobs / took_s,
        cpu_s * 1e3 / jobs
    ));
    say("");
    table::table(&["jobs so far", "the agent's descriptors, resident memory"], &sizes);
    Ok(())
}

/// Detects the ends of jobs, and removes jobs that ended long enough ago.
fn tend(
    running: &mut Vec<Short>,
    used: &mut BTreeMap<String, u64>,
    removed_after_us: i64,
) -> Result<(), Box<dyn Error>> {
    for short in running.iter_mut().filter(|short| short.ended_us.is_none()) {
        if short.process.try_wait()?.is_some() {
            short.ended_us = Some(realtime_us());
        }
    }
    let now_us = realtime_us();
    running.retain(|short| {
        let is_due = short.ended_us.is_some_and(|ended_us| ended_us + removed_after_us <= now_us);
        if is_due {
            // Dropping the job removes its cgroups.
            used.insert(short.number.to_string(), used_ns(short.job.directories()));
        }
        !is_due
    });
    Ok(())
}

/// CPU time of a job, from the first of its cgroups that reports it.
fn used_ns(directories: &[PathBuf]) -> u64 {
    let v2 = directories.iter().find_map(|path| fs::read_to_string(path.join("cpu.stat")).ok());
    let usec =
        v2.and_then(|text| text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok()));
    usec.map(|usec: u64| usec * 1_000)
        .or_else(|| {
            let text =
                directories.iter().find_map(|path| fs::read_to_string(path.join("cpuacct.usage")).ok())?;
            text.trim().parse().ok()
        })
        .unwrap_or_default()
}

fn size(agent: &Running, scratch: &Path) -> Result<String, Box<dyn Error>> {
    let status = agent.connect()?.status()?;
    let pid = agent_at(&scratch.join("agent.sock"))?;
    let descriptors = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()))?.count();
    Ok(format!("{descriptors}, {:.1} MiB", to_f64(status.counts.resident_bytes) / f64::from(1 << 20)))
}

/// Id of the process that listens on a socket.
fn agent_at(socket: &Path) -> Result<Pid, Box<dyn Error>> {
    let stream = std::os::unix::net::UnixStream::connect(socket)?;
    Ok(rustix::net::sockopt::socket_peercred(stream)?.pid)
}

#[derive(Default)]
struct Seen {
    jobs: BTreeMap<JobHandle, String>,
    usage: Option<MetricId>,
    series: BTreeMap<SeriesId, SeriesDescriptor>,
    shapes: BTreeMap<ShapeId, Vec<SeriesId>>,
    /// Number of CPU time samples and last value, by the job's id.
    samples: BTreeMap<String, (usize, u64)>,
}

impl Seen {
    fn learn(&mut self, frame: &Frame) {
        for entry in &frame.dictionary {
            match entry {
                Entry::Session(_) | Entry::Function(..) | Entry::Stack(..) => {}
                Entry::Metric(id, metric) if metric.name.as_str() == "cpu.usage" => self.usage = Some(*id),
                Entry::Metric(..) => {}
                Entry::Job(handle, job) => drop(self.jobs.insert(*handle, job.job_id.to_string())),
                Entry::Series(id, series) => drop(self.series.insert(*id, series.clone())),
                Entry::Shape(id, shape) => drop(self.shapes.insert(*id, shape.series.clone())),
            }
        }
        for block in &frame.blocks {
            for (position, values) in block.iter() {
                let series = self.shapes.get(&block.shape).and_then(|series| series.get(position));
                let Some(series) = series.and_then(|id| self.series.get(id)) else { continue };
                let job = series.job.and_then(|handle| self.jobs.get(&handle));
                if let (Some(job), Some(last), true) = (job, values.last(), self.usage == Some(series.metric))
                {
                    let sample = self.samples.entry(job.clone()).or_default();
                    *sample = (sample.0 + values.len(), *last);
                }
            }
        }
    }

    fn report(&self, jobs: u32, used: &BTreeMap<String, u64>) {
        let mut shares: Vec<f64> = used
            .iter()
            .filter_map(|(job, used)| Some(to_f64(self.samples.get(job)?.1) * 100.0 / to_f64(*used)))
            .collect();
        shares.sort_by(f64::total_cmp);
        let share = |part: usize| {
            let place = (shares.len() * part / 1000).min(shares.len().saturating_sub(1));
            shares.get(place).map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1} %"))
        };
        let with = |least: usize| self.samples.values().filter(|(count, _)| *count >= least).count();
        table::table(
            &[
                "jobs",
                "seen",
                "with two readings or more",
                "of its CPU time the last has: least",
                "one in a thousand",
                "one in a hundred",
                "median",
            ],
            &[vec![
                jobs.to_string(),
                with(1).to_string(),
                with(2).to_string(),
                share(0),
                share(1),
                share(10),
                share(500),
            ]],
        );
    }
}

/// Measures the delay of a prolog: with a running agent, and with an agent that has to be started.
fn latencies(arguments: &Arguments, scratch: &Path) -> Result<(), Box<dyn Error>> {
    let (config, socket) = (scratch.join("prolog.toml"), scratch.join("prolog/agent.sock"));
    write(&config, &format!("collector = \"ipc://{}/absent\"\n{BASELINE}", scratch.display()))?;
    let start = |job: usize| -> Result<f64, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?.with_file_name("polymeter"));
        command.args(["job", "start", "--strict", "--exit-when-idle", "--job"]).arg(job.to_string());
        command.arg("--socket").arg(&socket).arg("--config").arg(&config).env_clear();
        let began_us = realtime_us();
        let status = command.status()?;
        let took_us = (realtime_us() - began_us).unsigned_abs();
        if status.success() {
            Ok(to_f64(took_us) / 1e3)
        } else {
            Err(format!("{command:?}: {status}").into())
        }
    };
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for turn in 0..arguments.times {
        without.push(start(2 * turn)?);
        with.push(start(2 * turn + 1)?);
        let agent = agent_at(&socket)?;
        kill_process(agent, Signal::KILL)?;
        while test_kill_process(agent).is_ok() {
            pause(Duration::from_millis(1).subsec_nanos().into());
        }
    }
    let rows = [row("an agent runs", &mut with), row("one is started", &mut without)];
    table::table(&["`polymeter job start`", "median ms", "most ms"], &rows);
    Ok(())
}

fn row(what: &str, times: &mut [f64]) -> Vec<String> {
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times.get(times.len().saturating_sub(1) * part / 2).copied().unwrap_or_default();
    vec![what.to_owned(), format!("{:.1}", at(1)), format!("{:.1}", at(2))]
}
