//! Cgroups below a cgroup.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Links of a directory without subdirectories: its name and its `.`. Each subdirectory adds its `..`, in
/// cgroups as in most file systems; others state 1 for every directory (inode(7)).
const LINKS_WITHOUT_SUBDIRECTORIES: u64 = 2;

/// Directories in a directory; none if it does not exist. Most cgroups have dozens of files and no
/// subdirectory, so that the number of links spares a list.
pub(crate) fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    if fs::metadata(directory).is_ok_and(|metadata| metadata.nlink() == LINKS_WITHOUT_SUBDIRECTORIES) {
        return Vec::new();
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    below.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_found_as_they_come_and_go() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("file"), "").unwrap();
        assert_eq!(subdirectories(top.path()), [] as [PathBuf; 0]);
        let (first, second) = (top.path().join("a"), top.path().join("b"));
        fs::create_dir(&first).unwrap();
        assert_eq!(subdirectories(top.path()), [first.as_path()]);
        fs::create_dir(&second).unwrap();
        fs::remove_dir(&first).unwrap();
        assert_eq!(subdirectories(top.path()), [second.as_path()]);
        assert_eq!(subdirectories(&first), [] as [PathBuf; 0]);
    }
}
