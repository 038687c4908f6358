//! Energy counters of the zones of powercap, which wrap around.
//!
//! Source: `Documentation/power/powercap/powercap.rst` and `drivers/powercap/intel_rapl_common.c` of Linux.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::{Errno, pread};

use super::counter::{Domain, EnergyCounter, Package, PlacedCounter, text_of};
use super::unwrapped::{TooLate, Unwrapped};
use crate::sources::kernel_text::{self, FileError};
use crate::sources::outcome::Outcome;

const ZONES: &str = "class/powercap";

const CONSTRAINTS: u32 = 5;

/// Highest power of a domain that is believed; the kernel states nonsense where the firmware does.
const STATED_POWER_MAX_W: u64 = 10_000;

/// Shortest time in which a counter may wrap around; the counters of processors take half a minute and more.
const LONGEST_GAP_MIN_NS: u64 = 1_000_000_000;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Zone {
    path: PathBuf,
    /// Domain as in [`Domain::zone`].
    domain: &'static str,
    /// `None` for the platform.
    pub(super) package: Option<Package>,
}

#[cfg(test)]
impl Zone {
    pub(super) fn is_at(&self, path: &Path) -> bool {
        self.path == path
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum PowercapError {
    #[error("powercap has no zone `{0}`")]
    NoZone(&'static str),
    #[error("powercap counts only one core of each package on this CPU")]
    OneCore,
    #[error("{0}{remedy}", remedy = remedy(&.0.error))]
    Unreadable(FileError),
    #[error("{}: it wraps around within a second", .0.display())]
    WrapsAround(PathBuf),
}

fn remedy(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied { "; run the agent as root" } else { "" }
}

pub(super) fn open(sys: &Path, proc: &Path, domain: &Domain) -> Result<Vec<PlacedCounter>, PowercapError> {
    if domain.zone == "core" && is_amd(proc) {
        // AMD counts each core for itself, and powercap shows one of them as that of the package.
        return Err(PowercapError::OneCore);
    }
    let mut counters: Vec<PlacedCounter> = Vec::new();
    let mut failure = None;
    for zone in zones(sys).into_iter().filter(|zone| zone.domain == domain.zone) {
        match PowercapCounter::open(&zone.path) {
            Ok(counter) => counters.push((zone.package, Box::new(counter))),
            Err(reason) => failure = Some(reason),
        }
    }
    if counters.is_empty() {
        Err(failure.unwrap_or(PowercapError::NoZone(domain.zone)))
    } else {
        Ok(counters)
    }
}

/// True if the processors are AMD's or Hygon's.
fn is_amd(proc: &Path) -> bool {
    let text = kernel_text::text(&proc.join("cpuinfo")).unwrap_or_default();
    let vendor = text.lines().find_map(|line| line.strip_prefix("vendor_id")?.split_once(": "));
    vendor.is_some_and(|(_, vendor)| ["AuthenticAMD", "HygonGenuine"].contains(&vendor.trim()))
}

/// Zones that count energy, each counter once: `intel-rapl-mmio`, the interface by memory, repeats counters
/// of `intel-rapl`, the one by registers.
pub(super) fn zones(sys: &Path) -> Vec<Zone> {
    let directory = sys.join(ZONES);
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    // `intel-rapl:0` and `intel-rapl:0:1`; entries without a number are control types.
    let mut names: Vec<(String, String)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let (control, numbers) = name.split_once(':')?;
            control.contains("rapl").then(|| (control.to_owned(), numbers.to_owned()))
        })
        .collect();
    names.sort();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (control, numbers) in names {
        let path = directory.join(format!("{control}:{numbers}"));
        let parent =
            numbers.rsplit_once(':').map(|(parent, _)| directory.join(format!("{control}:{parent}")));
        let name = text_of(&path.join("name")).unwrap_or_default();
        let parent = parent.and_then(|parent| text_of(&parent.join("name")));
        let Some((domain, package)) = place(&name, parent.as_deref()) else { continue };
        if seen.insert((domain, package)) {
            found.push(Zone { path, domain, package });
        }
    }
    found
}

/// Domain and package of a zone, by its name and its parent's.
fn place(name: &str, parent: Option<&str>) -> Option<(&'static str, Option<Package>)> {
    let within = |domain| Some((domain, Some(package(parent?)?)));
    match name {
        "core" => within("core"),
        "dram" => within("dram"),
        "uncore" => within("uncore"),
        "psys" => Some(("psys", None)),
        _ => Some(("package", Some(package(name)?))),
    }
}

/// Parses `package-1` and `package-1-die-0`.
fn package(name: &str) -> Option<Package> {
    let numbers = name.strip_prefix("package-")?;
    match numbers.split_once("-die-") {
        None => Some(Package { number: numbers.parse().ok()?, die: None }),
        Some((number, die)) => Some(Package { number: number.parse().ok()?, die: Some(die.parse().ok()?) }),
    }
}

/// Lines that are numbers are readings of a counter, whose sum does not decrease; the others are names of
/// zones.
pub(in crate::sources) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for range_uj in [None, Some(262_143_328_850)] {
        let (mut energy, mut last_uj, mut now_ns) = (Unwrapped::new(range_uj, 100), 0, 0_u64);
        for value_uj in text.lines().filter_map(|line| line.trim().parse().ok()) {
            // Some pauses are longer than the counter takes to wrap around.
            now_ns = now_ns.saturating_add(1_u64 << (value_uj % 40));
            let Ok(total_uj) = energy.advance(value_uj, now_ns) else { break };
            assert!(total_uj >= last_uj);
            last_uj = total_uj;
        }
    }
    for name in text.lines() {
        if let Some((domain, package)) = place(name, Some("package-1-die-0")) {
            assert_eq!(package.is_none(), domain == "psys", "{name:?}");
        }
        assert!(
            place(name, None).is_none_or(|(domain, _)| ["package", "psys"].contains(&domain)),
            "{name:?}"
        );
    }
}

#[derive(Debug)]
pub(super) struct PowercapCounter {
    file: File,
    energy: Unwrapped,
}

impl PowercapCounter {
    pub(super) fn open(zone: &Path) -> Result<Self, PowercapError> {
        let path = zone.join("energy_uj");
        let file =
            kernel_text::open(&path).map_err(FileError::of(&path)).map_err(PowercapError::Unreadable)?;
        let number = |file: &str| text_of(&zone.join(file)).and_then(|text| text.parse::<u64>().ok());
        let range_uj = number("max_energy_range_uj").filter(|range_uj| *range_uj > 0);
        let powers_w = (0..CONSTRAINTS)
            .filter_map(|constraint| number(&format!("constraint_{constraint}_max_power_uw")))
            .map(|power_uw| power_uw / 1_000_000);
        let power_w = powers_w.filter(|power_w| *power_w <= STATED_POWER_MAX_W).max().unwrap_or(0);
        let energy = Unwrapped::new(range_uj, power_w);
        if energy.longest_gap_ns().is_some_and(|longest_ns| longest_ns < LONGEST_GAP_MIN_NS) {
            return Err(PowercapError::WrapsAround(path));
        }
        Ok(Self { file, energy })
    }
}

impl EnergyCounter for PowercapCounter {
    fn read(&mut self, now_ns: u64) -> Result<Option<f64>, Outcome> {
        let mut text = [0; 32];
        let len = pread(&self.file, &mut text, 0).map_err(Outcome::of_error)?;
        let text = std::str::from_utf8(text.get(..len).unwrap_or_default()).unwrap_or_default();
        let Ok(value_uj) = text.trim().parse() else { return Ok(None) };
        // A counter that stands at 0 has never counted.
        match self.energy.advance(value_uj, now_ns) {
            Ok(0) if value_uj == 0 => Ok(None),
            #[expect(
                clippy::cast_precision_loss,
                reason = "2^53 µJ are 9 GJ, above which 2 µJ are exact enough"
            )]
            Ok(total_uj) => Ok(Some(total_uj as f64 / 1e6)),
            Err(TooLate) => Err(Outcome::Fault(Errno::OVERFLOW)),
        }
    }

    fn longest_gap_ns(&self) -> Option<u64> {
        self.energy.longest_gap_ns()
    }
}
