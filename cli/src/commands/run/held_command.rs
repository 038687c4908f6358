//! Process of the command, held between fork and exec until its sources are open. Its terminal,
//! environment and signals are the same as without Polymeter.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::JoinHandle;

use super::signals::Dispositions;
use crate::failure::Failure;

/// Status if `polymeter run` dies meanwhile.
const ABANDONED: libc::c_int = 125;

/// A process that does not execute its program before it is released. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct HeldCommand {
    pid: u32,
    release: PipeWriter,
    /// Waits for `spawn`, which returns when the program is executed.
    spawning: JoinHandle<io::Result<Child>>,
    program: OsString,
}

/// Creates a process for `command`, whose environment is that of this process and `environment`. When it is
/// released, it writes itself to the files `entrances` of its cgroup, and executes its program.
pub(crate) fn hold(
    command: &[OsString],
    entrances: Vec<File>,
    dispositions: Dispositions,
    environment: Vec<(&'static str, OsString)>,
) -> Result<HeldCommand, Failure> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::Usage("cannot run the command: none is given".to_owned()));
    };
    let failed = |error: io::Error| Failure::because("cannot start the command", &error);
    let (mut pid_reader, pid_writer) = io::pipe().map_err(failed)?;
    let (released, release) = io::pipe().map_err(failed)?;
    let mut child = Command::new(program);
    child.args(arguments).envs(environment);
    let release_descriptor = release.as_raw_fd();
    let before_exec = move || {
        dispositions.restore();
        close_copy(release_descriptor);
        (&pid_writer).write_all(&std::process::id().to_ne_bytes())?;
        wait_for_release(&released)?;
        for mut entrance in &entrances {
            // 0 stands for the writing process.
            entrance.write_all(b"0")?;
        }
        Ok(())
    };
    #[expect(unsafe_code, reason = "only the child itself can wait, and enter a cgroup, before exec")]
    // SAFETY: between fork and exec `before_exec` only calls sigaction(2), sigprocmask(2), close(2),
    // getpid(2), read(2), write(2) and _exit(2) on open descriptors; it takes no lock and allocates no
    // memory.
    unsafe {
        child.pre_exec(before_exec);
    }
    let spawning = std::thread::Builder::new()
        .name("spawn".to_owned())
        .spawn(move || {
            let spawned = child.spawn();
            // Closes the child's ends of the pipes.
            drop(child);
            spawned
        })
        .map_err(failed)?;
    let mut pid = [0; 4];
    match pid_reader.read_exact(&mut pid) {
        Ok(()) => {
            Ok(HeldCommand { pid: u32::from_ne_bytes(pid), release, spawning, program: program.clone() })
        }
        // No process was created: the error of `spawn` is the cause.
        Err(error) => Err(spawned(spawning, program).err().unwrap_or_else(|| failed(error))),
    }
}

impl HeldCommand {
    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn release(self) -> Result<Child, Failure> {
        let Self { mut release, spawning, program, .. } = self;
        // The write fails if the held process was killed; its status tells.
        release.write_all(&[1]).ok();
        drop(release);
        spawned(spawning, &program)
    }
}

fn spawned(spawning: JoinHandle<io::Result<Child>>, program: &OsStr) -> Result<Child, Failure> {
    let spawned = spawning.join().unwrap_or_else(|_panic| Err(io::Error::other("its thread panicked")));
    spawned.map_err(|error| Failure::NotStarted {
        not_found: error.kind() == io::ErrorKind::NotFound,
        message: format!("cannot run {}: {error}", program.display()),
    })
}

/// Closes the child's copy of the parent's end of a pipe: with it, the child would not notice the death of
/// the parent.
fn close_copy(descriptor: RawFd) {
    #[expect(unsafe_code, reason = "the owner of the descriptor exists in the parent only")]
    // SAFETY: the child has copies of the parent's descriptors, and nothing in the child uses this one.
    unsafe {
        libc::close(descriptor);
    }
}

/// Ends the process if the parent has died.
fn wait_for_release(mut released: &PipeReader) -> io::Result<()> {
    loop {
        match released.read(&mut [0]) {
            Ok(0) => {
                #[expect(
                    unsafe_code,
                    reason = "between fork and exec a process must end without running exit handlers"
                )]
                // SAFETY: _exit(2) has no preconditions.
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

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, Signal, kill_process};

    use super::super::totals::status_code;
    use super::*;

    fn hold_words(words: &[&str]) -> HeldCommand {
        let command: Vec<OsString> = words.iter().map(Into::into).collect();
        hold(&command, Vec::new(), Dispositions::read(), Vec::new()).unwrap()
    }

    /// A single test, since processes that are held at the same time have copies of each other's pipes.
    #[test]
    fn a_command_starts_when_it_is_released_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("started");
        let held = hold_words(&["touch", file.to_str().unwrap()]);
        let name = std::fs::read_to_string(format!("/proc/{}/comm", held.pid())).unwrap();
        assert!(name.trim() != "touch" && !file.exists(), "{name}");
        assert!(held.release().unwrap().wait().unwrap().success() && file.exists());

        let missing = hold_words(&["/nowhere/program"]).release().unwrap_err();
        assert!(matches!(missing, Failure::NotStarted { not_found: true, .. }), "{missing}");

        // SIGINT is not used, since tests in the background of a shell ignore it.
        let ended = hold_words(&["sleep", "600"]);
        kill_process(Pid::from_raw(i32::try_from(ended.pid()).unwrap()).unwrap(), Signal::TERM).unwrap();
        let status = ended.release().unwrap().wait().unwrap();
        assert_eq!(status_code(status), 128 + 15);

        // This simulates the death of this process.
        let HeldCommand { release, spawning, .. } = hold_words(&["sleep", "600"]);
        drop(release);
        let status = spawning.join().unwrap().unwrap().wait().unwrap();
        assert_eq!(status.code(), Some(ABANDONED));
    }

    #[test]
    fn an_empty_command_is_wrong_usage() {
        assert!(matches!(hold(&[], Vec::new(), Dispositions::read(), Vec::new()), Err(Failure::Usage(_))));
    }
}
