//! Source of one GPU, and the watch of the list of GPUs.

use std::collections::BTreeSet;
use std::sync::Arc;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use polymeter_proto::period::Period;
use rustix::io::Errno;

use super::driver::Driver;
use super::gpm::GpmState;
use super::gpu::{Gpu, GpuReading};
use super::job_gpus::JobGpus;
use super::quantity::{Call, JobQuantity, QUANTITIES};
use crate::clock;
use crate::sources::custom_source::CustomSource;
use crate::sources::outcome::Outcome;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;

/// Time between two updates by the driver: 20 to 100 ms, depending on the quantity and the GPU.
const REFRESH_US: u64 = 20_000;

#[derive(Debug)]
pub(super) struct Place {
    pub(super) device: usize,
    pub(super) quantity: usize,
    pub(super) slot: Slot,
}

#[derive(Debug)]
struct DeviceQuantities {
    device: usize,
    /// Slot of the first of them; the others follow.
    first_slot: u32,
    quantities: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct GpuSource {
    driver: Arc<Driver>,
    gpu: Arc<Gpu>,
    slots: Vec<Slot>,
    devices: Vec<DeviceQuantities>,
    gpm: GpmState,
    /// `None` for the node.
    job: Option<Arc<JobGpus>>,
    /// Last reading of the shares of processes by the driver's clock, which is the wall clock.
    shares_us: u64,
}

impl GpuSource {
    pub(super) fn new(
        driver: &Arc<Driver>,
        gpu: Arc<Gpu>,
        places: Vec<Place>,
        job: Option<Arc<JobGpus>>,
    ) -> Self {
        let mut devices: Vec<DeviceQuantities> = Vec::new();
        for (slot, Place { device, quantity, .. }) in (0..).zip(&places) {
            match devices.last_mut().filter(|last| last.device == *device) {
                Some(last) => last.quantities.push(*quantity),
                None => devices.push(DeviceQuantities {
                    device: *device,
                    first_slot: slot,
                    quantities: vec![*quantity],
                }),
            }
        }
        let slots = places.into_iter().map(|place| place.slot).collect();
        let gpm = GpmState::default();
        Self { driver: Arc::clone(driver), gpu, slots, devices, gpm, job, shares_us: now_us() }
    }
}

fn now_us() -> u64 {
    u64::try_from(clock::realtime_us()).unwrap_or_default()
}

impl CustomSource for GpuSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn refresh_interval(&self) -> Option<Period> {
        Period::from_micros(REFRESH_US).ok()
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        let Some(mut gpu) = self.gpu.begin() else { return Outcome::Retry(Errno::TIMEDOUT) };
        let (mut is_any, mut is_failed) = (false, false);
        let began_us = now_us();
        for DeviceQuantities { device, first_slot, quantities } in &self.devices {
            let mut set = |place: usize, bits: u64| {
                is_any = true;
                reading.set(first_slot.saturating_add(u32::try_from(place).unwrap_or(u32::MAX)), bits);
            };
            let failure = gpu.read(*device, quantities, &mut self.gpm, &mut set);
            is_failed |= failure.is_some();
            if gpu.is_lost {
                let known = quantities.iter().map(|quantity| gpu.known(*quantity)).enumerate();
                known.for_each(|(place, bits)| bits.into_iter().for_each(|bits| set(place, bits)));
                continue;
            }
            if let Some(job) = &self.job {
                let mut processes =
                    JobReading { gpu: &mut gpu, device: *device, job, since_us: self.shares_us };
                is_failed |= processes.read(quantities, set).is_some();
            }
        }
        self.shares_us = began_us;
        if gpu.has_new_gaps {
            self.driver.note_change();
        }
        match (gpu.is_lost, is_any) {
            // Its other values are absent until it returns.
            (true, false) => Outcome::Retry(Errno::NODEV),
            (false, false) if is_failed => Outcome::Retry(Errno::IO),
            (_, _) => Outcome::Read,
        }
    }
}

struct JobReading<'a, 'b> {
    gpu: &'a mut GpuReading<'b>,
    device: usize,
    job: &'a JobGpus,
    since_us: u64,
}

impl JobReading<'_, '_> {
    /// Reads the quantities of the processes, and passes on each value with its place. Returns an error, if
    /// there is one.
    fn read(&mut self, quantities: &[usize], mut value: impl FnMut(usize, u64)) -> Option<NvmlError> {
        let wanted =
            quantities.iter().enumerate().filter_map(|(place, number)| match QUANTITIES.get(*number)?.call {
                Call::OfJob(quantity) => Some((place, *number, quantity)),
                Call::Device(_) | Call::XidErrors | Call::XidLast | Call::Gpm(_) => None,
            });
        let wanted: Vec<_> = wanted.collect();
        if wanted.is_empty() || self.gpu.is_lost {
            return None;
        }
        let pids = self.job.pids();
        let mut failure = None;
        for (place, number, quantity) in wanted {
            match self.value(quantity, &pids) {
                Ok(Some(bits)) => value(place, bits),
                Ok(None) => {}
                Err(error) => failure = self.gpu.classify(self.device, number, error).or(failure),
            }
        }
        failure
    }

    fn value(&mut self, quantity: JobQuantity, pids: &BTreeSet<u32>) -> Result<Option<u64>, NvmlError> {
        if quantity == JobQuantity::Utilization {
            let shares = self.gpu.process_shares(self.device, self.since_us)?;
            let own = shares.iter().filter(|share| pids.contains(&share.pid));
            return Ok(Some(own.map(|share| u64::from(share.sm_util)).sum()));
        }
        let processes = self.gpu.processes(self.device)?;
        let own = processes.iter().filter(|process| pids.contains(&process.pid));
        if quantity == JobQuantity::Processes {
            return Ok(Some(own.count() as u64));
        }
        // Absent if the driver does not know the memory of one of them.
        let memory = own.map(|process| match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        });
        Ok(memory.sum())
    }
}

/// Reports that the list of GPUs, of the node or of the job, has changed: a source without slots.
#[derive(Debug)]
pub(super) struct DriverWatch {
    driver: Arc<Driver>,
    job: Option<Arc<JobGpus>>,
    seen: (u64, u64),
}

impl DriverWatch {
    /// Watches changes of the driver after the first `seen`.
    pub(super) fn new(driver: &Arc<Driver>, seen: u64, job: Option<Arc<JobGpus>>) -> Self {
        let of_job = job.as_ref().map_or(0, |job| job.changes());
        Self { driver: Arc::clone(driver), job, seen: (seen, of_job) }
    }

    fn changes(&self) -> (u64, u64) {
        (self.driver.changes(), self.job.as_ref().map_or(0, |job| job.changes()))
    }
}

impl CustomSource for DriverWatch {
    fn read(&mut self, _reading: &mut Reading) -> Outcome {
        self.driver.look_for_signs();
        let changes = self.changes();
        if std::mem::replace(&mut self.seen, changes) == changes { Outcome::Read } else { Outcome::Changed }
    }
}
