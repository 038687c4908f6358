//! Kind of perf events.

use polymeter_proto::catalogue::{Definition, PERF_KIND};

use super::finder::Finder;
use super::kind::{Lane, OpenRequest, Opening, SourceFactory, SourceKind};
use super::perf::{
    EventPlaces, FollowedSource, HARDWARE_EVENTS, PerfSource, PerfTarget, RELEASED, ReleasedEvents, by_pmu,
    groups, open_units,
};
use super::source::Source;
use super::target::Target;
use crate::cgroups::JobCgroups;

const LIMIT: &str = "limit of perf file descriptors per job reached; raise perf_fd_limit (and LimitNOFILE if it is lower), or \
                     sample fewer events";

const NOT_PER_CPU: &str =
    "the job has no cgroup for perf events, so that they are counted by process, not by CPU";

/// Splits the events into those with a series for each CPU, and those whose sum is wanted.
fn divided(wanted: &[Definition]) -> (Vec<Definition>, Vec<Definition>) {
    wanted.iter().cloned().partition(|definition| definition.metric.is_per_cpu)
}

pub(super) struct PerfKind;

impl SourceKind for PerfKind {
    fn name(&self) -> &'static str {
        PERF_KIND
    }

    fn lane(&self) -> Lane {
        Lane::Fast
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        if request.host.is_released {
            return open_released(request, opening);
        }
        open_events(request, opening);
    }
}

/// Opens the events that need no hardware counters, and lets other kinds stand in for the rest.
fn open_released(request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
    let host = request.host;
    let labels = host.step.map_or(&[][..], |step| &step.labels);
    let (hardware, wanted): (Vec<Definition>, Vec<Definition>) =
        request.wanted.iter().cloned().partition(Definition::is_of_hardware);
    let mut number = host.first_perf_group;
    for group in groups(&hardware) {
        let events = ReleasedEvents::new(&group, &EventPlaces::of(host.mounts), labels);
        opening.push(format!("{RELEASED}{number}"), Source::Custom(Box::new(events)));
        number += 1;
    }
    let host = SourceFactory { first_perf_group: number, is_released: false, ..*host };
    open_events(&OpenRequest { host: &host, target: request.target, wanted }, opening);
}

fn open_events(request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
    let host = request.host;
    let target = match request.target {
        Target::Cgroups(cgroups) => match cgroups.perf_directory(host.mounts) {
            Some(path) => PerfTarget::Cgroup(path.to_owned()),
            None => return follow_processes(request, cgroups, opening),
        },
        Target::Processes(root) => PerfTarget::Process(*root),
        Target::Node(_) => return open_of_node(request, opening),
    };
    let labels = host.step.map_or(&[][..], |step| &step.labels);
    let (per_cpu, sums) = divided(&request.wanted);
    let places = EventPlaces::of(host.mounts);
    let mut descriptors = 0;
    let per_cpu = match target {
        PerfTarget::Cgroup(_) => groups(&per_cpu),
        PerfTarget::Process(_) | PerfTarget::Node => {
            opening.unavailable_all(&per_cpu, NOT_PER_CPU);
            Vec::new()
        }
    };
    for (number, group) in groups(&sums).into_iter().chain(per_cpu).enumerate() {
        let needed = group.len() * if matches!(target, PerfTarget::Process(_)) { 1 } else { host.cpus.len() };
        if descriptors + needed > host.perf_descriptors {
            opening.unavailable_all(&group, LIMIT);
            continue;
        }
        let (source, missing) = PerfSource::open(&target, &group, host.cpus, &places, labels);
        missing.into_iter().for_each(|missing| opening.unavailable(missing.definition, missing.reason));
        if let Some(source) = source {
            descriptors += source.descriptors();
            opening.push(format!("perf/{}", host.first_perf_group + number), Source::Perf(source));
        }
    }
}

fn open_of_node(request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
    let host = request.host;
    let units: Vec<Definition> =
        request.wanted.iter().filter(|definition| definition.is_of_hardware()).cloned().collect();
    let (mut room, mut number) = (host.perf_descriptors, host.first_perf_group);
    for group in by_pmu(&units, HARDWARE_EVENTS) {
        let (sources, missing) = open_units(&group, &EventPlaces::of(host.mounts), room);
        missing.into_iter().for_each(|missing| opening.unavailable(missing.definition, missing.reason));
        for source in sources {
            room = room.saturating_sub(source.descriptors());
            opening.push(format!("perf/{number}"), Source::Perf(source));
            number += 1;
        }
    }
}

/// Opens the events of each process of a job or step that has no cgroup for perf.
fn follow_processes(request: &OpenRequest<'_>, cgroups: &JobCgroups, opening: &mut Opening<'_>) {
    let host = request.host;
    let labels = host.step.map_or(&[][..], |step| &step.labels);
    let Some(cgroup) = cgroups.of_processes() else {
        opening.unavailable_all(&request.wanted, "the job has no cgroup with processes");
        return;
    };
    let places = EventPlaces::of(host.mounts);
    let mut room = host.perf_descriptors;
    let (per_cpu, sums) = divided(&request.wanted);
    opening.unavailable_all(&per_cpu, NOT_PER_CPU);
    for (number, group) in groups(&sums).into_iter().enumerate() {
        if group.len() > room {
            opening.unavailable_all(&group, LIMIT);
            continue;
        }
        let (opened, missing) = FollowedSource::open(&places, cgroup, &group, host.cpus, room, labels);
        missing.into_iter().for_each(|missing| opening.unavailable(missing.definition, missing.reason));
        if let Some((source, follower)) = opened {
            room = room.saturating_sub(follower.descriptors());
            let name = format!("perf/{}", host.first_perf_group + number);
            if let Some(opened) = opening.push_mut(name, Source::Custom(Box::new(source))) {
                opened.below = Some(Finder::Processes(Box::new(follower)));
            }
        }
    }
}
