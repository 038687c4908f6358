//! `--detach`: starts an agent that outlives the process that starts it. A job's prolog is such a process:
//! its process group is killed when it returns, and its output is read until all descriptors of it are
//! closed.
//!
//! The program starts itself again and waits until that agent reports that it is ready. The agent makes
//! itself independent before that; therefore it cannot be killed together with the prolog once the prolog has
//! returned.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polymeter_service::log::{self, FILTER_VARIABLE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cgroups::all_roots;
use crate::clock;
use crate::kernel;

const READY_TIMEOUT: Duration = Duration::from_secs(10);

const READY: &[u8] = b"ready\n";

/// Starts this program again with `arguments` and returns when it is ready as an agent; until then it logs to
/// this process's stderr. After an error no agent is left running.
pub fn start(arguments: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    // The prolog may hold pipes whose readers wait until every copy is closed.
    kernel::close_inherited_on_exec();
    let mut child = Command::new(std::env::current_exe()?)
        .args(arguments)
        // An epilog may find a job's processes by their environment.
        .env_clear()
        .envs(std::env::var_os(FILTER_VARIABLE).map(|filter| (FILTER_VARIABLE, filter)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let ready = wait_for(&mut child);
    if ready.is_err() {
        // It may have exited already.
        child.kill().ok();
        child.wait()?;
    }
    ready
}

fn wait_for(child: &mut Child) -> io::Result<()> {
    let mut stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut received = Vec::new();
    let until_ns =
        clock::monotonic_ns().saturating_add(u64::try_from(READY_TIMEOUT.as_nanos()).unwrap_or(u64::MAX));
    loop {
        let left = Duration::from_nanos(until_ns.saturating_sub(clock::monotonic_ns()));
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the agent did not become ready in time"));
        }
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        // An interrupted wait is a short one.
        if poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&timeout)) != Ok(1) {
            continue;
        }
        let mut buffer = [0; READY.len()];
        match stdout.read(&mut buffer)? {
            0 => return Err(io::Error::other("the agent exited before it was ready")),
            read => received.extend(buffer.into_iter().take(read)),
        }
        if received.starts_with(READY) {
            return Ok(());
        }
    }
}

/// Gives this process a session of its own, and leaves the job's cgroups.
pub fn leave(root: &Path) -> io::Result<()> {
    rustix::process::setsid()?;
    if let Err(error) = leave_cgroups(root) {
        tracing::warn!(
            error = %error,
            remedy = "the agent may be killed when the job that started it ends",
            "cannot leave the cgroup that the agent was started in"
        );
    }
    Ok(())
}

/// Moves this process into the root of every hierarchy, including named ones: a scheduler looks for a job's
/// processes in all of them.
fn leave_cgroups(root: &Path) -> io::Result<()> {
    let mut failure = None;
    for place in all_roots(root)? {
        let procs = place.join("cgroup.procs");
        let written = OpenOptions::new().write(true).open(&procs).and_then(|mut file| file.write_all(b"0"));
        if let Err(error) = written {
            failure = Some(io::Error::new(error.kind(), format!("{}: {error}", procs.display())));
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Reports that the agent is ready, and closes the descriptors with which it was started.
pub fn report_ready() -> io::Result<()> {
    log::use_syslog();
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let mut stdout = io::stdout().lock();
    // A starter that no longer waits does not need it.
    stdout.write_all(READY).and_then(|()| stdout.flush()).ok();
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
