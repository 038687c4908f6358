//! The space of file systems.

use std::path::Path;

/// The space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The free space, as far as users may fill it.
    pub(crate) free_bytes: u64,
    /// The whole space.
    pub(crate) bytes: u64,
}

/// Returns the space of the file system that contains `path`.
pub(crate) fn disk(path: &Path) -> Result<Disk, String> {
    match rustix::fs::statvfs(path) {
        Ok(system) => Ok(Disk {
            free_bytes: system.f_bavail.saturating_mul(system.f_frsize),
            bytes: system.f_blocks.saturating_mul(system.f_frsize),
        }),
        Err(error) => Err(format!("cannot examine {}: {error}", path.display())),
    }
}
