//! Space of file systems.

use std::path::{Path, PathBuf};

use polymeter_store::Storage;
use rustix::io::Errno;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disk {
    /// Space that users may fill.
    pub(crate) free_bytes: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum UnknownSpace {
    #[error("{0}")]
    NoDirectory(&'static str),
    #[error("cannot examine {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: Errno },
}

pub(crate) fn disk_of(storage: &Storage) -> Result<Disk, UnknownSpace> {
    disk(storage.directory.as_deref().map_err(|reason| UnknownSpace::NoDirectory(reason))?)
}

/// File system that contains `path`.
pub(crate) fn disk(path: &Path) -> Result<Disk, UnknownSpace> {
    match rustix::fs::statvfs(path) {
        Ok(system) => Ok(Disk {
            free_bytes: system.f_bavail.saturating_mul(system.f_frsize),
            bytes: system.f_blocks.saturating_mul(system.f_frsize),
        }),
        Err(error) => Err(UnknownSpace::Unreadable { path: path.to_owned(), error }),
    }
}
