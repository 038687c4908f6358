//! Energy counters as perf events of the PMU `power`. The kernel extends them to 64 bits, so that they do not wrap around.
//!
//! Source: `arch/x86/events/rapl.c`, and `Documentation/ABI/testing/sysfs-bus-event_source-devices-events`.

use std::io;
use std::path::Path;

use perf_event::events::Raw;
use perf_event::{Builder, Counter};
use rustix::io::Errno;

use super::counter::{Domain, EnergyCounter, Package, PlacedCounter, text_of};
use crate::sources::cpu_list;
use crate::sources::outcome::Outcome;
use crate::sources::perf::meaning;

/// The PMU's directory below `/sys`.
const PMU: &str = "bus/event_source/devices/power";

/// An event of the PMU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PmuEvent {
    pub(super) kind: u32,
    pub(super) config: u64,
    /// Joules for each count.
    pub(super) scale: f64,
}

/// Opens the event of a domain on one CPU of each package.
pub(super) fn open(sys: &Path, domain: &Domain) -> Result<Vec<PlacedCounter>, String> {
    let name = format!("power/{}/", domain.event);
    let event = event(sys, domain.event).map_err(|reason| format!("perf {name}: {reason}"))?;
    let mut counters: Vec<PlacedCounter> = Vec::new();
    for (cpu, package) in packages(sys)? {
        let counter = open_event(event, cpu).map_err(|error| format!("perf {name}: {}", meaning(&error)))?;
        let package = (domain.zone != "psys").then_some(package);
        counters.push((package, Box::new(PerfCounter { counter, scale: event.scale })));
    }
    if counters.is_empty() { Err(format!("perf {name}: no CPU has it")) } else { Ok(counters) }
}

/// Reads the numbers of an event.
pub(super) fn event(sys: &Path, name: &str) -> Result<PmuEvent, String> {
    let pmu = sys.join(PMU);
    let read = |file: &str| {
        let path = pmu.join(file);
        text_of(&path).ok_or_else(|| format!("cannot read {}", path.display()))
    };
    if !pmu.join("type").exists() {
        return Err("this kernel has no PMU `power`".to_owned());
    }
    if !pmu.join("events").join(name).exists() {
        return Err("this CPU does not have the event".to_owned());
    }
    let terms = read(&format!("events/{name}"))?;
    let unit = read(&format!("events/{name}.unit"))?;
    let scale = read(&format!("events/{name}.scale"))?;
    let (config, scale) = terms_of(&terms, &unit, &scale)?;
    let kind = read("type")?;
    let kind = kind.parse().map_err(|error| format!("{}: {error}", pmu.join("type").display()))?;
    Ok(PmuEvent { kind, config, scale })
}

/// Parses the terms of an event, its unit and the factor to it: `event=0x02`, `Joules`, `2.3283064365386962890625e-10`.
fn terms_of(terms: &str, unit: &str, scale: &str) -> Result<(u64, f64), String> {
    let config = terms.strip_prefix("event=0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let config = config.ok_or_else(|| format!("unknown terms `{terms}`"))?;
    let scale = scale.parse().ok().filter(|scale: &f64| scale.is_finite() && *scale > 0.0);
    let scale = scale.filter(|_| unit == "Joules").ok_or_else(|| format!("unknown unit `{unit}`"))?;
    Ok((config, scale))
}

/// Checks what holds for any terms, unit and factor, one on each line.
pub(in crate::sources) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let mut next = || lines.next().unwrap_or_default();
    if let Ok((_, scale)) = terms_of(next(), next(), next()) {
        assert!(scale.is_finite() && scale > 0.0);
    }
}

/// Returns the CPUs on which the events are opened, with the package of each.
pub(super) fn packages(sys: &Path) -> Result<Vec<(usize, Package)>, String> {
    let path = sys.join(PMU).join("cpumask");
    let cpus = text_of(&path).and_then(|text| cpu_list::parse(&text));
    let cpus = cpus.ok_or_else(|| format!("{}: expected a list of CPUs", path.display()))?;
    let topology = |cpu: usize, file: &str| -> Option<u32> {
        text_of(&sys.join(format!("devices/system/cpu/cpu{cpu}/topology/{file}")))?.parse().ok()
    };
    let mut found = Vec::new();
    for cpu in cpus {
        let number = topology(cpu, "physical_package_id")
            .ok_or_else(|| format!("CPU {cpu} has no `physical_package_id`"))?;
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

/// Opens an event for all processes of a CPU.
fn open_event(event: PmuEvent, cpu: usize) -> io::Result<Counter> {
    let mut builder = Builder::new(Raw::new(event.config));
    builder.attrs_mut().type_ = event.kind;
    // The PMU refuses every exclusion.
    builder.any_pid().one_cpu(cpu).exclude_kernel(false).exclude_hv(false).enabled(true);
    builder.build()
}

/// An open event.
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
