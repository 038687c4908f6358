//! Level of a cgroup in its hierarchy.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const ROOT_INODE: u64 = 1;

/// Level of a cgroup: 0 for the root, 1 for a cgroup in it. Fails where the root is not mounted, as in a
/// container.
pub(super) fn level(cgroup: &Path) -> io::Result<u32> {
    let path = fs::canonicalize(cgroup)?;
    let device = fs::metadata(&path)?.dev();
    for (level, ancestor) in (0..).zip(path.ancestors()) {
        let metadata = fs::metadata(ancestor)?;
        if metadata.dev() != device {
            break;
        }
        if metadata.ino() == ROOT_INODE {
            return Ok(level);
        }
    }
    Err(io::Error::other("the root of the cgroups is not mounted; run the agent outside of containers"))
}
