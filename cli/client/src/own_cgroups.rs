//! Cgroups of this process.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use polymeter_service::cgroup_mounts::Mounts;
use procfs::{FromBufRead, ProcessCGroups};

#[derive(Debug)]
pub struct OwnCgroups(ProcessCGroups);

impl OwnCgroups {
    pub fn read(proc: &Path) -> io::Result<Self> {
        let file = File::open(proc.join("self/cgroup"))?;
        ProcessCGroups::from_buf_read(BufReader::new(file)).map(Self).map_err(io::Error::other)
    }

    /// Path below the root of a hierarchy: of a version 1 controller, or of version 2 without a controller.
    pub fn path(&self, controller: Option<&str>) -> PathBuf {
        let in_hierarchy = self.0.0.iter().find(|cgroup| match controller {
            None => cgroup.hierarchy == 0,
            Some(controller) => cgroup.controllers.iter().any(|name| name == controller),
        });
        let path = in_hierarchy.map_or("", |cgroup| cgroup.pathname.as_str());
        PathBuf::from(path.trim_start_matches('/'))
    }

    /// Lists them in all mounted hierarchies.
    pub fn directories(&self, mounts: &Mounts) -> Vec<PathBuf> {
        let v2 = mounts.v2.iter().map(|root| root.join(self.path(None)));
        let v1 = mounts.v1.iter().map(|(controller, root)| root.join(self.path(Some(controller))));
        v2.chain(v1).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_process_has_a_directory_in_each_hierarchy() {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("self")).unwrap();
        let text = "9:memory:/slurm/uid_7/job_42/step_0\n4:cpu,cpuacct:/\n0::/system.slice/x\n";
        fs::write(proc.path().join("self/cgroup"), text).unwrap();
        let own = OwnCgroups::read(proc.path()).unwrap();
        let mounts = Mounts {
            v2: Some("/cg/unified".into()),
            v1: [("memory".to_owned(), "/cg/memory".into()), ("cpuacct".to_owned(), "/cg/cpu".into())].into(),
            ..Mounts::default()
        };
        let expected = ["/cg/unified/system.slice/x", "/cg/cpu", "/cg/memory/slurm/uid_7/job_42/step_0"];
        assert_eq!(own.directories(&mounts), expected.map(|path| Path::new(path).join("")));
    }
}
