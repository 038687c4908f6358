//! Cgroups of the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use polymeter_agent::cgroups::{JobCgroups, Mounts};
use polymeter_agent::sources::Target;
use polymeter_test_harness::skip;

/// A cgroup of version 2, which is removed at the end.
#[derive(Debug)]
pub(crate) struct Cgroup(pub(crate) PathBuf);

impl Cgroup {
    pub(crate) fn create() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            skip("root", "the tests do not run as root");
        }
        let mounts = Mounts::read(Path::new("/")).unwrap();
        let Some(root) = mounts.v2 else { skip("cgroup2", "cgroups of version 2 are not mounted") };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("polymeter-ebpf-{}-{number}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Self(path),
            Err(error) => skip("cgroup2", &format!("{}: {error}", path.display())),
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes a cgroup. A process that has ended a moment ago may still be in it.
pub(crate) fn remove(cgroup: &Path) {
    for _ in 0..100 {
        if fs::remove_dir(cgroup).is_ok() {
            return;
        }
        polymeter_agent::clock::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn target_of(cgroup: &Path) -> Target {
    Target::Cgroups(JobCgroups { v2: Some(cgroup.to_owned()), ..JobCgroups::default() })
}
