//! perf events by their numbers, and the groups in which they are counted.

use std::io;
use std::num::ParseIntError;
use std::path::PathBuf;

use polymeter_proto::catalogue::perf::PerfEvent;
use polymeter_proto::catalogue::{self, Definition};
use rustix::io::Errno;

use super::event_config::{Config, EventPlaces};
use super::named::{self, NoEvent};
use crate::sources::kernel_text::{self, FileError};

/// Hardware counters of one group. Most CPUs have four that any event can use; a larger group would never be
/// counted.
pub(crate) const HARDWARE_EVENTS: usize = 4;

/// Software events and tracepoints of one group: they need no counters, only descriptors.
const SOFTWARE_EVENTS: usize = 32;

/// Divides events into the groups in which they are counted: software events together, hardware events in
/// fours.
pub(crate) fn groups(wanted: &[Definition]) -> Vec<Vec<Definition>> {
    let software: Vec<_> = wanted
        .iter()
        .filter(|definition| {
            matches!(event(definition), Some(PerfEvent::Software(_) | PerfEvent::Tracepoint))
        })
        .cloned()
        .collect();
    let hardware: Vec<_> = wanted.iter().filter(|definition| definition.is_of_hardware()).cloned().collect();
    let chunks = software.chunks(SOFTWARE_EVENTS).chain(hardware.chunks(HARDWARE_EVENTS));
    chunks.map(<[Definition]>::to_vec).collect()
}

pub(crate) fn event(definition: &Definition) -> Option<PerfEvent> {
    definition.metric.origins.iter().find_map(|origin| match origin {
        catalogue::Origin::Perf(event) => Some(*event),
        catalogue::Origin::Text { .. } | catalogue::Origin::Source(_) => None,
    })
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum NoConfig {
    #[error("expected `r` and hexadecimal digits")]
    RawForm,
    #[error("expected `subsystem.name`")]
    TracepointForm,
    #[error("{0}{advice}", advice = tracefs_advice(&.0.error))]
    Tracefs(FileError),
    #[error("{}: {error}", path.display())]
    Id { path: PathBuf, error: ParseIntError },
    #[error("{0}")]
    Named(NoEvent),
    #[error("not a perf event of jobs")]
    NotPerf,
}

pub(crate) fn config(definition: &Definition, places: &EventPlaces) -> Result<Config, NoConfig> {
    let instance = definition.instance.as_deref().unwrap_or_default();
    match event(definition) {
        Some(PerfEvent::Hardware(config)) => Ok(Config::of(0, config)),
        Some(PerfEvent::Software(config)) => Ok(Config::of(1, config)),
        Some(PerfEvent::Cache(config)) => Ok(Config::of(3, config)),
        Some(PerfEvent::Raw) => {
            let config = catalogue::perf::raw_config(instance).ok_or(NoConfig::RawForm)?;
            Ok(Config::of(4, config))
        }
        Some(PerfEvent::Named) => named::core_event(places, instance).map_err(NoConfig::Named),
        Some(PerfEvent::Tracepoint) => {
            let (subsystem, name) = catalogue::perf::tracepoint(instance).ok_or(NoConfig::TracepointForm)?;
            let path = places.tracefs.join("events").join(subsystem).join(name).join("id");
            let id = kernel_text::text(&path).map_err(FileError::of(&path)).map_err(NoConfig::Tracefs)?;
            let config = id.trim().parse().map_err(|error| NoConfig::Id { path, error })?;
            Ok(Config::of(2, config))
        }
        Some(
            PerfEvent::Unit
            | PerfEvent::TimeEnabled
            | PerfEvent::TimeRunning
            | PerfEvent::UnitTimeEnabled
            | PerfEvent::UnitTimeRunning,
        )
        | None => Err(NoConfig::NotPerf),
    }
}

fn tracefs_advice(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::NotFound {
        "; mount tracefs there, or check the name with `perf list`"
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        "; the agent must run as root for tracepoints"
    } else {
        ""
    }
}

/// Meaning of an error of perf_event_open, as perf_event_open(2) explains it, with the remedy.
pub(crate) fn meaning(error: &io::Error) -> String {
    let meaning = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP | Errno::INVAL) => {
            "this CPU or kernel does not support the event"
        }
        Some(Errno::ACCESS | Errno::PERM) => {
            "permission denied; run the agent as root or with CAP_PERFMON, or lower kernel.perf_event_paranoid"
        }
        Some(Errno::MFILE | Errno::NFILE) => {
            "no file descriptors left; raise LimitNOFILE or sample fewer perf events"
        }
        Some(Errno::SRCH) => "the process has ended",
        _ => "the kernel refused it",
    };
    format!("{meaning} ({error})")
}
