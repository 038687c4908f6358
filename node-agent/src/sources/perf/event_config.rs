//! Numbers of events, and the directories that describe them.

use std::path::{Path, PathBuf};

use crate::cgroups::Mounts;

/// An event by its numbers in the kernel: `type` and the three configs of `perf_event_attr`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) kind: u32,
    pub(crate) config: u64,
    pub(crate) config1: u64,
    pub(crate) config2: u64,
}

impl Config {
    pub(super) const fn of(kind: u32, config: u64) -> Self {
        Self { kind, config, config1: 0, config2: 0 }
    }
}

#[derive(Debug, Clone)]
pub struct EventPlaces {
    pub tracefs: PathBuf,
    pub sys: PathBuf,
    pub proc: PathBuf,
}

impl EventPlaces {
    pub fn of(mounts: &Mounts) -> Self {
        Self { tracefs: mounts.tracefs.clone(), sys: mounts.sys(), proc: mounts.proc.clone() }
    }

    pub fn below(root: &Path) -> Self {
        Self { tracefs: root.join("sys/kernel/tracing"), sys: root.join("sys"), proc: root.join("proc") }
    }

    pub(super) fn pmus(&self) -> PathBuf {
        self.sys.join("bus/event_source/devices")
    }
}
