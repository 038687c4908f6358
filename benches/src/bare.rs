//! The bare reads, a lower bound of the cost of sampling: the same files with one `pread` each, the same perf
//! groups and the same kind of timer, without parsing, storing or sending. Their cost is the kernel's part,
//! which every tool pays.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::clock::{SECOND_NS, now_ns, process_cpu_ns, sleep_until};
use crate::histogram::Histogram;
use crate::job::Job;
use crate::plan::EVENTS;
use crate::process::KilledOnDrop;
use crate::table::{say, to_f64};
use polymeter_agent::sources;
use polymeter_agent::sources::online_cpus;
use polymeter_agent::sources::perf::{EventPlaces, PerfSource, PerfTarget};
use polymeter_proto::catalogue;
use polymeter_proto::period::Period;
use rustix::fd::AsFd;
use serde::{Deserialize, Serialize};

/// `SCHED_FIFO` priority, the default of the agent's sampler.
const PRIORITY: u8 = 10;

/// Files and events to read, and the period.
#[derive(Debug, Serialize, Deserialize)]
pub struct Bare {
    period: Period,
    seconds: u64,
    perf: bool,
    /// Cgroup directories of each job.
    jobs: Vec<Vec<PathBuf>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub cpu_s: f64,
    pub due: u64,
    pub kept: u64,
    /// Delay from each deadline to the start of the reads: the filled buckets of the histogram, and the
    /// largest value.
    lateness_us: (Vec<(usize, u64)>, u64),
}

impl Outcome {
    pub fn lateness_us(&self) -> Histogram {
        Histogram::from_filled(&self.lateness_us.0, self.lateness_us.1)
    }
}

/// Bare reads in their own process. Dropping it kills the process.
#[derive(Debug)]
pub struct Running {
    process: KilledOnDrop,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn outcome(mut self) -> Result<Outcome, Box<dyn Error>> {
        let mut printed = String::new();
        self.process.stdout.take().map_or(Ok(0), |mut stdout| stdout.read_to_string(&mut printed))?;
        if !self.process.wait()?.success() {
            return Err("the bare reads failed".into());
        }
        Ok(serde_json::from_str(&printed)?)
    }
}

struct Open {
    files: Vec<File>,
    groups: Vec<PerfSource>,
}

impl Bare {
    /// Describes bare reads of the files and events of `jobs`, every `period`, for `seconds`.
    pub fn of(period: Period, seconds: u64, perf: bool, jobs: &[Job]) -> Self {
        Self { period, seconds, perf, jobs: jobs.iter().map(|job| job.directories().to_vec()).collect() }
    }

    /// Starts the reads in their own process, as the agent runs in one: this program, called with `part bare`
    /// and the description for [`Bare::run`].
    pub fn start(&self) -> Result<Running, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["part", "bare", &serde_json::to_string(self)?]);
        Ok(Running { process: KilledOnDrop(command.stdout(Stdio::piped()).spawn()?) })
    }

    /// Reads, then prints the cost for [`Running::outcome`].
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut open = self.open()?;
        let mut counts = sources::Reading::absent(EVENTS.len());
        let mut buffer = vec![0; 16 * 1024];
        // Optional: where the kernel refuses it, the agent runs without it, too.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).ok();
        polymeter_agent::kernel::set_fifo_priority(PRIORITY).ok();
        let period_ns = self.period.as_nanos();
        let mut lateness_us = Histogram::default();
        let (mut due, mut kept) = (0, 0);
        let begin_ns = process_cpu_ns();
        let end_ns = now_ns() + self.seconds * SECOND_NS;
        let mut deadline_ns = (now_ns() / period_ns + 1) * period_ns;
        while deadline_ns < end_ns {
            sleep_until(deadline_ns);
            lateness_us.record(now_ns().saturating_sub(deadline_ns) / 1_000);
            for file in &open.files {
                rustix::io::pread(file.as_fd(), &mut buffer, 0)?;
            }
            for group in &mut open.groups {
                group.read(&mut counts);
            }
            kept += 1;
            let next_ns = (now_ns() / period_ns + 1) * period_ns;
            due += (next_ns - deadline_ns) / period_ns;
            deadline_ns = next_ns;
        }
        let cpu_s = to_f64(process_cpu_ns() - begin_ns) / 1e9;
        let lateness_us = (lateness_us.filled(), lateness_us.most());
        say(&serde_json::to_string(&Outcome { cpu_s, due, kept, lateness_us })?);
        Ok(())
    }

    fn open(&self) -> Result<Open, Box<dyn Error>> {
        polymeter_agent::kernel::raise_descriptor_limit();
        let events: Vec<_> =
            EVENTS.iter().filter_map(|event| catalogue::find(&format!("perf.{event}"))).collect();
        let cpus = online_cpus(Path::new("/"))?;
        let mut open = Open { files: Vec::new(), groups: Vec::new() };
        for directories in &self.jobs {
            for name in ["memory.stat", "cpu.stat"] {
                let path =
                    directories.iter().map(|directory| directory.join(name)).find(|path| path.exists());
                open.files.extend(path.map(File::open).transpose()?);
            }
            let v2 = directories.iter().find(|directory| directory.join("cgroup.controllers").exists());
            if let Some(directory) = v2.filter(|_| self.perf) {
                let target = PerfTarget::Cgroup(directory.clone());
                open.groups.extend(
                    PerfSource::open(&target, &events, &cpus, &EventPlaces::below(Path::new("/")), &[]).0,
                );
            }
        }
        Ok(open)
    }
}
