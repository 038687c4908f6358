//! The command itself: its terminal, environment and signals are as if nobody watched.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;
use tokio::signal::unix::{self, SignalKind, signal};

use crate::failure::Failure;
use crate::report::Totals;

/// The status of a held command whose `polymeter run` died; the kernel has closed the pipe, and there is no one to tell.
const ABANDONED: libc::c_int = 125;

/// A command that exists as a process, and whose program does not begin before it is released. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Held {
    pid: u32,
    release: PipeWriter,
    /// `spawn` returns when the program has begun, so it waits on a thread of its own.
    starting: JoinHandle<io::Result<Child>>,
    program: OsString,
}

/// Makes a process for `command`. When it is released it enters the cgroup whose `entrances` are given, and begins.
pub(crate) fn hold(
    command: &[OsString],
    entrances: Vec<File>,
    dispositions: Dispositions,
) -> Result<Held, Failure> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::Usage("there is no command to run".to_owned()));
    };
    let failed = |error: io::Error| Failure::refused("cannot start the command", &error);
    let (mut told, tell) = io::pipe().map_err(failed)?;
    let (released, release) = io::pipe().map_err(failed)?;
    let mut child = Command::new(program);
    child.args(arguments);
    let parents_end = release.as_raw_fd();
    let before_exec = move || {
        dispositions.restore();
        close_copy(parents_end);
        (&tell).write_all(&std::process::id().to_ne_bytes())?;
        wait_for_release(&released)?;
        for mut entrance in &entrances {
            // 0 is the process that writes. Before the program begins, so that nothing of it is missed.
            entrance.write_all(b"0")?;
        }
        Ok(())
    };
    #[expect(
        unsafe_code,
        reason = "only the child itself can wait, and enter a cgroup, before its program begins"
    )]
    // SAFETY: between fork and exec `before_exec` only calls sigaction(2), close(2), getpid(2), read(2), write(2) and
    // _exit(2) on descriptors that are open; it takes no lock and no memory.
    unsafe {
        child.pre_exec(before_exec);
    }
    let start = move || {
        let started = child.spawn();
        // With it the child's ends of the pipes.
        drop(child);
        started
    };
    let starting = std::thread::Builder::new().name("start".to_owned()).spawn(start).map_err(failed)?;
    let mut pid = [0; 4];
    match told.read_exact(&mut pid) {
        Ok(()) => Ok(Held { pid: u32::from_ne_bytes(pid), release, starting, program: program.clone() }),
        // There is no process: `spawn` says why.
        Err(error) => Err(started(starting, program).err().unwrap_or_else(|| failed(error))),
    }
}

impl Held {
    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the program begin.
    pub(crate) fn release(self) -> Result<Child, Failure> {
        let Self { mut release, starting, program, .. } = self;
        // A process that was ended while it was held does not read: its status says so.
        release.write_all(&[1]).ok();
        drop(release);
        started(starting, &program)
    }
}

fn started(starting: JoinHandle<io::Result<Child>>, program: &OsStr) -> Result<Child, Failure> {
    let started = starting.join().unwrap_or_else(|_panic| Err(io::Error::other("its thread panicked")));
    started.map_err(|error| Failure::NotRun {
        not_found: error.kind() == io::ErrorKind::NotFound,
        message: format!("cannot run {}: {error}", program.display()),
    })
}

/// Closes the child's copy of the end that the parent holds: with it open, the child would not see the parent die.
fn close_copy(descriptor: RawFd) {
    #[expect(unsafe_code, reason = "the owner of the descriptor is in the parent")]
    // SAFETY: the child has a copy of every descriptor of the parent's, and nothing in the child uses this one.
    unsafe {
        libc::close(descriptor);
    }
}

/// Waits for a byte of the parent's; ends the process when the parent has died instead.
fn wait_for_release(mut released: &PipeReader) -> io::Result<()> {
    loop {
        match released.read(&mut [0]) {
            Ok(0) => {
                #[expect(
                    unsafe_code,
                    reason = "between fork and exec a process ends without any of its exit handlers"
                )]
                // SAFETY: _exit(2) has no conditions.
                unsafe {
                    libc::_exit(ABANDONED)
                }
            }
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The signals that this process takes, and whether it was started with each of them ignored, as nohup does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dispositions([(libc::c_int, bool); 6]);

impl Dispositions {
    fn read() -> Self {
        let signals = [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2];
        Self(signals.map(|signal| {
            #[expect(unsafe_code, reason = "no safe crate reads a disposition")]
            // SAFETY: `sigaction` is plain data, for which zero is a value.
            let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
            #[expect(unsafe_code, reason = "no safe crate reads a disposition")]
            // SAFETY: without a new disposition the kernel only writes the present one to where one lies.
            let result = unsafe { libc::sigaction(signal.as_raw(), std::ptr::null(), &raw mut now) };
            (signal.as_raw(), result == 0 && now.sa_sigaction == libc::SIG_IGN)
        }))
    }

    /// Puts the dispositions back. A held command would otherwise swallow the terminal's Ctrl-C.
    fn restore(&self) {
        for (signal, ignored) in self.0 {
            let before = if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
            #[expect(unsafe_code, reason = "no safe crate sets a disposition between fork and exec")]
            // SAFETY: neither disposition is a handler.
            unsafe {
                libc::signal(signal, before);
            }
        }
    }
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
    before: Dispositions,
}

impl Signals {
    pub(crate) fn take() -> io::Result<Self> {
        let before = Dispositions::read();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let guard = runtime.enter();
        let (interrupt, quit) = (signal(SignalKind::interrupt())?, signal(SignalKind::quit())?);
        let (terminate, hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        let (user_1, user_2) = (signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?);
        drop(guard);
        Ok(Self { runtime, interrupt, quit, terminate, hangup, user_1, user_2, before })
    }

    /// What the signals did before they were taken.
    pub(crate) const fn before(&self) -> Dispositions {
        self.before
    }

    /// Waits for the command. Signals that mean this process are passed on; those that the terminal sends to both are
    /// the command's affair alone.
    pub(crate) fn wait(self, child: &mut Child) -> io::Result<ExitStatus> {
        let Self {
            runtime, mut interrupt, mut quit, mut terminate, mut hangup, mut user_1, mut user_2, ..
        } = self;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn hold_words(words: &[&str]) -> Held {
        let command: Vec<OsString> = words.iter().map(Into::into).collect();
        hold(&command, Vec::new(), Dispositions::read()).unwrap()
    }

    /// One test, since a held process has copies of what belongs to others that are held at the same time.
    #[test]
    fn a_command_begins_when_it_is_released_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let witness = directory.path().join("began");
        let held = hold_words(&["touch", witness.to_str().unwrap()]);
        let name = std::fs::read_to_string(format!("/proc/{}/comm", held.pid())).unwrap();
        assert!(name.trim() != "touch" && !witness.exists(), "{name}");
        assert!(held.release().unwrap().wait().unwrap().success() && witness.exists());

        let missing = hold_words(&["/nowhere/program"]).release().unwrap_err();
        assert!(matches!(missing, Failure::NotRun { not_found: true, .. }), "{missing}");

        // Not by the signal of Ctrl-C, which tests that run in the background of a shell ignore.
        let ended = hold_words(&["sleep", "600"]);
        kill_process(Pid::from_raw(i32::try_from(ended.pid()).unwrap()).unwrap(), Signal::TERM).unwrap();
        let status = ended.release().unwrap().wait().unwrap();
        assert_eq!(status_code(status), 128 + 15);

        // As when this process dies.
        let Held { release, starting, .. } = hold_words(&["sleep", "600"]);
        drop(release);
        let status = starting.join().unwrap().unwrap().wait().unwrap();
        assert_eq!(status.code(), Some(ABANDONED));
    }

    #[test]
    fn no_command_is_wrong_usage() {
        assert!(matches!(hold(&[], Vec::new(), Dispositions::read()), Err(Failure::Usage(_))));
    }
}
