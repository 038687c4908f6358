//! A job in real cgroups, with a workload that allocates memory, computes and writes.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use polymeter_agent::cgroups::Mounts;

/// Cgroups and workload of a job. Dropping it removes both.
#[derive(Debug)]
pub struct Job {
    name: String,
    directories: Vec<PathBuf>,
    workload: Option<Child>,
}

/// Allocates and frees memory, computes, writes files and forks. Uses about a fifth of a core.
const WORKLOAD: &str = "
    while :; do
        head -c 30000000 /dev/zero | tail -c 30000000 | wc -c > /dev/null
        i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done
        head -c 200000 /dev/zero > \"$1\"
        sleep 0.05
    done";

impl Job {
    /// Creates cgroups called `name` for a job: in the hierarchies memory, cpuacct and pids of version 1, and
    /// in version 2.
    pub fn make(mounts: &Mounts, name: &str) -> io::Result<Self> {
        let wanted = ["memory", "cpuacct", "pids"];
        let v1 = mounts
            .v1
            .iter()
            .filter(|(controller, _)| wanted.contains(&controller.as_str()))
            .map(|(_, root)| root);
        let mut roots: Vec<&PathBuf> = v1.chain(&mounts.v2).collect();
        roots.sort_unstable();
        roots.dedup();
        let mut job = Self { name: name.to_owned(), directories: Vec::new(), workload: None };
        for root in roots {
            let directory = root.join(name);
            fs::create_dir(&directory).map_err(|error| {
                let remedy =
                    if error.kind() == io::ErrorKind::PermissionDenied { "; run it as root" } else { "" };
                let message = format!("cannot create the cgroup {}: {error}{remedy}", directory.display());
                io::Error::new(error.kind(), message)
            })?;
            job.directories.push(directory);
        }
        Ok(job)
    }

    /// Creates cgroups for a job of this process, with a name that contains `purpose`.
    pub fn make_for(purpose: &str, number: u32) -> io::Result<Self> {
        let mounts = Mounts::read(Path::new("/"))?;
        remove_stale(&mounts);
        Self::make(&mounts, &format!("polymeter_{purpose}_{}x{number}", std::process::id()))
    }

    /// Job id as an agent derives it with [`Job::pattern`].
    pub fn id(&self) -> &str {
        self.name.rsplit_once('_').map_or("", |(_, id)| id)
    }

    /// Pattern with which an agent discovers this job and all others of the same purpose.
    pub fn pattern(&self) -> String {
        format!("{}_{{job}}", self.name.rsplit_once('_').map_or(self.name.as_str(), |(head, _)| head))
    }

    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Cgroup directories separated by spaces, for the commands of other tools.
    pub fn cgroups(&self) -> String {
        let directories: Vec<_> =
            self.directories.iter().map(|directory| directory.to_string_lossy()).collect();
        directories.join(" ")
    }

    /// Builds a command that moves itself into the job and then executes `program`.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{}exec \"$0\" \"$@\"", self.enter())]).arg(program);
        command
    }

    /// Starts the workload, which writes to `scratch`.
    pub fn work(&mut self, scratch: &Path) -> io::Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{}{WORKLOAD}", self.enter()), "sh"]).arg(scratch);
        self.workload = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
        Ok(())
    }

    fn enter(&self) -> String {
        let enter =
            |directory: &PathBuf| format!("echo $$ > {}/cgroup.procs || exit 1\n", directory.display());
        self.directories.iter().map(enter).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(workload) = &mut self.workload {
            // Its child processes are in the cgroup and are killed below.
            workload.kill().ok();
            workload.wait().ok();
        }
        for directory in &self.directories {
            for _ in 0..200 {
                for pid in fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default().lines() {
                    let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
                    pid.and_then(|pid| {
                        rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok()
                    });
                }
                match fs::remove_dir(directory) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => pause(5_000_000),
                    Ok(()) | Err(_) => break,
                }
            }
        }
    }
}

/// Removes the empty cgroups of experiments that have ended, so that no agent discovers them as jobs.
pub fn remove_stale(mounts: &Mounts) {
    for root in mounts.v1.values().chain(&mounts.v2) {
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            if maker(&entry.file_name()).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                remove_empty(&entry.path());
            }
        }
    }
}

fn remove_empty(cgroup: &Path) {
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    // The kernel refuses to remove a cgroup that is in use.
    fs::remove_dir(cgroup).ok();
}

/// Process that has made the cgroup `polymeter_PURPOSE_PID`, or `polymeter_PURPOSE_PIDxNUMBER`.
fn maker(name: &OsStr) -> Option<u32> {
    let (_, id) = name.to_str()?.strip_prefix("polymeter_")?.rsplit_once('_')?;
    id.split('x').next()?.parse().ok()
}

/// A signal may end the sleep early.
pub fn pause(ns: i64) {
    let time = rustix::event::Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
    // A signal shortens the pause.
    rustix::event::poll(&mut [], Some(&time)).ok();
}

pub fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(true).open(path)?.write_all(text.as_bytes())
}
