//! Energy counters of processors, RAPL: perf events where the kernel has them, else the zones of powercap.
//!
//! A read interrupts a CPU of each package; therefore it belongs to the slow lane. Each domain is a source of
//! its own, which stays open when others are opened anew, so that no energy is lost. Values begin at 0 when a
//! source is opened.

mod counter;
mod perf_events;
mod powercap;
mod unwrapped;

use std::collections::BTreeSet;
use std::path::Path;

use polymeter_proto::catalogue::Definition;
use polymeter_proto::period::Period;
use polymeter_proto::series::Labels;
use rustix::io::Errno;

use super::custom_source::CustomSource;
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::Slot;
use super::target::Target;
use crate::clock;
use counter::{DOMAINS, Domain, EnergyCounter, Package, PlacedCounter};
use perf_events::PerfError;
use powercap::PowercapError;

pub(super) use perf_events::check as check_event;
pub(super) use powercap::check as check_zone;

const KIND: &str = "rapl";

pub(super) struct RaplKind;

impl SourceKind for RaplKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        DOMAINS.iter().map(|domain| domain.field).collect()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        if !matches!(request.target, Target::Node(_)) {
            return;
        }
        let mounts = request.host.mounts;
        for definition in &request.wanted {
            let field = definition.metric.field_of(KIND);
            let Some(domain) = DOMAINS.iter().find(|domain| Some(domain.field) == field) else { continue };
            match open_domain(&mounts.sys(), &mounts.proc, domain) {
                Ok(counters) => {
                    let source = RaplSource::new(definition, counters);
                    opening.push_custom(format!("{KIND}/{}", domain.field), Box::new(source));
                }
                Err(reason) => opening.unavailable(definition.clone(), reason.to_string()),
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}; {1}")]
struct Uncounted(PerfError, PowercapError);

/// Opens the counters of a domain of all packages: perf events, which are 64 bits wide, or else the zones of
/// powercap.
fn open_domain(sys: &Path, proc: &Path, domain: &Domain) -> Result<Vec<PlacedCounter>, Uncounted> {
    perf_events::open(sys, domain).or_else(|of_perf| {
        powercap::open(sys, proc, domain).map_err(|of_powercap| Uncounted(of_perf, of_powercap))
    })
}

#[derive(Debug)]
struct RaplSource {
    slots: Vec<Slot>,
    counters: Vec<(usize, Box<dyn EnergyCounter>)>,
    sums: Vec<Option<f64>>,
}

impl RaplSource {
    fn new(definition: &Definition, counters: Vec<PlacedCounter>) -> Self {
        let packages: BTreeSet<Option<Package>> = counters.iter().map(|(package, _)| *package).collect();
        let counters = counters.into_iter().filter_map(|(package, counter)| {
            let slot = packages.iter().position(|known| *known == package)?;
            Some((slot, counter))
        });
        let counters = counters.collect();
        let slots =
            packages.iter().map(|package| Slot { definition: definition.clone(), labels: labels(*package) });
        let slots: Vec<Slot> = slots.collect();
        Self { sums: vec![None; slots.len()], slots, counters }
    }
}

fn labels(package: Option<Package>) -> Labels {
    let Some(Package { number, die }) = package else { return Labels::default() };
    let die = die.map(|die| ("die".to_owned(), die.to_string()));
    let pairs = std::iter::once(("package".to_owned(), number.to_string())).chain(die).collect();
    Labels::escaped(pairs).unwrap_or_default()
}

impl CustomSource for RaplSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        let now_ns = clock::monotonic_ns();
        self.sums.fill(None);
        let mut failure = None;
        for (slot, counter) in &mut self.counters {
            match counter.read(now_ns) {
                Ok(Some(joules)) => {
                    if let Some(sum) = self.sums.get_mut(*slot) {
                        *sum = Some(sum.unwrap_or(0.0) + joules);
                    }
                }
                Ok(None) => {}
                // The source must be opened anew.
                Err(Outcome::Fault(errno)) => return Outcome::Fault(errno),
                Err(other) => failure = Some(other),
            }
        }
        let mut is_any = false;
        for (slot, sum) in (0..).zip(&self.sums) {
            if let Some(joules) = sum {
                is_any = true;
                reading.set(slot, joules.to_bits());
            }
        }
        // A counter that stays at 0 counts nothing: virtual machines have such.
        if is_any { Outcome::Read } else { failure.unwrap_or(Outcome::Retry(Errno::NODATA)) }
    }

    fn is_lasting(&self) -> bool {
        true
    }

    /// The hardware updates the counters about every millisecond.
    fn refresh_interval(&self) -> Option<Period> {
        Some(Period::MILLISECOND)
    }

    fn longest_gap_ns(&self) -> Option<u64> {
        self.counters.iter().filter_map(|(_, counter)| counter.longest_gap_ns()).min()
    }
}

#[cfg(test)]
mod tests;
