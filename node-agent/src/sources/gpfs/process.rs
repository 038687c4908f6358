//! A process of `mmpmon` that answers requests: it is started at the first one, killed where it does not
//! answer, and started again later.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::io::Errno;

use super::response::is_complete;
use crate::clock;
use crate::sources::child_process::{Killed, errno, read_part};
use crate::sources::outcome::Outcome;

/// Asks for the statistics of all file systems, then for an answer that marks their end.
const REQUEST: &[u8] = b"fs_io_s\nver\n";

/// Longest answer, in bytes: hundreds of file systems.
const ANSWER_BYTES: usize = 256 * 1024;

/// Shortest time between two starts, so that a program that fails at once costs little.
const RESTART_NS: u64 = 60_000_000_000;

#[derive(Debug)]
pub(super) struct Process {
    program: PathBuf,
    arguments: Vec<OsString>,
    answer_ns: u64,
    running: Option<Running>,
    killed: Killed,
    /// Earliest time of the next start, on the monotonic clock.
    next_start_ns: u64,
}

/// A running process, and our ends of its pipes.
#[derive(Debug)]
struct Running {
    child: Child,
    requests: ChildStdin,
    answers: ChildStdout,
}

impl Process {
    /// Does not start the program.
    pub(super) fn new(program: PathBuf, arguments: Vec<OsString>, answer_ns: u64) -> Self {
        Self { program, arguments, answer_ns, running: None, killed: Killed::default(), next_start_ns: 0 }
    }

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
        if !self.killed.has_ended() {
            return Err(Outcome::Retry(Errno::TIMEDOUT));
        }
        self.next_start_ns = now_ns.saturating_add(RESTART_NS);
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| Outcome::of_error(errno(&error)))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(requests), Some(answers)) => Ok(self.running.insert(Running { child, requests, answers })),
            _ => {
                self.killed.kill(child);
                Err(Outcome::Retry(Errno::PIPE))
            }
        }
    }

    fn stop(&mut self) {
        let Some(Running { child, requests, answers }) = self.running.take() else { return };
        drop((requests, answers));
        self.killed.kill(child);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Running {
    fn ask(&mut self, answer_ns: u64) -> Result<Vec<u8>, Errno> {
        let until_ns = clock::monotonic_ns().saturating_add(answer_ns);
        // The pipe has room, since an earlier request without an answer has ended the process.
        self.requests.write_all(REQUEST).map_err(|error| errno(&error))?;
        let mut answer = Vec::new();
        while !is_complete(&answer) {
            // It has ended.
            let part = read_part(&mut self.answers, until_ns)?.ok_or(Errno::PIPE)?;
            answer.extend_from_slice(&part);
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

    pub(super) fn wait_for_end(&mut self) {
        self.killed.wait_for_end();
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }
}
