//! Signals while the command runs.

use std::io::{self, IsTerminal};
use std::process::{Child, ExitStatus};

use polymeter_analysis::command_totals::CommandTotals;
use polymeter_service::file_size;
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;
use tokio::signal::unix::{self, SignalKind, signal};

use super::totals::{self, Before};

/// Signals that are passed on to the command.
const FORWARDED: [Signal; 6] =
    [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2];

/// Effects of signals on this process when it started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dispositions {
    /// Signals whose dispositions this process changes. True for those that were ignored, as with nohup.
    ignored: [(libc::c_int, bool); 8],
    blocked: libc::sigset_t,
}

impl Dispositions {
    pub(super) fn read() -> Self {
        let signals = [
            Signal::INT,
            Signal::QUIT,
            Signal::TERM,
            Signal::HUP,
            Signal::USR1,
            Signal::USR2,
            Signal::XFSZ,
            Signal::CHILD,
        ];
        let ignored = signals.map(|signal| {
            #[expect(unsafe_code, reason = "no safe crate reads a disposition")]
            // SAFETY: `sigaction` is plain data, for which all zeros is valid.
            let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
            #[expect(unsafe_code, reason = "no safe crate reads a disposition")]
            // SAFETY: without a new disposition the kernel only writes the current one to the given place.
            let result = unsafe { libc::sigaction(signal.as_raw(), std::ptr::null(), &raw mut now) };
            (signal.as_raw(), result == 0 && now.sa_sigaction == libc::SIG_IGN)
        });
        Self { ignored, blocked: change_mask(libc::SIG_BLOCK, &no_signals()) }
    }

    /// Restores the dispositions, since a held command would ignore Ctrl-C otherwise, and the mask. Between
    /// fork and exec, too.
    pub(super) fn restore(&self) {
        for (signal, ignored) in self.ignored {
            set_ignored(signal, ignored);
        }
        change_mask(libc::SIG_SETMASK, &self.blocked);
    }
}

fn no_signals() -> libc::sigset_t {
    #[expect(unsafe_code, reason = "no safe crate makes a set of signals")]
    // SAFETY: `sigset_t` is plain data, and on Linux all zeros are the empty set.
    unsafe {
        std::mem::zeroed()
    }
}

/// Changes the signals that the calling thread blocks, and returns those before. Between fork and exec, too.
fn change_mask(how: libc::c_int, signals: &libc::sigset_t) -> libc::sigset_t {
    let mut before = no_signals();
    #[expect(unsafe_code, reason = "no safe crate changes a mask of signals")]
    // SAFETY: both sets are valid for the call.
    unsafe {
        libc::pthread_sigmask(how, signals, &raw mut before);
    }
    before
}

/// Lets the forwarded signals reach this process even if its parent blocked them: the command may wait for
/// them or unblock them.
fn unblock_forwarded() {
    let mut signals = no_signals();
    for signal in FORWARDED {
        #[expect(unsafe_code, reason = "no safe crate makes a set of signals")]
        // SAFETY: the set is valid, and the number is that of a signal.
        unsafe {
            libc::sigaddset(&raw mut signals, signal.as_raw());
        }
    }
    change_mask(libc::SIG_UNBLOCK, &signals);
}

/// Lets a write beyond the limit of file sizes fail, which would end this process without a word.
pub(crate) fn ignore_file_size_signal() {
    set_ignored(file_size::SIGNAL, true);
}

/// Lets a signal be ignored, or have its default effect. Between fork and exec, too.
fn set_ignored(signal: libc::c_int, ignored: bool) {
    let disposition = if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
    #[expect(unsafe_code, reason = "no safe crate sets a disposition")]
    // SAFETY: neither disposition is a handler.
    unsafe {
        libc::signal(signal, disposition);
    }
}

/// Signals meant for the command. They are caught before it starts, so that none of them ends this process
/// while the command and its cgroup remain.
#[derive(Debug)]
pub(crate) struct CaughtSignals {
    runtime: Runtime,
    interrupt: unix::Signal,
    quit: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
    user_1: unix::Signal,
    user_2: unix::Signal,
    before: Dispositions,
}

impl CaughtSignals {
    pub(crate) fn catch() -> io::Result<Self> {
        let before = Dispositions::read();
        // Where it is ignored, as some daemons leave it, the kernel keeps no status of an ended command.
        set_ignored(Signal::CHILD.as_raw(), false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let guard = runtime.enter();
        let (interrupt, quit) = (signal(SignalKind::interrupt())?, signal(SignalKind::quit())?);
        let (terminate, hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        let (user_1, user_2) = (signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?);
        drop(signal(SignalKind::from_raw(file_size::SIGNAL))?);
        drop(guard);
        unblock_forwarded();
        Ok(Self { runtime, interrupt, quit, terminate, hangup, user_1, user_2, before })
    }

    /// Dispositions from before the signals were caught.
    pub(crate) const fn before(&self) -> Dispositions {
        self.before
    }

    /// Waits for the command, and returns its status and totals. Signals to this process are forwarded to it,
    /// except for those that the terminal sends to both.
    pub(super) fn wait(self, child: &Child, before: Before) -> io::Result<(ExitStatus, CommandTotals)> {
        let Self {
            runtime, mut interrupt, mut quit, mut terminate, mut hangup, mut user_1, mut user_2, ..
        } = self;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let ended = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::NONBLOCK)?;
        runtime.block_on(async {
            let shares_terminal = io::stdin().is_terminal();
            let waiter = tokio::task::spawn_blocking(move || wait_until_readable(&ended));
            tokio::pin!(waiter);
            loop {
                let forwarded = tokio::select! {
                    done = &mut waiter => {
                        done.map_err(io::Error::other)??;
                        return totals::reap(pid.as_raw_pid(), before);
                    }
                    _ = interrupt.recv() => (!shares_terminal).then_some(Signal::INT),
                    _ = quit.recv() => (!shares_terminal).then_some(Signal::QUIT),
                    _ = terminate.recv() => Some(Signal::TERM),
                    _ = hangup.recv() => Some(Signal::HUP),
                    _ = user_1.recv() => Some(Signal::USR1),
                    _ = user_2.recv() => Some(Signal::USR2),
                };
                if let Some(signal) = forwarded {
                    // The process may just have ended.
                    kill_process(pid, signal).ok();
                }
            }
        })
    }
}

/// Waits until a pidfd is readable, which it is when its process has ended.
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
