//! The command itself: its terminal, environment and signals are as if nobody watched.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;
use tokio::signal::unix::{self, SignalKind, signal};

use crate::failure::Failure;
use crate::report::Totals;

/// Starts `command` in the cgroup whose `entrances` are given.
pub(crate) fn spawn(command: &[OsString], entrances: Vec<File>) -> Result<Child, Failure> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::Usage("there is no command to run".to_owned()));
    };
    let mut child = Command::new(program);
    child.args(arguments);
    let enter = move || {
        for mut entrance in &entrances {
            // 0 is the process that writes. Before the program begins, so that nothing of it is missed.
            io::Write::write_all(&mut entrance, b"0")?;
        }
        Ok(())
    };
    #[expect(unsafe_code, reason = "only the child itself can enter a cgroup before its program begins")]
    // SAFETY: between fork and exec `enter` only calls write(2) on descriptors that are open; it takes no lock and no
    // memory.
    unsafe {
        child.pre_exec(enter);
    }
    child.spawn().map_err(|error| Failure::NotRun {
        not_found: error.kind() == io::ErrorKind::NotFound,
        message: format!("cannot run {}: {error}", program.display()),
    })
}

/// The signals that mean the command. Taken from before it starts, so that none ends this process and leaves the
/// command and its cgroup behind.
#[derive(Debug)]
pub(crate) struct Signals {
    runtime: Runtime,
    interrupt: unix::Signal,
    quit: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
    user_1: unix::Signal,
    user_2: unix::Signal,
}

impl Signals {
    pub(crate) fn take() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let guard = runtime.enter();
        let (interrupt, quit) = (signal(SignalKind::interrupt())?, signal(SignalKind::quit())?);
        let (terminate, hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        let (user_1, user_2) = (signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?);
        drop(guard);
        Ok(Self { runtime, interrupt, quit, terminate, hangup, user_1, user_2 })
    }

    /// Waits for the command. Signals that mean this process are passed on; those that the terminal sends to both are
    /// the command's affair alone.
    pub(crate) fn wait(self, child: &mut Child) -> io::Result<ExitStatus> {
        let Self { runtime, mut interrupt, mut quit, mut terminate, mut hangup, mut user_1, mut user_2 } =
            self;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let ended =
            rustix::process::pidfd_open(pid.unwrap_or(Pid::INIT), rustix::process::PidfdFlags::NONBLOCK)?;
        runtime.block_on(async {
            let shares_terminal = io::stdin().is_terminal();
            let waiter = tokio::task::spawn_blocking(move || wait_until_readable(&ended));
            tokio::pin!(waiter);
            loop {
                let passed_on = tokio::select! {
                    done = &mut waiter => {
                        done.map_err(io::Error::other)??;
                        return child.wait();
                    }
                    _ = interrupt.recv() => (!shares_terminal).then_some(Signal::INT),
                    _ = quit.recv() => (!shares_terminal).then_some(Signal::QUIT),
                    _ = terminate.recv() => Some(Signal::TERM),
                    _ = hangup.recv() => Some(Signal::HUP),
                    _ = user_1.recv() => Some(Signal::USR1),
                    _ = user_2.recv() => Some(Signal::USR2),
                };
                if let (Some(signal), Some(pid)) = (passed_on, pid) {
                    // It may have ended in this moment.
                    kill_process(pid, signal).ok();
                }
            }
        })
    }
}

/// A pidfd is readable when its process has ended.
fn wait_until_readable(ended: &rustix::fd::OwnedFd) -> io::Result<()> {
    let mut items = [rustix::event::PollFd::new(ended, rustix::event::PollFlags::IN)];
    loop {
        match rustix::event::poll(&mut items, None) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The status that a shell would give: the command's own, or 128 and the signal that ended it.
pub(crate) fn status_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// What the command used, once it has been waited for: getrusage(2), `RUSAGE_CHILDREN`.
#[expect(clippy::cast_precision_loss, reason = "for a report of few digits")]
pub(crate) fn totals() -> Option<Totals> {
    #[expect(unsafe_code, reason = "no safe crate has getrusage")]
    // SAFETY: `rusage` is plain integers, for which zero is a value.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    #[expect(unsafe_code, reason = "no safe crate has getrusage")]
    // SAFETY: the kernel writes one `rusage` to where one lies.
    let result = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut used) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (result == 0).then(|| Totals {
        user_s: seconds(used.ru_utime),
        system_s: seconds(used.ru_stime),
        peak_memory_bytes: used.ru_maxrss as f64 * 1024.0,
        page_faults: (used.ru_minflt + used.ru_majflt) as f64,
        page_faults_major: used.ru_majflt as f64,
        context_switches: (used.ru_nvcsw + used.ru_nivcsw) as f64,
    })
}
