//! CPUs on which programs may run.

use std::io;
use std::path::Path;

use crate::sources::cpu_list;
use crate::sources::kernel_text::{self, FileError};

/// Number of CPUs that can ever be online: one more than the highest CPU number on which a program may run.
pub(super) fn possible_cpus(root: &Path) -> Result<u32, FileError> {
    let path = root.join("sys/devices/system/cpu/possible");
    let text = kernel_text::text(&path).map_err(FileError::of(&path))?;
    let highest = cpu_list::parse(text.trim()).and_then(|cpus| cpus.into_iter().max());
    let count = highest.and_then(|highest| u32::try_from(highest + 1).ok());
    count.ok_or_else(|| FileError { path, error: io::Error::other("not a list of CPUs") })
}
