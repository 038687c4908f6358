//! A process of the command, from its start to its end.
//!
//! One loop serves its standard input and its standard error, and notices its end and its timeout. The
//! process has a group of its own, which is killed at the end in any case. The process is reaped only after
//! that, so that its number stays its own.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use polymeter_service::clock::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::limits;
use crate::shutdown::Shutdown;

const ENVIRONMENT: [(&str, &str); 2] = [("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("LC_ALL", "C.UTF-8")];

const CHUNK_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Invocation<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [String],
    pub(crate) variables: &'a [(&'static str, String)],
    pub(crate) input: &'a [u8],
    pub(crate) timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Exited(ExitStatus),
    TimedOut,
    Stopped,
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) end: End,
    /// Beginning of the standard error.
    pub(crate) errors: Vec<u8>,
}

impl Invocation<'_> {
    /// Runs the command until it ends, its timeout, or the collector's shutdown.
    pub(crate) fn run(&self, clock: Clock, shutdown: &Shutdown) -> io::Result<Ended> {
        let deadline = clock.now().since_start.saturating_add(self.timeout);
        let mut command = Command::new(self.program);
        command.args(self.arguments).env_clear().envs(ENVIRONMENT).envs(self.variables.iter().cloned());
        command.current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut streams = Streams::of(&mut child, self.input);
        let pid = Pid::from_child(&child);
        let end = loop {
            if has_exited(pid) {
                break None;
            }
            if shutdown.requested_at().is_some() {
                break Some(End::Stopped);
            }
            if clock.now().since_start >= deadline {
                break Some(End::TimedOut);
            }
            streams.serve();
        };
        // Others may still have the pipe open: what it holds is read.
        while streams.read() {}
        // The group may have ended already, except for the process, which is not reaped yet.
        kill_process_group(pid, Signal::KILL).ok();
        let status = child.wait()?;
        Ok(Ended { end: end.unwrap_or(End::Exited(status)), errors: streams.errors })
    }
}

/// A process that has ended stays a zombie.
fn has_exited(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

struct Streams<'a> {
    stdin: Option<ChildStdin>,
    input: &'a [u8],
    stderr: Option<ChildStderr>,
    errors: Vec<u8>,
    errors_read: usize,
}

impl<'a> Streams<'a> {
    fn of(child: &mut Child, input: &'a [u8]) -> Self {
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        // A pipe that could block the loop is closed instead.
        let stdin = stdin.filter(|pipe| ioctl_fionbio(pipe, true).is_ok());
        let stderr = stderr.filter(|pipe| ioctl_fionbio(pipe, true).is_ok());
        Self { stdin, input, stderr, errors: Vec::new(), errors_read: 0 }
    }

    fn serve(&mut self) {
        let mut polled = Vec::with_capacity(2);
        polled.extend(self.stdin.as_ref().map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::OUT)));
        polled.extend(self.stderr.as_ref().map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)));
        let interval_ns = i64::try_from(limits::JOB_END_EXIT_CHECK_INTERVAL.as_nanos()).unwrap_or(i64::MAX);
        let interval = Timespec { tv_sec: 0, tv_nsec: interval_ns };
        // An interrupted wait is repeated by the caller.
        if poll(&mut polled, Some(&interval)).is_ok_and(|ready| ready > 0) {
            drop(polled);
            self.write();
            self.read();
        }
    }

    fn write(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        let chunk = self.input.get(..CHUNK_BYTES).unwrap_or(self.input);
        match stdin.write(chunk) {
            Ok(written) => self.input = self.input.get(written..).unwrap_or_default(),
            Err(error) if is_for_later(&error) => return,
            // The process does not read it to the end.
            Err(_) => self.input = &[],
        }
        if self.input.is_empty() {
            self.stdin = None;
        }
    }

    /// Returns false if there is nothing to read.
    fn read(&mut self) -> bool {
        let Some(stderr) = &mut self.stderr else { return false };
        let mut chunk = vec![0; CHUNK_BYTES];
        match stderr.read(&mut chunk) {
            Ok(count) if count > 0 => {
                let room = limits::JOB_END_ERROR_BYTES.saturating_sub(self.errors.len());
                self.errors.extend(chunk.into_iter().take(count.min(room)));
                self.errors_read += count;
                // A process that writes on gets SIGPIPE.
                if self.errors_read >= limits::JOB_END_ERROR_BYTES_READ {
                    self.stderr = None;
                }
                true
            }
            Err(error) if is_for_later(&error) => false,
            Ok(_) | Err(_) => {
                self.stderr = None;
                false
            }
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use rustix::process::test_kill_process;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn run(script: &str, input: &[u8], timeout: Duration) -> Ended {
        run_until(script, input, timeout, &Shutdown::default())
    }

    fn run_until(script: &str, input: &[u8], timeout: Duration, shutdown: &Shutdown) -> Ended {
        let arguments = ["-c".to_owned(), script.to_owned()];
        let variables = [("POLYMETER_JOB_ID", "42".to_owned())];
        let invocation = Invocation {
            program: Path::new("/bin/sh"),
            arguments: &arguments,
            variables: &variables,
            input,
            timeout,
        };
        invocation.run(Clock::start(), shutdown).unwrap()
    }

    fn code(ended: &Ended) -> Option<i32> {
        if let End::Exited(status) = ended.end { status.code() } else { panic!("{ended:?}") }
    }

    /// Process whose number a command wrote to its standard error.
    fn written_pid(ended: &Ended) -> Pid {
        let text = String::from_utf8(ended.errors.clone()).unwrap();
        Pid::from_raw(text.lines().next().unwrap().parse().unwrap()).unwrap()
    }

    #[test]
    fn the_whole_input_arrives() {
        let input: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
        let ended = run("wc -c >&2", &input, LONG);
        assert_eq!((code(&ended), ended.errors.as_slice()), (Some(0), &b"3000000\n"[..]));
        let ended = run("cat >&2; exit 3", b"", LONG);
        assert_eq!((code(&ended), ended.errors.len()), (Some(3), 0));
    }

    #[test]
    fn a_command_that_does_not_read_ends_as_it_likes() {
        let input = vec![b'x'; 10_000_000];
        for script in ["exit 0", "exec 0<&-; exit 0", "head -c 1000 >/dev/null", "kill -9 $$"] {
            let ended = run(script, &input, LONG);
            let End::Exited(status) = ended.end else { panic!("{ended:?}") };
            assert!(status.success() || status.signal() == Some(9), "{script}: {ended:?}");
        }
    }

    #[test]
    fn nothing_of_the_collector_is_passed_on() {
        let held = tempfile::NamedTempFile::new().unwrap();
        // The shell sets PWD, SHLVL and _ itself. Descriptor 3 of `ls` is the command's standard output.
        let script = "echo $(/usr/bin/env -u PWD -u SHLVL -u OLDPWD -u _ | sort) >&2; pwd >&2; ls -l /proc/self/fd 3>&1 >&2";
        let ended = run(script, b"", LONG);
        let text = String::from_utf8(ended.errors).unwrap();
        let mut lines = text.lines();
        let environment = "LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin POLYMETER_JOB_ID=42";
        assert_eq!((lines.next(), lines.next()), (Some(environment), Some("/")));
        assert!(lines.any(|line| line.ends_with(" 3 -> /dev/null")), "{text}");
        assert!(!text.contains(held.path().to_str().unwrap()), "{text}");
    }

    #[test]
    fn the_group_is_killed_at_the_timeout() {
        // It ignores signals, has a child, and never reads.
        let script =
            "trap '' TERM INT HUP PIPE; sleep 100 & echo $! >&2; while kill -0 $PPID; do sleep 1; done";
        let ended = run(script, &vec![0; 1_000_000], Duration::from_secs(3));
        assert_eq!(ended.end, End::TimedOut);
        let child = written_pid(&ended);
        // Its new parent may have to reap it.
        while test_kill_process(child).is_ok() && !is_zombie(child) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_a_command_leaves_behind_is_killed() {
        let ended = run("sleep 100 & echo $! >&2; exit 0", b"", LONG);
        assert_eq!(code(&ended), Some(0));
        let child = written_pid(&ended);
        while test_kill_process(child).is_ok() && !is_zombie(child) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    fn is_zombie(pid: Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        stat.map_or(true, |stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
    }

    #[test]
    fn endless_errors_are_cut() {
        let ended = run("exec cat /dev/zero >&2", b"", LONG);
        let End::Exited(status) = ended.end else { panic!("{ended:?}") };
        // SIGPIPE.
        assert_eq!((status.signal(), ended.errors.len()), (Some(13), limits::JOB_END_ERROR_BYTES));
        let ended = run("head -c 100000 /dev/zero >&2; exit 0", b"", LONG);
        assert_eq!((code(&ended), ended.errors.len()), (Some(0), limits::JOB_END_ERROR_BYTES));
    }

    #[test]
    fn a_shutdown_ends_the_command() {
        let shutdown = Shutdown::default();
        shutdown.request(Duration::ZERO);
        assert_eq!(run_until("sleep 100", b"", LONG, &shutdown).end, End::Stopped);
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let program = Path::new("/no/such/program");
        let invocation = Invocation { program, arguments: &[], variables: &[], input: b"", timeout: LONG };
        let error = invocation.run(Clock::start(), &Shutdown::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
