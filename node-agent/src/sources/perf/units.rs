//! Events of PMUs outside of the cores, such as memory controllers: for the whole node, one source for each
//! CPU that the PMU names, which stands for a socket or die, with the sum over the PMU's units.

use std::collections::BTreeMap;

use polymeter_proto::catalogue::Definition;

use super::PerfSource;
use super::event_config::{Config, EventPlaces};
use super::events::meaning;
use super::named;
use super::open::{Group, Opener, PerfTarget};
use crate::sources::slot::Unavailable;

/// Events of the units of a PMU on one CPU, by the type of the unit.
type Units = BTreeMap<u32, Vec<Config>>;

/// Opens `wanted`, events of one PMU, with at most `room` descriptors. Events that cannot be counted are left
/// out and returned with the reasons.
pub(crate) fn open(
    wanted: &[Definition],
    places: &EventPlaces,
    room: usize,
) -> (Vec<PerfSource>, Vec<Unavailable>) {
    let mut unavailable = Vec::new();
    let mut counted: Vec<(Definition, Config)> = Vec::new();
    let mut by_cpu: BTreeMap<usize, Units> = BTreeMap::new();
    for definition in wanted {
        match countable(definition, places) {
            Ok(events) => {
                // All units have the same scale.
                let first = events.first().map(|(_, config)| (config.measured(definition), *config));
                counted.extend(first);
                for (cpu, config) in events {
                    by_cpu.entry(cpu).or_default().entry(config.kind).or_default().push(config);
                }
            }
            Err(reason) => unavailable.push(Unavailable::for_good(definition.clone(), reason)),
        }
    }
    let needed: usize = by_cpu.values().flat_map(BTreeMap::values).map(Vec::len).sum();
    if needed > room {
        let reason =
            format!("it needs {needed} descriptors and {room} are left; raise perf_fd_limit or LimitNOFILE");
        unavailable
            .extend(counted.into_iter().map(|(missing, _)| Unavailable::for_good(missing, reason.clone())));
        return (Vec::new(), unavailable);
    }
    let mut sources = Vec::new();
    for (cpu, units) in by_cpu {
        match groups(&units, cpu) {
            Ok(groups) => {
                let labels = [("cpu".to_owned(), cpu.to_string())];
                sources.push(PerfSource::new(groups, counted.clone(), false, &labels));
            }
            Err(error) => {
                let reason = format!("CPU {cpu}: {}", meaning(&error));
                let missing = |(definition, _): &(Definition, Config)| {
                    Unavailable::for_good(definition.clone(), reason.clone())
                };
                unavailable.extend(counted.iter().map(missing));
            }
        }
    }
    (sources, unavailable)
}

/// Codes of an event of all units, each with the CPU that counts it, after a trial of the first.
fn countable(definition: &Definition, places: &EventPlaces) -> Result<Vec<(usize, Config)>, String> {
    let instance = definition.instance.as_deref().unwrap_or_default();
    let units = named::unit_events(places, instance).map_err(|error| error.to_string())?;
    let mut events = Vec::new();
    for unit in units {
        events.extend(unit.cpus.into_iter().map(|cpu| (cpu, unit.config)));
    }
    let mut opener = Opener { target: &PerfTarget::Node, cgroup: None, user_only: false };
    if let Some((cpu, config)) = events.first() {
        opener.probe(*config, &[*cpu]).map_err(|error| meaning(&error))?;
    }
    Ok(events)
}

fn groups(units: &Units, cpu: usize) -> std::io::Result<Vec<Group>> {
    let opener = Opener { target: &PerfTarget::Node, cgroup: None, user_only: false };
    let opened = units.values().map(|events| opener.open_group(events, cpu));
    opened.filter_map(Result::transpose).collect()
}

/// Divides events by their PMUs, and into groups of at most `events_max`.
pub(crate) fn by_pmu(wanted: &[Definition], events_max: usize) -> Vec<Vec<Definition>> {
    let mut of_pmu: BTreeMap<&str, Vec<Definition>> = BTreeMap::new();
    for definition in wanted {
        let instance = definition.instance.as_deref().unwrap_or_default();
        let pmu = instance.split('.').next().unwrap_or_default();
        of_pmu.entry(pmu).or_default().push(definition.clone());
    }
    of_pmu.values().flat_map(|all| all.chunks(events_max)).map(<[Definition]>::to_vec).collect()
}
