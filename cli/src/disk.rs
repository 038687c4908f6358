//! The space of file systems.

use std::path::{Path, PathBuf};

use polymeter_store::Storage;
use rustix::io::Errno;

/// The space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The free space, as far as users may fill it.
    pub(crate) free_bytes: u64,
    /// The whole space.
    pub(crate) bytes: u64,
}

/// The reason for which the space is not known.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum UnknownSpace {
    /// The store's own reason.
    #[error("{0}")]
    NoDirectory(&'static str),
    #[error("cannot examine {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: Errno },
}

/// Returns the space of the file system that contains a store.
pub(crate) fn disk_of(storage: &Storage) -> Result<Disk, UnknownSpace> {
    disk(storage.directory.as_deref().map_err(|reason| UnknownSpace::NoDirectory(reason))?)
}

/// Returns the space of the file system that contains `path`.
pub(crate) fn disk(path: &Path) -> Result<Disk, UnknownSpace> {
    match rustix::fs::statvfs(path) {
        Ok(system) => Ok(Disk {
            free_bytes: system.f_bavail.saturating_mul(system.f_frsize),
            bytes: system.f_blocks.saturating_mul(system.f_frsize),
        }),
        Err(error) => Err(UnknownSpace::Unreadable { path: path.to_owned(), error }),
    }
}
