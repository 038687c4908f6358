//! The agent's whole cost of gathering against the bare reads of the same files with the same timer, interleaved.
//!
//! `cargo run --release --bin gather -- [--quick] [--periods 1ms,100us]`. Needs root, for the job's cgroups.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clap::Parser;
use polymeter_agent::control::Answer;
use polymeter_agent::jobs::hierarchy::Mounts;
use polymeter_agent::jobs::open::online_cpus;
use polymeter_agent::source::Reading;
use polymeter_agent::source::perf::{PerfSource, Target};
use polymeter_benches::job::{Job, pause, write};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::catalogue::{self, Origin};
use polymeter_proto::ledger::Tally;
use polymeter_proto::period::Period;
use rustix::fd::AsFd;

#[derive(Debug, Parser)]
struct Arguments {
    /// Seconds of each run.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// How often agent and bare reads take turns.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// The periods.
    #[arg(long, value_delimiter = ',', default_value = "1s,100ms,10ms,1ms,100us")]
    periods: Vec<Period>,
    /// Whether the job works while it is sampled, or sleeps.
    #[arg(long)]
    idle: bool,
    /// One short round at 1 ms, to see that it works.
    #[arg(long)]
    quick: bool,
    /// Run the bare reads of a cgroup: what this program calls itself with.
    #[arg(long, hide = true, num_args = 2.., value_name = "PERIOD SECONDS DIRECTORY")]
    bare: Vec<String>,
}

/// Software events that every machine has.
const EVENTS: [&str; 8] = [
    "cpu_clock",
    "task_clock",
    "page_faults",
    "page_faults_minor",
    "page_faults_major",
    "context_switches",
    "cpu_migrations",
    "alignment_faults",
];

/// What one run cost and kept.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    cpu_s: f64,
    seconds: f64,
    due: u64,
    kept: u64,
    late: u64,
    resident_kib: u64,
    bytes: u64,
    values: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = Arguments::parse();
    if let [period, seconds, directories @ ..] = arguments.bare.as_slice() {
        return bare(period.parse()?, seconds.parse()?, directories);
    }
    if arguments.quick {
        (arguments.seconds, arguments.rounds, arguments.periods) = (2, 1, vec!["1ms".parse()?]);
    }
    table::machine();
    let mut job =
        Job::make(&Mounts::read(Path::new("/"))?, &format!("polymeter_gather_{}", std::process::id()))?;
    let scratch = tempfile::tempdir()?;
    if !arguments.idle {
        job.work(&scratch.path().join("file"))?;
    }
    let mut rows = Vec::new();
    for period in &arguments.periods {
        let (mut agents, mut bares) = (Vec::new(), Vec::new());
        for _ in 0..arguments.rounds {
            agents.push(with_agent(*period, arguments.seconds, &job, scratch.path())?);
            bares.push(with_bare(*period, arguments.seconds, &job)?);
        }
        let (agent, bare) = (sum(&agents), sum(&bares));
        let percent = |run: &Run| format!("{:.2} %", 100.0 * run.cpu_s / run.seconds);
        let share = |part: u64, of: u64| {
            if of == 0 { "-".to_owned() } else { format!("{:.3} %", 100.0 * to_f64(part) / to_f64(of)) }
        };
        rows.push(vec![
            period.to_string(),
            to_f64(agent.values / u64::from(arguments.rounds).max(1)).to_string(),
            percent(&agent),
            percent(&bare),
            format!("{:.2}", agent.cpu_s / bare.cpu_s.max(1e-9)),
            share(agent.kept, agent.due),
            share(bare.kept, bare.due),
            share(agent.late, agent.due),
            format!("{:.1} MiB", to_f64(agent.resident_kib) / 1024.0),
            format!("{:.2}", to_f64(agent.bytes) / to_f64(agent.values.max(1))),
        ]);
    }
    say(&format!(
        "{} rounds of {} s; the job {}; CPU in percent of one core, all threads",
        arguments.rounds,
        arguments.seconds,
        if arguments.idle { "sleeps" } else { "works" }
    ));
    say("");
    table::table(
        &[
            "period",
            "values a run",
            "agent CPU",
            "bare CPU",
            "ratio",
            "agent kept",
            "bare kept",
            "agent late",
            "agent RSS",
            "bytes per value",
        ],
        &rows,
    );
    Ok(())
}

fn sum(runs: &[Run]) -> Run {
    runs.iter().fold(Run::default(), |sum, run| Run {
        cpu_s: sum.cpu_s + run.cpu_s,
        seconds: sum.seconds + run.seconds,
        due: sum.due + run.due,
        kept: sum.kept + run.kept,
        late: sum.late + run.late,
        resident_kib: sum.resident_kib.max(run.resident_kib),
        bytes: sum.bytes + run.bytes,
        values: sum.values + run.values,
    })
}

/// One run of the agent as users run it, with a collector that stores nothing but answers.
fn with_agent(period: Period, seconds: u64, job: &Job, scratch: &Path) -> Result<Run, Box<dyn Error>> {
    let (endpoint, socket) = (format!("ipc://{}/collector", scratch.display()), scratch.join("agent.sock"));
    let context = zmq::Context::new();
    let collector = context.socket(zmq::ROUTER)?;
    collector.bind(&endpoint)?;
    let name = job
        .directories()
        .first()
        .and_then(|directory| directory.file_name())
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let (head, tail) = name.rsplit_once('_').unwrap_or((name, ""));
    let mut config = format!(
        "collector = \"{endpoint}\"\nsocket = \"{}\"\njobs = [\"{head}_{{job}}\"]\n[baseline]\n\"cpu.usage\" = \"{period}\"\n\"cpu.user\" = \"{period}\"\n\"cpu.system\" = \"{period}\"\n",
        socket.display()
    );
    for metric in stat_metrics() {
        config.push_str(&format!("\"{metric}\" = \"{period}\"\n"));
    }
    for event in EVENTS {
        config.push_str(&format!("\"perf.{event}\" = \"{period}\"\n"));
    }
    let path = scratch.join("agent.toml");
    write(&path, &config)?;
    let program = std::env::current_exe()?.with_file_name("polymeter-agent");
    let mut agent = Command::new(&program)
        .arg("--config")
        .arg(&path)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}; run `cargo build --release` first", program.display()))?;
    let answer = |wait_ns: i64| answer_for(&collector, wait_ns);
    answer(1_500_000_000)?;
    let before = view(&agent, &socket, tail)?;
    let bytes = answer(i64::try_from(seconds)? * 1_000_000_000)?;
    let after = view(&agent, &socket, tail)?;
    agent.kill()?;
    agent.wait()?;
    Ok(Run {
        cpu_s: after.cpu_s - before.cpu_s,
        seconds: after.seconds - before.seconds,
        due: after.due - before.due,
        kept: after.kept - before.kept,
        late: after.late - before.late,
        resident_kib: after.resident_kib,
        values: after.kept - before.kept,
        bytes,
    })
}

/// The lines of memory.stat that a job of this machine has.
fn stat_metrics() -> Vec<&'static str> {
    let file = |path: &str| path == "memory.stat";
    let of_stat = catalogue::all().filter(|metric| {
        metric
            .origins
            .iter()
            .any(|origin| matches!(origin, Origin::Text { file: found, .. } if file(found.path)))
    });
    of_stat.map(|metric| metric.name).filter(|name| !name.contains("hierarchical")).collect()
}

/// Receives frames and acknowledges them for some time; returns their bytes.
fn answer_for(collector: &zmq::Socket, wait_ns: i64) -> Result<u64, Box<dyn Error>> {
    use polymeter_proto::wire::{frame::Frame, message::ToAgent};
    let until = now_ns() + u64::try_from(wait_ns)?;
    let mut bytes = 0;
    while let Some(left_ns) = until.checked_sub(now_ns()).filter(|left_ns| *left_ns > 0) {
        if collector.poll(zmq::POLLIN, i64::try_from(left_ns.div_ceil(1_000_000))?)? == 0 {
            continue;
        }
        let message = collector.recv_multipart(0)?;
        let [peer, frame] = message.as_slice() else { continue };
        bytes += frame.len() as u64;
        let frame = Frame::decode(frame)?;
        collector.send_multipart(
            [peer, &ToAgent::Ack { session: frame.session, through: frame.sequence }.encode()],
            0,
        )?;
    }
    Ok(bytes)
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// What the agent says of the job, and what the kernel says of the agent.
fn view(agent: &Child, socket: &Path, job: &str) -> Result<Run, Box<dyn Error>> {
    use std::io::{BufRead, BufReader, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(socket)?;
    stream.write_all(b"{\"verb\":\"flush\"}\n{\"verb\":\"status\"}\n")?;
    let mut lines = BufReader::new(stream).lines();
    lines.next().transpose()?;
    pause(100_000_000);
    let answer: Answer = serde_json::from_str(&lines.next().transpose()?.unwrap_or_default())?;
    let Answer::Status(status) = answer else { return Err("the agent does not say how it goes".into()) };
    let of_job = status.subjects.iter().filter(|subject| subject.job.as_deref() == Some(job));
    let mut tally = Tally::default();
    of_job.flat_map(|subject| &subject.sources).for_each(|source| tally.add(&source.tally));
    if tally.due == 0 {
        return Err("the agent does not sample the job".into());
    }
    let resident = fs::read_to_string(format!("/proc/{}/status", agent.id()))?;
    let resident_kib = resident
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|line| line.split_ascii_whitespace().next())
        .and_then(|kib| kib.parse().ok());
    Ok(Run {
        cpu_s: to_f64(status.counts.cpu_ns) / 1e9,
        seconds: to_f64(now_ns()) / 1e9,
        due: tally.due,
        kept: tally.taken,
        late: tally.late,
        resident_kib: resident_kib.unwrap_or(0),
        bytes: 0,
        values: 0,
    })
}

/// One run of the bare reads, in a process of their own.
fn with_bare(period: Period, seconds: u64, job: &Job) -> Result<Run, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--bare", &period.to_string(), &seconds.to_string()]).args(job.directories());
    let output = command.stderr(Stdio::inherit()).output()?;
    let numbers: Vec<f64> = String::from_utf8(output.stdout)?
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [cpu_s, due, kept] = numbers.as_slice() else { return Err("the bare reads failed".into()) };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts that were printed as whole numbers"
    )]
    let count = |number: f64| number as u64;
    Ok(Run {
        cpu_s: *cpu_s,
        seconds: to_f64(seconds),
        due: count(*due),
        kept: count(*kept),
        ..Run::default()
    })
}

/// The bare reads: the same files, one pread each, the same perf groups, the same kind of sleep; nothing is parsed,
/// kept or sent.
fn bare(period: Period, seconds: u64, directories: &[String]) -> Result<(), Box<dyn Error>> {
    let find = |name: &str| {
        directories.iter().map(|directory| PathBuf::from(directory).join(name)).find(|path| path.exists())
    };
    let v2 = directories.iter().find(|directory| Path::new(directory).join("cgroup.controllers").exists());
    let mut files = Vec::new();
    for name in ["memory.stat", "cpu.stat"] {
        files.extend(find(name).map(File::open).transpose()?);
    }
    let events: Vec<_> =
        EVENTS.iter().filter_map(|event| catalogue::find(&format!("perf.{event}"))).collect();
    let target = v2.map(|directory| Target::Cgroup(PathBuf::from(directory)));
    let cpus = online_cpus(Path::new("/"))?;
    let mut perf = target
        .and_then(|target| PerfSource::open(&target, &events, &cpus, Path::new("/sys/kernel/tracing")).0);
    let mut reading = Reading::absent(EVENTS.len());
    let mut buffer = vec![0; 16 * 1024];
    realtime();
    let period_ns = period.as_nanos();
    let end_ns = now_ns() + seconds * 1_000_000_000;
    let (mut due, mut kept) = (0_u64, 0_u64);
    let mut deadline_ns = (now_ns() / period_ns + 1) * period_ns;
    let begin = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    while deadline_ns < end_ns {
        sleep_until(deadline_ns);
        for file in &files {
            rustix::io::pread(file.as_fd(), &mut buffer, 0)?;
        }
        if let Some(perf) = &mut perf {
            perf.read(&mut reading);
        }
        kept += 1;
        let next_ns = (now_ns() / period_ns + 1) * period_ns;
        due += (next_ns - deadline_ns) / period_ns;
        deadline_ns = next_ns;
    }
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime) - begin;
    say(&format!("{} {due} {kept}", std::time::Duration::try_from(used)?.as_secs_f64()));
    Ok(())
}

fn sleep_until(deadline_ns: u64) {
    let seconds = i64::try_from(deadline_ns / 1_000_000_000).unwrap_or(i64::MAX);
    let deadline = rustix::time::Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(deadline_ns % 1_000_000_000).unwrap_or(0),
    };
    // An interrupted sleep would only make the bare reads dearer.
    rustix::thread::clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &deadline).ok();
}

/// The same priority as the sampler has.
fn realtime() {
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).ok();
    if polymeter_agent::kernel::set_fifo_priority(10).is_err() {
        say("without real-time priority");
    }
}
