//! Processes that the agent starts for a source, waits for within limits, and kills.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::outcome::Outcome;
use crate::clock;

/// Time for a killed process to end, in nanoseconds; after it the next request waits for the end.
const END_NS: u64 = 1_000_000_000;

/// A killed process that may still run, for example because it waits for a device.
#[derive(Debug, Default)]
pub(super) struct Killed(Option<Child>);

impl Killed {
    pub(super) fn kill(&mut self, mut child: Child) {
        child.kill().ok();
        wait(&child, END_NS);
        self.0 = Some(child);
        self.has_ended();
    }

    pub(super) fn has_ended(&mut self) -> bool {
        // An error means that there is no such process.
        if self.0.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            return false;
        }
        self.0 = None;
        true
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // The thread of the source is at its end, so that nothing else waits here.
        if let Some(mut child) = self.0.take() {
            child.wait().ok();
        }
    }
}

/// A program that runs once per reading.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    limit_ns: u64,
    limit_bytes: usize,
    killed: Killed,
}

impl Program {
    pub(super) fn new(path: PathBuf, limit_ns: u64, limit_bytes: usize) -> Self {
        Self { path, limit_ns, limit_bytes, killed: Killed::default() }
    }

    /// Runs the program to its end. Fails if the program fails, takes too long or writes too much.
    pub(super) fn output(&mut self, arguments: &[impl AsRef<OsStr>]) -> Result<Vec<u8>, Outcome> {
        if !self.killed.has_ended() {
            return Err(Outcome::Retry(Errno::TIMEDOUT));
        }
        let mut command = Command::new(&self.path);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| Outcome::of_error(errno(&error)))?;
        let until_ns = clock::monotonic_ns().saturating_add(self.limit_ns);
        let output = match child.stdout.take() {
            Some(output) => self.read_to_end(output, until_ns),
            None => Err(Errno::PIPE),
        };
        let output = output.and_then(|output| {
            wait(&child, until_ns.saturating_sub(clock::monotonic_ns()));
            match child.try_wait().map_err(|error| errno(&error))? {
                Some(status) if status.success() => Ok(output),
                // It has written to its standard error why.
                Some(_) => Err(Errno::IO),
                None => Err(Errno::TIMEDOUT),
            }
        });
        output.map_err(|errno| {
            self.killed.kill(child);
            Outcome::Retry(errno)
        })
    }

    fn read_to_end(&self, mut from: ChildStdout, until_ns: u64) -> Result<Vec<u8>, Errno> {
        let mut output = Vec::new();
        while let Some(part) = read_part(&mut from, until_ns)? {
            output.extend_from_slice(&part);
            if output.len() > self.limit_bytes {
                return Err(Errno::MSGSIZE);
            }
        }
        Ok(output)
    }
}

/// Reads the next part of the output, until a time on the monotonic clock; `None` at its end.
pub(super) fn read_part(from: &mut ChildStdout, until_ns: u64) -> Result<Option<Vec<u8>>, Errno> {
    loop {
        let left_ns = until_ns.saturating_sub(clock::monotonic_ns());
        if left_ns == 0 || !wait_for(&*from, left_ns)? {
            return Err(Errno::TIMEDOUT);
        }
        let mut part = vec![0; 4096];
        match from.read(&mut part) {
            Ok(0) => return Ok(None),
            Ok(len) => {
                part.truncate(len);
                return Ok(Some(part));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(errno(&error)),
        }
    }
}

pub(super) fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

fn wait(child: &Child, at_most_ns: u64) {
    if let Ok(descriptor) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
        wait_for(&descriptor, at_most_ns).ok();
    }
}

/// Waits until a descriptor is readable; false if the time has passed.
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

#[cfg(test)]
impl Killed {
    pub(super) fn wait_for_end(&mut self) {
        while !self.has_ended() {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit for programs that end, long enough for a busy machine.
    const LONG_NS: u64 = 120_000_000_000;

    fn shell(limit_ns: u64) -> Program {
        Program::new("/bin/sh".into(), limit_ns, 1000)
    }

    #[test]
    fn the_output_is_whole_or_an_error() {
        let mut program = shell(LONG_NS);
        assert_eq!(program.output(&["-c", "echo 1; echo 2"]), Ok(b"1\n2\n".to_vec()));
        assert_eq!(program.output(&["-c", "cat; echo 3"]), Ok(b"3\n".to_vec()), "it has no input");
        assert_eq!(program.output(&["-c", "echo 1; exit 3"]), Err(Outcome::Retry(Errno::IO)));
        assert_eq!(program.output(&["-c", "kill -9 $$"]), Err(Outcome::Retry(Errno::IO)));
        assert_eq!(
            program.output(&["-c", "while :; do echo 0123456789; done"]),
            Err(Outcome::Retry(Errno::MSGSIZE))
        );
        let mut missing = Program::new("/nonexistent/program".into(), LONG_NS, 1000);
        assert_eq!(missing.output(&["x"]), Err(Outcome::Gone));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let mut program = shell(500_000_000);
        for script in ["echo 1; exec sleep 100", "echo 1; exec sleep 100 >&-"] {
            assert_eq!(program.output(&["-c", script]), Err(Outcome::Retry(Errno::TIMEDOUT)), "{script}");
            program.killed.wait_for_end();
        }
    }
}
