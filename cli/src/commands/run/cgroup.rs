//! Cgroup of the command: a directory in each accessible hierarchy, removed at the end.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use polymeter_client::own_cgroups::OwnCgroups;
use polymeter_proto::units;
use polymeter_service::cgroup_mounts::Mounts;
use rustix::fs::{FlockOperation, flock};

/// Controllers of version 1 in which a directory is created. `cpu` is excluded: a group there changes the
/// scheduling, and therefore the measurement.
const V1_CONTROLLERS: [&str; 5] = ["memory", "cpuacct", "blkio", "pids", "perf_event"];

const PREFIX: &str = "polymeter-run-";

/// Attempts to create a directory. Another run may remove it as that of a dead run.
const ATTEMPTS: usize = 5;

const DEPTH_MAX: usize = 16;

/// Cgroup of the command. Dropping it moves the remaining processes back to their original cgroup, and
/// removes it.
#[derive(Debug, Default)]
pub(crate) struct RunCgroup {
    directories: Vec<RunDirectory>,
}

/// Directory in one hierarchy.
#[derive(Debug)]
struct RunDirectory {
    path: PathBuf,
    origin: PathBuf,
    /// Keeps other runs from removing the directory.
    _lock: File,
}

/// Cgroup of a dead run that still contains processes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OccupiedCgroup {
    /// One in each hierarchy.
    directories: Vec<PathBuf>,
    /// Empty if the kernel does not list them.
    processes: Vec<String>,
}

impl OccupiedCgroup {
    /// Adds the same run's cgroup in another hierarchy.
    fn add(&mut self, other: Self) {
        self.directories.extend(other.directories);
        let new: Vec<String> =
            other.processes.into_iter().filter(|process| !self.processes.contains(process)).collect();
        self.processes.extend(new);
    }
}

impl fmt::Display for OccupiedCgroup {
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
            "cgroup {}{more} of a killed `polymeter run` still contains {processes}; a later run removes it when it is empty",
            directory.unwrap_or_default()
        )
    }
}

impl RunCgroup {
    /// Creates the directories that this user may create, named `polymeter-` and the job's id.
    pub(crate) fn create(mounts: &Mounts, job_id: &str) -> Self {
        let name = &format!("polymeter-{job_id}");
        let mut group = Self::default();
        let Ok(own) = OwnCgroups::read(&mounts.proc) else { return group };
        if let Some(root) = &mounts.v2 {
            let here = root.join(own.path(None));
            // A parent determines the controllers of its directories: a sibling of this process's cgroup has
            // the same ones; only if that fails, the directory is created within the cgroup.
            let parent = here.parent().filter(|parent| parent.starts_with(root)).map(Path::to_owned);
            let parents = parent.into_iter().chain([here.clone()]);
            group.directories.extend(parents.filter_map(|parent| create(&parent, name, &here)).next());
        }
        for controller in V1_CONTROLLERS {
            let Some(root) = mounts.v1.get(controller) else { continue };
            let here = root.join(own.path(Some(controller)));
            // Controllers that are mounted together, `cpu,cpuacct`, share a directory.
            if group.directories.iter().all(|directory| directory.path.parent() != Some(&here)) {
                group.directories.extend(create(&here, name, &here));
            }
        }
        group
    }

    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.directories.iter().map(|directory| directory.path.clone()).collect()
    }

    /// Says that processes go on behind the end of the command; none where no cgroup shows them.
    pub(crate) fn survivors(&self) -> Option<String> {
        let count = processes(&self.directories.first()?.path, DEPTH_MAX).map_or(0, |found| found.len());
        let (number, verb) = (units::counted(count, "process"), if count == 1 { "goes" } else { "go" });
        (count > 0).then(|| format!("{number} of the command {verb} on, and this report ends before"))
    }

    /// Opens the files to which a process writes itself to enter the cgroup.
    pub(crate) fn entrances(&self) -> io::Result<Vec<File>> {
        let files = self.directories.iter().map(|directory| directory.path.join("cgroup.procs"));
        files.map(|file| OpenOptions::new().write(true).open(file)).collect()
    }

    /// Removes the cgroups of this user's dead runs in the same places. A run is dead if its directory is not
    /// locked. Returns those that still contain processes; they are kept.
    pub(crate) fn remove_dead(&self) -> Vec<OccupiedCgroup> {
        let mut occupied: Vec<OccupiedCgroup> = Vec::new();
        for parent in self.directories.iter().filter_map(|directory| directory.path.parent()) {
            for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
                let is_own = self.directories.iter().any(|directory| directory.path == entry.path());
                let name = entry.file_name();
                if is_own || !name.to_string_lossy().starts_with(PREFIX) {
                    continue;
                }
                let Some(found) = remove_if_dead(&entry.path()) else { continue };
                let is_same =
                    |known: &&mut OccupiedCgroup| known.directories.iter().any(|path| path.ends_with(&name));
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
        for RunDirectory { path, origin, .. } in &self.directories {
            if let Ok(mut back) = OpenOptions::new().write(true).open(origin.join("cgroup.procs")) {
                for pid in processes(path, DEPTH_MAX).unwrap_or_default() {
                    // A process that has just ended cannot be moved.
                    back.write_all(pid.as_bytes()).ok();
                }
            }
            // The kernel releases a cgroup shortly after its last process was reaped.
            for _ in 0..50 {
                match remove_tree(path, DEPTH_MAX) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => pause(),
                    Ok(()) | Err(_) => break,
                }
            }
        }
    }
}

fn pause() {
    let short = rustix::event::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    // A signal shortens the pause.
    rustix::event::poll(&mut [], Some(&short)).ok();
}

/// Creates `name` in `parent` if processes can be moved there from `origin`.
fn create(parent: &Path, name: &str, origin: &Path) -> Option<RunDirectory> {
    let path = parent.join(name);
    let lock = (0..ATTEMPTS).find_map(|_| {
        fs::create_dir(&path).ok()?;
        let lock = File::open(&path).ok()?;
        flock(&lock, FlockOperation::LockExclusive).ok()?;
        is_same_directory(&path, &lock).then_some(lock)
    });
    let lock = lock?;
    let is_writable =
        |directory: &Path| OpenOptions::new().write(true).open(directory.join("cgroup.procs")).is_ok();
    if is_writable(&path) && is_writable(origin) {
        return Some(RunDirectory { path, origin: origin.to_owned(), _lock: lock });
    }
    fs::remove_dir(&path).ok();
    None
}

/// True if `path` is the opened directory, and not a new one in its place.
fn is_same_directory(path: &Path, opened: &File) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let current = fs::symlink_metadata(path).map(identity);
    current.is_ok_and(|current| opened.metadata().is_ok_and(|metadata| identity(metadata) == current))
}

/// Removes a directory of this user whose run is dead; returns it if it still contains processes.
fn remove_if_dead(directory: &Path) -> Option<OccupiedCgroup> {
    let metadata = fs::symlink_metadata(directory).ok()?;
    if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let lock = File::open(directory).ok()?;
    // A live run holds the lock; the kernel releases it when the run ends in any way.
    flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
    let occupied =
        |processes: Vec<String>| Some(OccupiedCgroup { directories: vec![directory.to_owned()], processes });
    match processes(directory, DEPTH_MAX) {
        Ok(processes) if processes.is_empty() => match remove_tree(directory, DEPTH_MAX) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => occupied(processes),
            Ok(()) | Err(_) => None,
        },
        Ok(processes) => occupied(processes),
        // A threaded cgroup does not list processes; a directory that has just disappeared needs no removal.
        Err(_) => directory.is_dir().then(|| occupied(Vec::new())).flatten(),
    }
}

fn processes(directory: &Path, depth: usize) -> io::Result<Vec<String>> {
    let mut found: Vec<String> =
        fs::read_to_string(directory.join("cgroup.procs"))?.lines().map(str::to_owned).collect();
    for within in cgroups_within(directory, depth) {
        found.extend(processes(&within, depth - 1)?);
    }
    Ok(found)
}

/// Removes a cgroup and its descendants, which the command may have created.
fn remove_tree(directory: &Path, depth: usize) -> io::Result<()> {
    for within in cgroups_within(directory, depth) {
        remove_tree(&within, depth - 1)?;
    }
    fs::remove_dir(directory)
}

/// Child cgroups; none at the maximum depth.
fn cgroups_within(directory: &Path, depth: usize) -> Vec<PathBuf> {
    if depth == 0 {
        return Vec::new();
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}
