//! A cgroup for the command: one directory in each hierarchy that can be had, removed at the end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use polymeter_agent::jobs::hierarchy::Mounts;

use crate::own::OwnCgroups;

/// Controllers of version 1 in which a directory is made. Not `cpu`: a group there changes how the scheduler shares
/// the CPUs, and so what is measured.
const V1_CONTROLLERS: [&str; 5] = ["memory", "cpuacct", "blkio", "pids", "perf_event"];

/// The command's cgroup. Dropping it moves what still runs in it back to where it came from, and removes it.
#[derive(Debug, Default)]
pub(crate) struct RunCgroup {
    /// Each directory that was made, and the one above it from which the processes came.
    made: Vec<(PathBuf, PathBuf)>,
}

impl RunCgroup {
    /// Makes what can be made, under the name `name`. Without any right to it there is none.
    pub(crate) fn make(mounts: &Mounts, name: &str) -> Self {
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
            if group.made.iter().all(|(directory, _)| directory.parent() != Some(&here)) {
                group.made.extend(make(&here, name, &here));
            }
        }
        group
    }

    /// The directories that were made.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        self.made.iter().map(|(directory, _)| directory.clone()).collect()
    }

    /// The files into which a process writes itself to be in the cgroup.
    pub(crate) fn entrances(&self) -> io::Result<Vec<File>> {
        self.made
            .iter()
            .map(|(directory, _)| OpenOptions::new().write(true).open(directory.join("cgroup.procs")))
            .collect()
    }
}

impl Drop for RunCgroup {
    fn drop(&mut self) {
        for (directory, from) in &self.made {
            let left = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            if let Ok(mut back) = OpenOptions::new().write(true).open(from.join("cgroup.procs")) {
                for pid in left.lines() {
                    // A process that has just ended cannot be moved, and need not be.
                    back.write_all(pid.as_bytes()).ok();
                }
            }
            // The kernel frees a cgroup a moment after its last process was reaped.
            for _ in 0..50 {
                match fs::remove_dir(directory) {
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

/// Makes `name` in `above` if processes can be moved there from `here`, and says both.
fn make(above: &Path, name: &str, here: &Path) -> Option<(PathBuf, PathBuf)> {
    let directory = above.join(name);
    fs::create_dir(&directory).ok()?;
    let enterable = OpenOptions::new().write(true).open(directory.join("cgroup.procs")).is_ok()
        && OpenOptions::new().write(true).open(here.join("cgroup.procs")).is_ok();
    if enterable {
        return Some((directory, here.to_owned()));
    }
    fs::remove_dir(&directory).ok();
    None
}
