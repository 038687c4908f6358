//! Starting an agent that outlives whoever starts it: the prolog of a job, whose process group is killed when it returns and
//! whose descriptors are read to their ends.
//!
//! The program starts itself once more and waits until that agent is ready. The agent makes itself independent before it says
//! so; so there is no moment at which it could be killed with the prolog, or not be there yet.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cgroups::all_roots;
use crate::clock;
use crate::kernel;
use crate::log;

/// How long an agent may take to be ready.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a ready agent says on its stdout, and the last that comes from there.
const READY: &[u8] = b"ready\n";

/// Starts this program once more with `arguments` and returns when it is ready as an agent. What is wrong with it until then
/// comes on this process's stderr, from itself.
///
/// # Errors
/// When it cannot be started, ends, or is not ready in time; it does not run then.
pub fn start(arguments: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    // The prolog may hold descriptors that somebody reads to their ends.
    kernel::close_inherited_on_exec();
    let mut child = Command::new(std::env::current_exe()?)
        .args(arguments)
        // An epilog may look for a job's processes by their environment.
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let ready = wait_for(&mut child);
    if ready.is_err() {
        // It may have ended by itself.
        child.kill().ok();
        child.wait()?;
    }
    ready
}

fn wait_for(child: &mut Child) -> io::Result<()> {
    let mut said = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut heard = Vec::new();
    let until_ns =
        clock::monotonic_ns().saturating_add(u64::try_from(PATIENCE.as_nanos()).unwrap_or(u64::MAX));
    loop {
        let left = Duration::from_nanos(until_ns.saturating_sub(clock::monotonic_ns()));
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the agent was not ready in time"));
        }
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        // An interrupted wait is a short one.
        if poll(&mut [PollFd::new(&said, PollFlags::IN)], Some(&timeout)) != Ok(1) {
            continue;
        }
        let mut buffer = [0; READY.len()];
        match said.read(&mut buffer)? {
            0 => return Err(io::Error::other("the agent ended before it was ready")),
            read => heard.extend(buffer.into_iter().take(read)),
        }
        if heard.starts_with(READY) {
            return Ok(());
        }
    }
}

/// Makes this process independent of whoever started it: a session of its own, and no cgroup of a job.
///
/// # Errors
/// When there is no new session to be had.
pub fn leave(root: &Path) -> io::Result<()> {
    rustix::process::setsid()?;
    if let Err(error) = leave_cgroups(root) {
        log::warning(&format!(
            "the agent stays in the cgroup in which it was started, and may end with it: {error}"
        ));
    }
    Ok(())
}

/// Moves this process into the root of every hierarchy, named ones included: a scheduler looks for a job's processes in any.
fn leave_cgroups(root: &Path) -> io::Result<()> {
    let mut failure = None;
    for place in all_roots(root)? {
        let procs = place.join("cgroup.procs");
        let moved = OpenOptions::new().write(true).open(&procs).and_then(|mut file| file.write_all(b"0"));
        if let Err(error) = moved {
            failure = Some(io::Error::new(error.kind(), format!("{}: {error}", procs.display())));
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Says that the agent is ready, and lets go of the descriptors that it was started with.
///
/// # Errors
/// When there is no `/dev/null`.
pub fn say_ready() -> io::Result<()> {
    polymeter_service::log::use_syslog();
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let mut stdout = io::stdout().lock();
    // Who has stopped waiting need not be told.
    stdout.write_all(READY).and_then(|()| stdout.flush()).ok();
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
