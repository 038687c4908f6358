//! Operations that a plain directory does not have: in resctrl's file system a new directory has files, and a
//! removed one need not be empty.

use std::fmt::Debug;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Operations on monitoring groups. Tests on a laid-out tree have others than the kernel's.
pub(super) trait Operations: Debug + Sync {
    /// Creates a monitoring group, which takes an RMID.
    fn create_group(&self, group: &Path) -> io::Result<()>;

    /// Removes a monitoring group. Its tasks fall back to the control group.
    fn remove_group(&self, group: &Path) -> io::Result<()>;

    /// Moves a thread into a monitoring group; what it starts later is in the group, too.
    fn add_task(&self, group: &Path, thread: u32) -> io::Result<()>;
}

#[derive(Debug)]
pub(super) struct Kernel;

impl Operations for Kernel {
    fn create_group(&self, group: &Path) -> io::Result<()> {
        fs::create_dir(group)
    }

    fn remove_group(&self, group: &Path) -> io::Result<()> {
        fs::remove_dir(group)
    }

    fn add_task(&self, group: &Path, thread: u32) -> io::Result<()> {
        // One write for each thread: of several, the first failure would end the rest.
        OpenOptions::new().append(true).open(group.join("tasks"))?.write_all(format!("{thread}\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_is_a_line() {
        let directory = tempfile::tempdir().unwrap();
        let group = directory.path().join("polymeter-1");
        Kernel.create_group(&group).unwrap();
        assert_eq!(Kernel.create_group(&group).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(Kernel.add_task(&group, 7).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(group.join("tasks"), "").unwrap();
        Kernel.add_task(&group, 7).unwrap();
        Kernel.add_task(&group, 88).unwrap();
        assert_eq!(fs::read_to_string(group.join("tasks")).unwrap(), "7\n88\n");
        fs::remove_file(group.join("tasks")).unwrap();
        Kernel.remove_group(&group).unwrap();
        assert!(!group.exists());
    }
}
