//! A cgroup for the command: one directory in each hierarchy that can be had, removed at the end.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use polymeter_agent::cgroups::Mounts;
use rustix::fs::{FlockOperation, flock};

use crate::own::OwnCgroups;

/// Controllers of version 1 in which a directory is made. Not `cpu`: a group there changes how the scheduler shares
/// the CPUs, and so what is measured.
const V1_CONTROLLERS: [&str; 5] = ["memory", "cpuacct", "blkio", "pids", "perf_event"];

/// How the names of all these directories begin.
const PREFIX: &str = "polymeter-run-";

/// How often a directory is made again that another run has taken for a dead one's and removed.
const ATTEMPTS: usize = 5;

/// How deep the cgroups within a command's cgroup are searched.
const DEPTH_MAX: usize = 16;

/// The command's cgroup. Dropping it moves what still runs in it back to where it came from, and removes it.
#[derive(Debug, Default)]
pub(crate) struct RunCgroup {
    made: Vec<Made>,
}

/// One directory of the command's cgroup.
#[derive(Debug)]
struct Made {
    directory: PathBuf,
    /// The cgroup from which the processes came.
    from: PathBuf,
    /// Locked for as long as this process lives, so that other runs leave the directory alone.
    _lock: File,
}

/// The cgroup of a run that died, in which processes still run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Occupied {
    /// One in each hierarchy.
    directories: Vec<PathBuf>,
    /// Empty where the kernel does not list them.
    processes: Vec<String>,
}

impl Occupied {
    /// Adds what was found of the same run in another hierarchy.
    fn add(&mut self, other: Self) {
        self.directories.extend(other.directories);
        let new: Vec<String> =
            other.processes.into_iter().filter(|process| !self.processes.contains(process)).collect();
        self.processes.extend(new);
    }
}

impl fmt::Display for Occupied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let processes = match self.processes.as_slice() {
            [] => "processes".to_owned(),
            [pid] => format!("process {pid}"),
            pids => format!("processes {}", pids.join(", ")),
        };
        let directory = self.directories.first().map(|directory| directory.display().to_string());
        let more = match self.directories.len() {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        write!(
            f,
            "left alone: {processes} of a `polymeter run` that died; a later run removes its cgroup {}{more} when it is empty",
            directory.unwrap_or_default()
        )
    }
}

impl RunCgroup {
    /// Makes what can be made, under the name `polymeter-` and the job's id. Without any right to it there is none.
    pub(crate) fn make(mounts: &Mounts, job_id: &str) -> Self {
        let name = &format!("polymeter-{job_id}");
        let mut group = Self::default();
        let Ok(own) = OwnCgroups::read(&mounts.proc) else { return group };
        if let Some(root) = &mounts.v2 {
            let here = root.join(own.path(None));
            // A directory's controllers are those that the one above gives: so first beside this process's cgroup,
            // whose parent gives what this one has, then within it.
            let beside = here.parent().filter(|parent| parent.starts_with(root)).map(Path::to_owned);
            let places = beside.into_iter().chain([here.clone()]);
            group.made.extend(places.filter_map(|above| make(&above, name, &here)).next());
        }
        for controller in V1_CONTROLLERS {
            let Some(root) = mounts.v1.get(controller) else { continue };
            let here = root.join(own.path(Some(controller)));
            // Joint hierarchies, `cpu,cpuacct`, are one directory.
            if group.made.iter().all(|made| made.directory.parent() != Some(&here)) {
                group.made.extend(make(&here, name, &here));
            }
        }
        group
    }

    /// The directories that were made.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        self.made.iter().map(|made| made.directory.clone()).collect()
    }

    /// The files into which a process writes itself to be in the cgroup.
    pub(crate) fn entrances(&self) -> io::Result<Vec<File>> {
        self.made
            .iter()
            .map(|made| OpenOptions::new().write(true).open(made.directory.join("cgroup.procs")))
            .collect()
    }

    /// Removes the cgroups of this user's dead runs beside this one. A run is dead when nothing holds the lock of its
    /// directory, and its process is gone. Returns those in which processes still run: they are left alone.
    pub(crate) fn remove_dead(&self, proc: &Path) -> Vec<Occupied> {
        let mut occupied: Vec<Occupied> = Vec::new();
        for above in self.made.iter().filter_map(|made| made.directory.parent()) {
            for entry in fs::read_dir(above).into_iter().flatten().flatten() {
                let is_own = self.made.iter().any(|made| made.directory == entry.path());
                let name = entry.file_name();
                let Some(run) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
                if is_own || is_running(proc, run) {
                    continue;
                }
                let Some(found) = remove_if_dead(&entry.path()) else { continue };
                let is_same =
                    |known: &&mut Occupied| known.directories.iter().any(|path| path.ends_with(&name));
                match occupied.iter_mut().find(is_same) {
                    Some(known) => known.add(found),
                    None => occupied.push(found),
                }
            }
        }
        occupied
    }
}

impl Drop for RunCgroup {
    fn drop(&mut self) {
        for Made { directory, from, .. } in &self.made {
            if let Ok(mut back) = OpenOptions::new().write(true).open(from.join("cgroup.procs")) {
                for pid in processes(directory, DEPTH_MAX).unwrap_or_default() {
                    // A process that has just ended cannot be moved, and need not be.
                    back.write_all(pid.as_bytes()).ok();
                }
            }
            // The kernel frees a cgroup a moment after its last process was reaped.
            for _ in 0..50 {
                match remove_tree(directory, DEPTH_MAX) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => pause(),
                    Ok(()) | Err(_) => break,
                }
            }
        }
    }
}

fn pause() {
    let short = rustix::event::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    // An interrupted pause is a shorter one.
    rustix::event::poll(&mut [], Some(&short)).ok();
}

/// Makes `name` in `above` if processes can be moved there from `here`.
fn make(above: &Path, name: &str, here: &Path) -> Option<Made> {
    let directory = above.join(name);
    let lock = (0..ATTEMPTS).find_map(|_| {
        fs::create_dir(&directory).ok()?;
        let lock = File::open(&directory).ok()?;
        flock(&lock, FlockOperation::LockExclusive).ok()?;
        is_still(&directory, &lock).then_some(lock)
    });
    let lock = lock?;
    let enterable = OpenOptions::new().write(true).open(directory.join("cgroup.procs")).is_ok()
        && OpenOptions::new().write(true).open(here.join("cgroup.procs")).is_ok();
    if enterable {
        return Some(Made { directory, from: here.to_owned(), _lock: lock });
    }
    fs::remove_dir(&directory).ok();
    None
}

/// Whether `path` is the directory that was opened, and not one that was made again in its place.
fn is_still(path: &Path, opened: &File) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let there = fs::symlink_metadata(path).map(identity);
    there.is_ok_and(|there| opened.metadata().is_ok_and(|metadata| identity(metadata) == there))
}

/// Whether the process of the run `PID-SECONDS` is there. Versions before this one do not lock their directories.
fn is_running(proc: &Path, run: &str) -> bool {
    let pid = run.split('-').next().unwrap_or(run);
    // Of a zombie there is no program any more.
    let program = fs::read_link(proc.join(pid).join("exe")).unwrap_or_default();
    program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("polymeter"))
}

/// Removes a directory of this user's whose run is dead; returns it where processes still run in it.
fn remove_if_dead(directory: &Path) -> Option<Occupied> {
    let metadata = fs::symlink_metadata(directory).ok()?;
    if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let lock = File::open(directory).ok()?;
    // A live run holds it; the kernel lets go of it when the run dies, however it dies.
    flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
    let occupied =
        |processes: Vec<String>| Some(Occupied { directories: vec![directory.to_owned()], processes });
    match processes(directory, DEPTH_MAX) {
        Ok(processes) if processes.is_empty() => match remove_tree(directory, DEPTH_MAX) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => occupied(processes),
            Ok(()) | Err(_) => None,
        },
        Ok(processes) => occupied(processes),
        // Threads are not listed as processes in a threaded cgroup, and one that has just gone needs no removal.
        Err(_) => directory.is_dir().then(|| occupied(Vec::new())).flatten(),
    }
}

/// The processes of a cgroup and of those within it.
fn processes(directory: &Path, depth: usize) -> io::Result<Vec<String>> {
    let mut found: Vec<String> =
        fs::read_to_string(directory.join("cgroup.procs"))?.lines().map(str::to_owned).collect();
    for within in cgroups_within(directory, depth) {
        found.extend(processes(&within, depth - 1)?);
    }
    Ok(found)
}

/// Removes a cgroup and those within it, which a command may have made and left.
fn remove_tree(directory: &Path, depth: usize) -> io::Result<()> {
    for within in cgroups_within(directory, depth) {
        remove_tree(&within, depth - 1)?;
    }
    fs::remove_dir(directory)
}

/// The cgroups directly within one; none where that is too deep to be searched.
fn cgroups_within(directory: &Path, depth: usize) -> Vec<PathBuf> {
    if depth == 0 {
        return Vec::new();
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}
