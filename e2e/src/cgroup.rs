//! Real cgroups, which are removed when the test ends, also after a failure.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::daemons::Daemon;
use crate::{pause, unique, wait_until};

pub const V1: [&str; 4] = ["cpu", "cpuacct", "memory", "pids"];

/// Stands for version 2 in place of a controller's name.
pub const V2: &str = "";

/// Finds the mount point of a version 1 controller's hierarchy, or of version 2.
pub fn root(controller: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let directory = PathBuf::from(mount.split(' ').nth(4)?);
        let mut words = filesystem.split(' ');
        let (kind, options) = (words.next()?, words.nth(1)?);
        let fits = if controller == V2 {
            kind == "cgroup2"
        } else {
            kind == "cgroup" && options.split(',').any(|option| option == controller)
        };
        fits.then_some(directory)
    })
}

/// Reason why no cgroup can be created there.
pub fn unavailable(controller: &str) -> Option<String> {
    let name = if controller == V2 { "cgroup version 2" } else { controller };
    let Some(root) = root(controller) else { return Some(format!("{name} is not mounted")) };
    let probe = root.join(unique());
    match fs::create_dir(&probe) {
        Err(error) => Some(format!("no cgroup can be made in {}: {error}", root.display())),
        Ok(()) => fs::remove_dir(&probe).err().map(|error| format!("{}: {error}", probe.display())),
    }
}

/// Parent cgroups of one test's jobs: a directory with a unique name in each hierarchy.
pub struct TestCgroups {
    /// First part of the paths of its jobs.
    pub name: String,
    directories: Vec<PathBuf>,
}

impl TestCgroups {
    pub fn new() -> Self {
        let mut cgroups = Self { name: unique(), directories: Vec::new() };
        for controller in V1.into_iter().chain([V2]) {
            let directory = root(controller).unwrap().join(&cgroups.name);
            match fs::create_dir(&directory) {
                Ok(()) => cgroups.directories.push(directory),
                // Controllers that are mounted together share a directory.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", directory.display()),
            }
        }
        cgroups
    }

    /// Pattern of its jobs, for an agent's configuration.
    pub fn pattern(&self) -> String {
        format!("{}/job_{{job}}", self.name)
    }

    /// Creates a job's cgroups one hierarchy after the other, as schedulers do.
    pub fn job(&self, id: &str) -> Job {
        Self::made(id, &format!("job_{id}"), &self.directories)
    }

    pub fn job_under(&self, id: &str, controller: &str) -> Job {
        Self::made(id, &format!("job_{id}"), &[root(controller).unwrap().join(&self.name)])
    }

    /// Creates cgroups above those of jobs, such as a user's.
    pub fn parent(&self, name: &str) -> Job {
        Self::made(name, name, &self.directories)
    }

    fn made(id: &str, name: &str, directories: &[PathBuf]) -> Job {
        let mut job = Job { id: id.to_owned(), directories: Vec::new() };
        for directory in directories {
            let directory = directory.join(name);
            fs::create_dir(&directory).unwrap();
            job.directories.push(directory);
        }
        job
    }
}

impl Drop for TestCgroups {
    fn drop(&mut self) {
        self.directories.iter().for_each(|directory| drop(remove(directory)));
    }
}

pub struct Job {
    pub id: String,
    pub directories: Vec<PathBuf>,
}

impl Job {
    /// Moves a process with all its threads into the job's cgroups.
    pub fn enter(&self, pid: u32) {
        for directory in &self.directories {
            fs::write(directory.join("cgroup.procs"), pid.to_string())
                .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        }
    }

    /// Gives the job's processes all the CPU time they want, whatever else runs.
    pub fn precede_others(&self) {
        let directory = self.directory("cpu");
        for directory in [directory.parent().unwrap(), &directory] {
            fs::write(directory.join("cpu.shares"), "262144").unwrap();
        }
    }

    /// Creates a cgroup within the job, as schedulers do for a step. It is removed with the job.
    pub fn step(&self, name: &str) -> Self {
        let directories: Vec<PathBuf> =
            self.directories.iter().map(|directory| directory.join(name)).collect();
        for directory in &directories {
            fs::create_dir(directory).unwrap();
        }
        Self { id: self.id.clone(), directories }
    }

    pub fn directory(&self, controller: &str) -> PathBuf {
        let root = root(controller).unwrap();
        // The root of version 2 may lie beside the roots of version 1, and above none of them.
        self.directories
            .iter()
            .find(|directory| directory.parent().and_then(Path::parent) == Some(&root))
            .unwrap()
            .clone()
    }

    /// Finds the job's directory in a controller's hierarchy, at any depth.
    pub fn directory_below(&self, controller: &str) -> PathBuf {
        let root = root(controller).unwrap();
        self.directories.iter().find(|directory| directory.starts_with(&root)).unwrap().clone()
    }

    pub fn remove(self) {
        for directory in &self.directories {
            remove(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.directories.iter().for_each(|directory| drop(remove(directory)));
    }
}

/// Memory of a daemon, in a cgroup of version 1. It is removed with the daemon's process.
pub struct MemoryLimit(PathBuf);

impl MemoryLimit {
    pub fn new() -> Self {
        let directory = root("memory").unwrap().join(unique());
        fs::create_dir(&directory).unwrap();
        Self(directory)
    }

    /// A command that moves itself there and becomes the program.
    pub fn within(&self, program: &Command) -> Command {
        let mut shell = Command::new("sh");
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        shell.args(["-c", &script, "sh"]).arg(program.get_program()).args(program.get_args());
        shell
    }

    /// Leaves a daemon no more memory than it has, until the kernel kills it.
    pub fn squeeze(&self, daemon: &mut Daemon) {
        let before = self.kills();
        wait_until("the kernel has killed the daemon for want of memory", || {
            let usage = fs::read_to_string(self.0.join("memory.usage_in_bytes")).unwrap();
            self.set(usage.trim());
            !daemon.runs()
        });
        assert_ne!(self.kills(), before, "another kill");
    }

    pub fn lift(&self) {
        self.set("-1");
    }

    fn set(&self, bytes: &str) {
        // The limit with swap is never below that without. The kernel refuses what it cannot take back.
        for name in ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.limit_in_bytes"] {
            fs::write(self.0.join(name), bytes).ok();
        }
    }

    fn kills(&self) -> String {
        let text = fs::read_to_string(self.0.join("memory.oom_control")).unwrap();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap_or_default().to_owned()
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        remove(&self.0).ok();
    }
}

/// A single frozen thread, until this value is dropped. Uses the version 1 freezer, which accepts single
/// threads.
pub struct FrozenThread {
    directory: PathBuf,
}

impl FrozenThread {
    /// Freezes the thread with this directory in /proc, if the machine has a version 1 freezer.
    pub fn new(thread: &Path) -> Option<Self> {
        let directory = root("freezer")?.join(unique());
        fs::create_dir(&directory).ok()?;
        let freezer = Self { directory };
        fs::write(freezer.directory.join("tasks"), thread.file_name().unwrap().as_encoded_bytes()).unwrap();
        let state = freezer.directory.join("freezer.state");
        fs::write(&state, "FROZEN").unwrap();
        wait_until("the thread is freezer", || fs::read_to_string(&state).unwrap().trim() == "FROZEN");
        Some(freezer)
    }
}

impl Drop for FrozenThread {
    fn drop(&mut self) {
        fs::write(self.directory.join("freezer.state"), "THAWED").ok();
        // The thread may start other threads before it has left the cgroup.
        for _ in 0..500 {
            for thread in fs::read_to_string(self.directory.join("tasks")).unwrap_or_default().lines() {
                fs::write(self.directory.with_file_name("tasks"), thread).ok();
            }
            if fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            pause(10);
        }
    }
}

pub fn processes(directory: &Path) -> Vec<String> {
    let own = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let mut processes: Vec<String> = own.lines().map(str::to_owned).collect();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            processes.extend(self::processes(&entry.path()));
        }
    }
    processes
}

/// Kills the processes in a cgroup, which only this test can have put there, and removes it with all cgroups
/// below it.
pub fn remove(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path())?;
        }
    }
    let mut attempts = 0;
    loop {
        let processes = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        for pid in processes.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw) {
            kill_process(pid, Signal::KILL).ok();
        }
        match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && attempts < 500 => pause(10),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            done => return done,
        }
        attempts += 1;
    }
}
