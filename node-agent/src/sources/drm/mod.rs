//! GPUs of AMD and Intel that a job's processes use, as their drivers show it for each open file of a GPU (a
//! client) in `/proc/PID/fdinfo`. Source: `Documentation/gpu/drm-usage-stats.rst` of Linux; amdgpu since
//! 5.19, i915 since 5.19, xe since 6.8.
//!
//! The names of engines and regions of memory are those of the driver, and become known when a process first
//! uses a GPU: until then the source has no slots but for the clients of the GPUs that the scheduler gives to
//! the job, and without any its thread looks for clients every few seconds. What is known of the clients
//! survives a new opening of the sources (`GpuClients`), so that counts of ended processes stay.

mod amdgpu;
mod amdgpu_table;
mod devices;
mod kfd;
mod source;

use std::path::Path;

use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::Labels;

use super::gpu_clients::{Key, Quantity};
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::path_pattern::PatternWatch;
use super::slot::Slot;
use super::source::Source;
use super::target::Target;
use source::{ClientsSource, ClientsWatch};

pub(super) use amdgpu::AmdgpuKind;
pub(super) use amdgpu_table::check as check_amdgpu_table;
pub(super) use kfd::KfdKind;
pub(super) use kfd::check as check_kfd;

const KIND: &str = "drm";

const WATCH: &str = "drm/watch";

/// Given where the agent may not see the descriptors of processes.
const REFUSED: &str = "the agent may not see the descriptors of the job's processes (/proc/PID/fd); run it as root, or \
                       with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH (drop-in drm.conf)";

/// Fields, with their quantities and the label that has the name of the engine or region.
const FIELDS: [(&str, Quantity, Option<&str>); 8] = [
    ("time", Quantity::Time, Some("engine")),
    ("cycles", Quantity::Cycles, Some("engine")),
    ("total_cycles", Quantity::TotalCycles, Some("engine")),
    ("capacity", Quantity::Capacity, Some("engine")),
    ("resident", Quantity::Resident, Some("region")),
    ("total", Quantity::Total, Some("region")),
    ("shared", Quantity::Shared, Some("region")),
    ("clients", Quantity::Clients, None),
];

pub(super) struct DrmKind;

impl SourceKind for DrmKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        FIELDS.iter().map(|(field, ..)| *field).collect()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        if matches!(request.target, Target::Node(_)) {
            return;
        }
        let host = request.host;
        let Some(clients) = host.gpu_clients.filter(|_| host.step.is_none()) else {
            return opening.unavailable_all(&request.wanted, "only for whole jobs");
        };
        let sys = host.mounts.sys();
        if !devices::exist(&sys) {
            let watch = PatternWatch::new(&sys, [devices::PATTERN].into());
            opening.push(WATCH.to_owned(), Source::Custom(Box::new(watch)));
            let reason = "this node has no GPU with a device /dev/dri/renderD*";
            return opening.unavailable_all(&request.wanted, reason);
        }
        let Some(processes) = opening.processes(request) else { return };
        clients.begin(processes);
        clients.grant(devices::named(&sys, host.gpu_devices.unwrap_or_default()));
        let seen = clients.changes();
        let keys = clients.keys();
        let slots = slots(&request.wanted, &keys, &sys);
        let found: Vec<Definition> = slots.iter().map(|(slot, _)| slot.definition.clone()).collect();
        if clients.is_refused() {
            opening.unavailable_all(&request.wanted, REFUSED);
        }
        // Before the first client nothing is known of the driver.
        if keys.iter().any(|key| key.item.quantity != Quantity::Clients) {
            let missing = request.wanted.iter().filter(|definition| !found.contains(definition));
            missing.for_each(|definition| {
                let reason = "the driver of the job's GPUs does not show it".to_owned();
                opening.unavailable(definition.clone(), reason);
            });
        }
        let source = ClientsSource::new(&host.mounts.proc, clients, slots);
        opening.push_custom(KIND.to_owned(), Box::new(source));
        let watch = ClientsWatch::new(clients, seen);
        opening.push(WATCH.to_owned(), Source::Custom(Box::new(watch)));
    }
}

fn slots(wanted: &[Definition], keys: &[Key], sys: &Path) -> Vec<(Slot, Key)> {
    let devices = devices::labels(sys);
    let mut slots = Vec::new();
    for definition in wanted {
        let name = definition.metric.field_of(KIND);
        let Some((_, quantity, label)) = FIELDS.iter().find(|(field, ..)| Some(*field) == name) else {
            continue;
        };
        for key in keys.iter().filter(|key| key.item.quantity == *quantity) {
            // A GPU without a card is named by its address.
            let mut labels = devices
                .get(&key.device)
                .cloned()
                .unwrap_or_else(|| vec![("gpu".to_owned(), key.device.clone())]);
            labels.extend(label.map(|label| (label.to_owned(), key.item.name.clone())));
            // A name that is no valid label has no series.
            if let Ok(labels) = Labels::escaped(labels) {
                slots.push((Slot { definition: definition.clone(), labels }, key.clone()));
            }
        }
    }
    slots
}

#[cfg(test)]
mod tests;
