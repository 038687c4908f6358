//! NVIDIA GPUs, through the library of the driver (NVML), which is loaded at run time: the GPUs of the node,
//! and those of a job.
//!
//! Each GPU is a source of its own, with the MIG devices on it: a call takes up to milliseconds, so that the
//! values of one source for all GPUs would be dated wrongly, and a GPU that does not answer delays no other.
//! Each takes one of the threads of the slow lane. A thread of the driver (`driver.rs`) loads the library,
//! lists the GPUs, and finds those of each job (`job_gpus.rs`); nothing else waits for that.

mod driver;
mod gpm;
mod gpu;
mod job_gpus;
mod library;
mod older_drivers;
mod quantity;
mod raw;
mod source;
mod xid;

use std::sync::Arc;

use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::Labels;

use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::slot::Slot;
use super::source::Source;
use super::target::Target;
use driver::Driver;
use gpu::{Gpu, Identity};
use job_gpus::{JobGpus, JobProcesses};
use quantity::{QUANTITIES, Quantity};
use source::{DriverWatch, GpuSource, Place};

pub(super) use job_gpus::check;

const NODE_KIND: &str = "nvidia";

const JOB_KIND: &str = "nvidia_job";

pub(super) struct NvidiaKind;

impl SourceKind for NvidiaKind {
    fn name(&self) -> &'static str {
        NODE_KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        fields(false)
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        if matches!(request.target, Target::Node(_)) {
            open(request, None, opening);
        }
    }
}

pub(super) struct NvidiaJobKind;

impl SourceKind for NvidiaJobKind {
    fn name(&self) -> &'static str {
        JOB_KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        fields(true)
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let host = request.host;
        let processes = match request.target {
            Target::Cgroups(cgroups) => {
                cgroups.of_processes().map(|path| JobProcesses::Cgroup(path.to_owned()))
            }
            Target::Processes(root) => Some(JobProcesses::Tree(*root)),
            Target::Node(_) => None,
        };
        // The values of a GPU are those of the whole job.
        let Some(processes) = processes.filter(|_| host.step.is_none()) else { return };
        let job = Driver::of(&host.mounts.root).job(&host.mounts.proc, processes);
        job.grant(host.gpu_devices);
        open(request, Some(job), opening);
    }
}

fn fields(of_job: bool) -> Vec<&'static str> {
    let of_kind = QUANTITIES.iter().filter(|quantity| quantity.is_of(of_job));
    let mut fields: Vec<&str> = of_kind.map(|quantity| quantity.field).collect();
    fields.dedup();
    fields
}

fn open(request: &OpenRequest<'_>, job: Option<Arc<JobGpus>>, opening: &mut Opening<'_>) {
    let driver = Driver::of(&request.host.mounts.root);
    let (seen, gpus) = driver.gpus();
    let watch = DriverWatch::new(&driver, seen, job.clone());
    match gpus {
        Err(reason) => opening.unavailable_all(&request.wanted, &reason.to_string()),
        Ok(gpus) => {
            let devices = job.as_ref().map(|job| job.devices(&gpus));
            let is_shown =
                |identity: &Identity| devices.as_ref().is_none_or(|devices| devices.contains(&identity.uuid));
            let mut found = Vec::new();
            for gpu in gpus {
                let places = places(&gpu, &request.wanted, job.is_some(), is_shown);
                found.extend(places.iter().map(|place| place.slot.definition.clone()));
                if !places.is_empty() {
                    let name = format!("{NODE_KIND}/{}", gpu.index);
                    let source = GpuSource::new(&driver, gpu, places, job.clone());
                    opening.push_custom(name, Box::new(source));
                }
            }
            let reason = match devices {
                None => "no NVIDIA GPU of this node has it",
                Some(devices) if devices.is_empty() => "no NVIDIA GPU of this node is known to be the job's",
                Some(_) => "no NVIDIA GPU of the job has it",
            };
            let missing = request.wanted.iter().filter(|definition| !found.contains(definition));
            missing.for_each(|definition| opening.unavailable(definition.clone(), reason.to_owned()));
        }
    }
    opening.push(NODE_KIND.to_owned(), Source::Custom(Box::new(watch)));
}

/// Values of the shown devices of a GPU for the wanted metrics, without those that it is known to lack, in
/// the order of the devices and quantities.
fn places(
    gpu: &Gpu,
    wanted: &[Definition],
    of_job: bool,
    is_shown: impl Fn(&Identity) -> bool,
) -> Vec<Place> {
    let kind = if of_job { JOB_KIND } else { NODE_KIND };
    let mut places = Vec::new();
    for (device, identity) in gpu.devices.iter().enumerate().filter(|(_, identity)| is_shown(identity)) {
        for (number, quantity) in QUANTITIES.iter().enumerate() {
            let is_left_out = (identity.instance.is_some() && !quantity.of_mig) || !quantity.is_of(of_job);
            if is_left_out || gpu.lacks(device, number) {
                continue;
            }
            let definition = wanted.iter().find(|definition| {
                let mut origins = definition.metric.origins.iter();
                origins.any(|origin| origin.field_of(kind) == Some(quantity.field))
            });
            if let Some(definition) = definition {
                let labels = labels(gpu.index, identity, quantity);
                let slot = Slot { definition: definition.clone(), labels };
                places.push(Place { device, quantity: number, slot });
            }
        }
    }
    places
}

/// Labels of a value: the UUID identifies the device, the number is for people. A text that is no valid label
/// is left out.
fn labels(index: u32, identity: &Identity, quantity: &Quantity) -> Labels {
    let mut pairs = vec![("gpu".to_owned(), index.to_string())];
    pairs.extend(identity.instance.map(|instance| ("mig".to_owned(), instance.to_string())));
    pairs.extend(quantity.reason.map(|reason| ("reason".to_owned(), reason.to_owned())));
    let uuid = ("uuid".to_owned(), identity.uuid.clone());
    let all = pairs.iter().cloned().chain([uuid]).collect();
    Labels::escaped(all).or_else(|_| Labels::escaped(pairs)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
