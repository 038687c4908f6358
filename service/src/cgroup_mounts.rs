//! Mounts of control groups.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use procfs::process::MountInfo;

/// Controllers of version 1 that hold metrics.
const CONTROLLERS: [&str; 7] = ["memory", "cpu", "cpuacct", "blkio", "pids", "hugetlb", "perf_event"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mounts {
    pub root: PathBuf,
    pub v2: Option<PathBuf>,
    /// Hierarchies of version 1, by controller.
    pub v1: BTreeMap<String, PathBuf>,
    /// Directory of tracefs, even if it is not mounted.
    pub tracefs: PathBuf,
    pub proc: PathBuf,
}

impl Mounts {
    /// Reads the mounts of the machine whose root directory is `root`.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut mounts = Self {
            root: root.to_owned(),
            tracefs: root.join("sys/kernel/tracing"),
            proc: root.join("proc"),
            ..Self::default()
        };
        for info in &mount_infos(root)? {
            let path = mount_path(root, info);
            match info.fs_type.as_str() {
                // The first mount wins: later ones are often bind mounts for containers.
                "cgroup2" if mounts.v2.is_none() => mounts.v2 = Some(path),
                "cgroup" => {
                    for controller in
                        CONTROLLERS.iter().filter(|controller| info.super_options.contains_key(**controller))
                    {
                        mounts.v1.entry((*controller).to_owned()).or_insert_with(|| path.clone());
                    }
                }
                "tracefs" => mounts.tracefs = path,
                _ => {}
            }
        }
        Ok(mounts)
    }

    /// Returns the lock file of LIKWID, whose owner may use the hardware counters.
    pub fn likwid_lock(&self) -> PathBuf {
        self.root.join("var/run/likwid.lock")
    }

    pub fn sys(&self) -> PathBuf {
        self.root.join("sys")
    }

    /// Returns the roots of the hierarchies that can contain a job's cgroup, each once.
    pub fn roots(&self) -> Vec<&Path> {
        let mut roots: Vec<&Path> = self.v2.iter().chain(self.v1.values()).map(PathBuf::as_path).collect();
        roots.sort_unstable();
        roots.dedup();
        roots
    }

    /// Returns true if perf can use cgroups of version 2: `perf_event` is not mounted as version 1.
    pub fn perf_follows_v2(&self) -> bool {
        !self.v1.contains_key("perf_event")
    }
}

/// Returns the roots of all cgroup hierarchies, including those without metrics.
pub fn all_roots(root: &Path) -> io::Result<Vec<PathBuf>> {
    let infos = mount_infos(root)?;
    let cgroups = infos.iter().filter(|info| matches!(info.fs_type.as_str(), "cgroup" | "cgroup2"));
    Ok(cgroups.map(|info| mount_path(root, info)).collect())
}

/// Users name the directories of mount points: bytes that are not UTF-8 are replaced. Lines of another form
/// are left out.
fn mount_infos(root: &Path) -> io::Result<Vec<MountInfo>> {
    let path = root.join("proc/self/mountinfo");
    let bytes = std::fs::read(&path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().filter_map(|line| MountInfo::from_line(line).ok()).collect())
}

fn mount_path(root: &Path, info: &MountInfo) -> PathBuf {
    root.join(info.mount_point.strip_prefix("/").unwrap_or(&info.mount_point))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(mountinfo: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
        std::fs::write(root.path().join("proc/self/mountinfo"), mountinfo).unwrap();
        root
    }

    #[test]
    fn hybrid_mounts_are_found_by_controller() {
        let root = machine(
            "30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             32 23 0:28 / /sys/fs/cgroup/net_cls rw - cgroup cgroup rw,net_cls\n\
             33 23 0:29 / /mnt/trace rw - tracefs tracefs rw\n\
             34 23 0:26 / /again rw - cgroup2 cgroup2 rw\n",
        );
        let mounts = Mounts::read(root.path()).unwrap();
        let path = |path: &str| root.path().join(path);
        assert_eq!(mounts.v2, Some(path("sys/fs/cgroup/unified")), "the first mount counts");
        assert_eq!(mounts.v1["cpu"], path("sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(mounts.v1.len(), 2, "net_cls has no metrics");
        assert_eq!(mounts.roots().len(), 2, "cpu and cpuacct share a root");
        assert!(mounts.perf_follows_v2());
        assert_eq!((mounts.tracefs, mounts.proc), (path("mnt/trace"), path("proc")));
        assert_eq!(all_roots(root.path()).unwrap().len(), 4);
    }

    /// Any user may mount a file system with FUSE, in a directory with any name.
    #[test]
    fn mounts_with_names_of_any_bytes_do_not_hide_others() {
        let root = machine("");
        let table = [
            &b"29 23 0:25 / /home/u/\xff\xfe rw - fuse.sshfs u@h:/ rw\n"[..],
            b"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            b"a line of another form\n\n99 - -\n",
        ];
        std::fs::write(root.path().join("proc/self/mountinfo"), table.concat()).unwrap();
        let mounts = Mounts::read(root.path()).unwrap();
        assert_eq!(mounts.v2, Some(root.path().join("sys/fs/cgroup")));
    }

    #[test]
    fn an_unreadable_mount_table_is_an_error_with_its_path() {
        let error = Mounts::read(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/proc/self/mountinfo: "), "{error}");
    }
}
