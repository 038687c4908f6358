//! Energy counters as perf events of the PMU `power`. The kernel extends them to 64 bits, so that they do not
//! wrap around.
//!
//! Source: `arch/x86/events/rapl.c`, and `Documentation/ABI/testing/sysfs-bus-event_source-devices-events`.

use std::io;
use std::num::ParseIntError;
use std::path::{Path, PathBuf};

use perf_event::events::Raw;
use perf_event::{Builder, Counter};
use rustix::io::Errno;

use super::counter::{Domain, EnergyCounter, Package, PlacedCounter, text_of};
use crate::sources::cpu_list;
use crate::sources::outcome::Outcome;
use crate::sources::perf::meaning;

/// Directory of the PMU below `/sys`.
const PMU: &str = "bus/event_source/devices/power";

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PmuEvent {
    pub(super) kind: u32,
    pub(super) config: u64,
    /// Joules for each count.
    pub(super) scale: f64,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum PerfError {
    #[error("perf power/{0}/: {1}")]
    Event(&'static str, EventError),
    #[error("{}: expected a list of CPUs", .0.display())]
    Cpus(PathBuf),
    #[error("CPU {0} has no `physical_package_id`")]
    Package(usize),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum EventError {
    #[error("this kernel has no PMU `power`")]
    NoPmu,
    #[error("this CPU does not have the event")]
    Missing,
    #[error("cannot read {}", .0.display())]
    Unreadable(PathBuf),
    #[error("unknown terms `{0}`")]
    Terms(String),
    #[error("unknown unit `{0}`")]
    Unit(String),
    #[error("{}: {error}", path.display())]
    Kind { path: PathBuf, error: ParseIntError },
    #[error("{}", meaning(.0))]
    Refused(io::Error),
    #[error("no CPU has it")]
    NoCpu,
}

/// Opens the event of a domain on one CPU of each package.
pub(super) fn open(sys: &Path, domain: &Domain) -> Result<Vec<PlacedCounter>, PerfError> {
    let failed = |error| PerfError::Event(domain.event, error);
    let event = event(sys, domain.event).map_err(failed)?;
    let mut counters: Vec<PlacedCounter> = Vec::new();
    for (cpu, package) in packages(sys)? {
        let counter = open_event(event, cpu).map_err(|error| failed(EventError::Refused(error)))?;
        let package = (domain.zone != "psys").then_some(package);
        counters.push((package, Box::new(PerfCounter { counter, scale: event.scale })));
    }
    if counters.is_empty() { Err(failed(EventError::NoCpu)) } else { Ok(counters) }
}

pub(super) fn event(sys: &Path, name: &str) -> Result<PmuEvent, EventError> {
    let pmu = sys.join(PMU);
    if !pmu.join("type").exists() {
        return Err(EventError::NoPmu);
    }
    if !pmu.join("events").join(name).exists() {
        return Err(EventError::Missing);
    }
    let terms = read(pmu.join(format!("events/{name}")))?;
    let unit = read(pmu.join(format!("events/{name}.unit")))?;
    let scale = read(pmu.join(format!("events/{name}.scale")))?;
    let (config, scale) = terms_of(&terms, &unit, &scale)?;
    let kind = read(pmu.join("type"))?;
    let kind = kind.parse().map_err(|error| EventError::Kind { path: pmu.join("type"), error })?;
    Ok(PmuEvent { kind, config, scale })
}

fn read(path: PathBuf) -> Result<String, EventError> {
    text_of(&path).ok_or(EventError::Unreadable(path))
}

/// Parses the terms of an event, its unit and the factor to it: `event=0x02`, `Joules`,
/// `2.3283064365386962890625e-10`.
fn terms_of(terms: &str, unit: &str, scale: &str) -> Result<(u64, f64), EventError> {
    let config = terms.strip_prefix("event=0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let config = config.ok_or_else(|| EventError::Terms(terms.to_owned()))?;
    let scale = scale.parse().ok().filter(|scale: &f64| scale.is_finite() && *scale > 0.0);
    let scale = scale.filter(|_| unit == "Joules").ok_or_else(|| EventError::Unit(unit.to_owned()))?;
    Ok((config, scale))
}

pub(in crate::sources) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let mut next = || lines.next().unwrap_or_default();
    if let Ok((_, scale)) = terms_of(next(), next(), next()) {
        assert!(scale.is_finite() && scale > 0.0);
    }
}

/// CPUs on which the events are opened, with the package of each.
pub(super) fn packages(sys: &Path) -> Result<Vec<(usize, Package)>, PerfError> {
    let path = sys.join(PMU).join("cpumask");
    let cpus = text_of(&path).and_then(|text| cpu_list::parse(&text));
    let cpus = cpus.ok_or(PerfError::Cpus(path))?;
    let topology = |cpu: usize, file: &str| -> Option<u32> {
        text_of(&sys.join(format!("devices/system/cpu/cpu{cpu}/topology/{file}")))?.parse().ok()
    };
    let mut found = Vec::new();
    for cpu in cpus {
        let number = topology(cpu, "physical_package_id").ok_or(PerfError::Package(cpu))?;
        found.push((cpu, Package { number, die: topology(cpu, "die_id") }));
    }
    // Most packages are counted as a whole, on one CPU.
    let numbers: Vec<u32> = found.iter().map(|(_, package)| package.number).collect();
    for (_, package) in &mut found {
        if numbers.iter().filter(|number| **number == package.number).count() == 1 {
            package.die = None;
        }
    }
    Ok(found)
}

fn open_event(event: PmuEvent, cpu: usize) -> io::Result<Counter> {
    let mut builder = Builder::new(Raw::new(event.config));
    builder.attrs_mut().type_ = event.kind;
    // The PMU refuses every exclusion.
    builder.any_pid().one_cpu(cpu).exclude_kernel(false).exclude_hv(false).enabled(true);
    builder.build()
}

#[derive(Debug)]
struct PerfCounter {
    counter: Counter,
    scale: f64,
}

impl EnergyCounter for PerfCounter {
    fn read(&mut self, _now_ns: u64) -> Result<Option<f64>, Outcome> {
        match self.counter.read() {
            Ok(0) => Ok(None),
            #[expect(
                clippy::cast_precision_loss,
                reason = "2^53 counts of 2^-32 J are 2 MJ, above which 1 mJ is exact enough"
            )]
            Ok(count) => Ok(Some(count as f64 * self.scale)),
            Err(error) => {
                let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
                Err(Outcome::of_error(errno))
            }
        }
    }

    fn longest_gap_ns(&self) -> Option<u64> {
        None
    }
}
