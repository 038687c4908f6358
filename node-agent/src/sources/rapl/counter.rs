//! Domains of energy, and their counters.

use std::fmt;
use std::path::Path;

use crate::sources::kernel_text;
use crate::sources::outcome::Outcome;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Domain {
    pub(super) field: &'static str,
    pub(super) event: &'static str,
    /// Zone of powercap, without the number of a package.
    pub(super) zone: &'static str,
}

pub(super) static DOMAINS: [Domain; 5] = [
    Domain { field: "package", event: "energy-pkg", zone: "package" },
    Domain { field: "cores", event: "energy-cores", zone: "core" },
    Domain { field: "memory", event: "energy-ram", zone: "dram" },
    Domain { field: "gpu", event: "energy-gpu", zone: "uncore" },
    Domain { field: "platform", event: "energy-psys", zone: "psys" },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Package {
    pub(super) number: u32,
    /// Die, where each die of a package has counters of its own.
    pub(super) die: Option<u32>,
}

pub(super) trait EnergyCounter: Send + fmt::Debug {
    /// Energy since the counter was opened, in joules; `None` if it has counted nothing.
    fn read(&mut self, now_ns: u64) -> Result<Option<f64>, Outcome>;

    /// Longest time between two reads after which the energy is still known; `None` if any is.
    fn longest_gap_ns(&self) -> Option<u64>;
}

/// A counter and its package; `None` for the platform: each package may count a part of it.
pub(super) type PlacedCounter = (Option<Package>, Box<dyn EnergyCounter>);

pub(super) fn text_of(path: &Path) -> Option<String> {
    Some(kernel_text::text(path).ok()?.trim().to_owned())
}
