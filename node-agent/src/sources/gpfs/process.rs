//! A process of `mmpmon` that answers requests: it is started at the first one, killed where it does not answer, and started again later.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::response::is_complete;
use crate::clock;
use crate::sources::outcome::Outcome;

/// The statistics of all file systems, and a request whose answer marks the end of theirs.
const REQUEST: &[u8] = b"fs_io_s\nver\n";

/// The longest answer, in bytes: hundreds of file systems.
const ANSWER_BYTES: usize = 256 * 1024;

/// The shortest time between two starts, in nanoseconds, so that a program that fails at once costs little.
const RESTART_NS: u64 = 60_000_000_000;

/// The time that a killed process has to end before its end is left to the next request, in nanoseconds.
const END_NS: u64 = 1_000_000_000;

/// A program and its process, if it runs.
#[derive(Debug)]
pub(super) struct Process {
    program: PathBuf,
    arguments: Vec<OsString>,
    /// The longest time for an answer, in nanoseconds.
    answer_ns: u64,
    running: Option<Running>,
    /// A killed process that has not ended yet, as one that waits for a device.
    ending: Option<Child>,
    /// The time of the next start at the earliest, on the monotonic clock.
    next_start_ns: u64,
}

/// A running process, and its ends of the pipes.
#[derive(Debug)]
struct Running {
    child: Child,
    requests: ChildStdin,
    answers: ChildStdout,
}

impl Process {
    /// Creates one without starting it.
    pub(super) const fn new(program: PathBuf, arguments: Vec<OsString>, answer_ns: u64) -> Self {
        Self { program, arguments, answer_ns, running: None, ending: None, next_start_ns: 0 }
    }

    /// Returns the answer to one request.
    pub(super) fn ask(&mut self) -> Result<Vec<u8>, Outcome> {
        let answer_ns = self.answer_ns;
        let answer = match &mut self.running {
            Some(running) => running.ask(answer_ns),
            None => self.start()?.ask(answer_ns),
        };
        answer.map_err(|errno| {
            // What remains of the answer would be taken for the next one.
            self.stop();
            Outcome::Retry(errno)
        })
    }

    fn start(&mut self) -> Result<&mut Running, Outcome> {
        let now_ns = clock::monotonic_ns();
        if now_ns < self.next_start_ns {
            return Err(Outcome::Retry(Errno::AGAIN));
        }
        if !self.has_ended() {
            return Err(Outcome::Retry(Errno::TIMEDOUT));
        }
        self.next_start_ns = now_ns.saturating_add(RESTART_NS);
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| {
            Outcome::of_error(error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
        })?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(requests), Some(answers)) => Ok(self.running.insert(Running { child, requests, answers })),
            _ => {
                self.ending = Some(child);
                Err(Outcome::Retry(Errno::PIPE))
            }
        }
    }

    /// Kills the process.
    fn stop(&mut self) {
        let Some(Running { mut child, requests, answers }) = self.running.take() else { return };
        drop((requests, answers));
        child.kill().ok();
        wait(&child, END_NS);
        self.ending = Some(child);
        self.has_ended();
    }

    /// Returns true if no killed process is left.
    fn has_ended(&mut self) -> bool {
        // An error means that there is no such process.
        if self.ending.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            return false;
        }
        self.ending = None;
        true
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        // The thread of the source is at its end, so that nothing else waits here.
        if let Some(mut child) = self.ending.take() {
            child.wait().ok();
        }
    }
}

/// Waits until a process has ended, at most for this time.
fn wait(child: &Child, at_most_ns: u64) {
    if let Ok(descriptor) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
        wait_for(&descriptor, at_most_ns).ok();
    }
}

/// Waits until a descriptor is readable. Returns false if it is not within this time.
fn wait_for(descriptor: impl AsFd, at_most_ns: u64) -> Result<bool, Errno> {
    let at_most = Timespec {
        tv_sec: i64::try_from(at_most_ns / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(at_most_ns % 1_000_000_000).unwrap_or_default(),
    };
    let mut descriptors = [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN)];
    match poll(&mut descriptors, Some(&at_most)) {
        Ok(0) => Ok(false),
        // The caller waits again, for the time that is left.
        Ok(_) | Err(Errno::INTR) => Ok(true),
        Err(errno) => Err(errno),
    }
}

impl Running {
    fn ask(&mut self, answer_ns: u64) -> Result<Vec<u8>, Errno> {
        let errno = |error: std::io::Error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
        let until_ns = clock::monotonic_ns().saturating_add(answer_ns);
        // The pipe has room, since an earlier request without an answer has ended the process.
        self.requests.write_all(REQUEST).map_err(errno)?;
        let mut answer = Vec::new();
        while !is_complete(&answer) {
            let left_ns = until_ns.saturating_sub(clock::monotonic_ns());
            if left_ns == 0 || !wait_for(&self.answers, left_ns)? {
                return Err(Errno::TIMEDOUT);
            }
            let mut part = [0; 4096];
            let len = match self.answers.read(&mut part) {
                // It has ended.
                Ok(0) => return Err(Errno::PIPE),
                Ok(len) => len,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(errno(error)),
            };
            answer.extend_from_slice(part.get(..len).unwrap_or_default());
            if answer.len() > ANSWER_BYTES {
                return Err(Errno::MSGSIZE);
            }
        }
        Ok(answer)
    }
}

#[cfg(test)]
impl Process {
    /// Lets it start again at once.
    pub(super) fn forget_last_start(&mut self) {
        self.next_start_ns = 0;
    }

    /// Waits until no killed process is left.
    pub(super) fn wait_for_end(&mut self) {
        while !self.has_ended() {
            std::thread::yield_now();
        }
    }

    /// Returns the id of the process.
    pub(super) fn id(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }
}
