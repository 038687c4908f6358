//! Numbers of events, and the directories that describe them.

use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::{self, Definition};

use super::event_scale::EventScale;
use crate::cgroups::Mounts;

/// Event by its numbers in the kernel, `type` and the three configs of `perf_event_attr`, and the scale of
/// its counts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Config {
    pub(crate) kind: u32,
    pub(crate) config: u64,
    pub(crate) config1: u64,
    pub(crate) config2: u64,
    /// None if its values are counts.
    pub(crate) scale: Option<EventScale>,
}

impl Config {
    pub(super) const fn of(kind: u32, config: u64) -> Self {
        Self { kind, config, config1: 0, config2: 0, scale: None }
    }

    pub(super) fn measured(&self, definition: &Definition) -> Definition {
        let definition = definition.clone();
        match self.scale {
            Some(scale) => catalogue::measured_in(definition, scale.unit),
            None => definition,
        }
    }

    /// Bits of the value for a count.
    pub(super) fn bits(&self, count: u64) -> u64 {
        self.scale.map_or(count, |scale| scale.bits(count))
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
