//! An experiment runs in a child process. However that ends, its processes, its temporary files and its
//! cgroups are removed: a tool that ran on would disturb the next measurement.

use std::num::NonZero;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::{env, fs, io, thread};

use polymeter_agent::cgroups::Mounts;
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, wait,
};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{self, SignalKind, signal};

use crate::job::{pause, remove_stale};
use crate::process::children;

/// Its value is the process that supervises this one.
const SUPERVISOR: &str = "POLYMETER_BENCH_SUPERVISOR";

/// Rounds of [`ROUND_NS`] after which a process that was asked to end is killed; after twice as many it is given
/// up.
const PATIENCE: u32 = 50;

const ROUND_NS: i64 = 100_000_000;

/// Runs this program again, with its arguments, as a supervised child. None if it is that child.
pub fn run_again() -> io::Result<Option<ExitCode>> {
    if is_supervised()? {
        return Ok(None);
    }
    // Processes whose parents have ended become children of this one.
    set_child_subreaper(Some(getpid()))?;
    // PostgreSQL runs as another user, who must reach its files.
    let reachable = fs::Permissions::from_mode(0o711);
    let files = tempfile::Builder::new().prefix("polymeter-bench-").permissions(reachable).tempdir()?;
    let signals = Signals::catch()?;
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1)).env("TMPDIR", files.path());
    let child = Pid::from_child(&command.env(SUPERVISOR, getpid().to_string()).spawn()?);
    let signal = signals.kill(child);
    let status = loop {
        match retry_on_intr(|| wait(WaitOptions::empty()))? {
            Some((ended, status)) if ended == child => break ExitStatus::from_raw(status.as_raw()),
            _ => {}
        }
    };
    end_children()?;
    Mounts::read(Path::new("/")).iter().for_each(remove_stale);
    let signal = NonZero::new(signal.load(Relaxed)).map(NonZero::get).or(status.signal());
    // As a shell reports it.
    let code = signal.map_or(status.code().unwrap_or(0), |signal| 128 + signal);
    Ok(Some(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))))
}

/// True if this process is that child; then it ends with its supervisor.
fn is_supervised() -> io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(|parent| parent.to_string());
    let is_supervised = parent.is_some() && parent == env::var(SUPERVISOR).ok();
    if !is_supervised {
        set_parent_process_death_signal(None)?;
    }
    Ok(is_supervised)
}

/// Signals that end an experiment, except those that are ignored, as `nohup` does.
struct Signals {
    runtime: Runtime,
    caught: Vec<(SignalKind, unix::Signal)>,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let context = runtime.enter();
        let status = fs::read_to_string("/proc/self/status")?;
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
        let caught = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()]
            .into_iter()
            .filter(|kind| ignored >> (kind.as_raw_value() - 1) & 1 == 0)
            .map(|kind| Ok((kind, signal(kind)?)))
            .collect::<io::Result<_>>()?;
        drop(context);
        Ok(Self { runtime, caught })
    }

    /// Kills `child` at a signal. Returns the last one, 0 while there was none.
    fn kill(self, child: Pid) -> Arc<AtomicI32> {
        let Self { runtime, caught } = self;
        let last = Arc::new(AtomicI32::new(0));
        for (kind, mut signal) in caught {
            let last = Arc::clone(&last);
            runtime.spawn(async move {
                while signal.recv().await.is_some() {
                    last.store(kind.as_raw_value(), Relaxed);
                    // It may have ended already.
                    kill_process(child, Signal::KILL).ok();
                }
            });
        }
        thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        last
    }
}

/// Ends the children of this process, and those that become its children meanwhile.
fn end_children() -> io::Result<()> {
    let mut left = Vec::new();
    for round in 0..2 * PATIENCE {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        left = children(std::process::id())?;
        if left.is_empty() {
            return Ok(());
        }
        for pid in &left {
            let signal = if round < PATIENCE { Signal::TERM } else { Signal::KILL };
            // It may have ended meanwhile.
            kill_process(*pid, signal).ok();
        }
        pause(ROUND_NS);
    }
    let left: Vec<String> = left.iter().map(Pid::to_string).collect();
    Err(io::Error::other(format!(
        "processes of the experiment do not end: {}; end them before the next measurement",
        left.join(", ")
    )))
}
