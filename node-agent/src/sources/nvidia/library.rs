//! Library of the NVIDIA driver: the search for it, and signs that it may be found now.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// Name with the first version of the interface, which all drivers have.
const NAME: &str = "libnvidia-ml.so.1";

/// Directories that are searched, below the root: those of distributions, of NixOS, and of containers.
const DIRECTORIES: [&str; 9] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "run/opengl-driver/lib",
    "usr/local/nvidia/lib64",
    "usr/local/nvidia/lib",
    "usr/local/lib",
    "opt/nvidia/lib64",
];

/// Files below the root that change when a driver is installed, loaded or removed.
const SIGNS: [&str; 4] =
    ["etc/ld.so.cache", "proc/driver/nvidia/version", "dev/nvidiactl", "sys/bus/pci/drivers/nvidia"];

#[derive(Debug)]
pub(super) struct LoadError {
    pub(super) reason: String,
    /// True if the library was found, so that another attempt may succeed although no file changes.
    pub(super) is_found: bool,
}

/// Loads the library, and initializes it. It may block.
pub(super) fn load(root: &Path) -> Result<Nvml, LoadError> {
    let by_linker = (root == Path::new("/")).then(|| PathBuf::from(NAME));
    let files = paths(root).into_iter().filter(|path| path.exists());
    let mut error =
        LoadError { reason: format!("no NVIDIA driver: {NAME} is not installed"), is_found: false };
    for path in by_linker.into_iter().chain(files) {
        match Nvml::builder().lib_path(path.as_os_str()).init() {
            Ok(nvml) => return Ok(nvml),
            Err(NvmlError::LibloadingError(failure)) if path == Path::new(NAME) => {
                tracing::debug!(%failure, "the linker does not find {NAME}");
            }
            Err(failure) => {
                let reason = format!("NVIDIA driver: {}: {failure}", path.display());
                error = LoadError { reason, is_found: true };
            }
        }
    }
    Err(error)
}

fn paths(root: &Path) -> Vec<PathBuf> {
    DIRECTORIES.iter().map(|directory| root.join(directory).join(NAME)).collect()
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signs {
    modified: Vec<Option<SystemTime>>,
    devices: BTreeSet<std::ffi::OsString>,
}

impl Signs {
    pub(super) fn look(root: &Path) -> Self {
        let files = paths(root).into_iter().chain(SIGNS.iter().map(|sign| root.join(sign)));
        let entries = fs::read_dir(root.join("sys/bus/pci/drivers/nvidia")).into_iter().flatten().flatten();
        Self {
            modified: files.map(|path| fs::metadata(path).and_then(|file| file.modified()).ok()).collect(),
            devices: entries.map(|entry| entry.file_name()).collect(),
        }
    }
}
