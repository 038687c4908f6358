//! One GPU with its MIG devices. All its readers share its handles, and one of them reads at a time: a call
//! that does not return stops one thread, and the others go on without values.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};
use nvml_wrapper::{Device, Nvml};

use super::gpm::GpmState;
use super::older_drivers;
use super::quantity::{Answers, Call, QUANTITIES, is_lost, is_unsupported};
use super::xid::Xid;
use crate::clock;
use crate::sources::lock::lock;

/// Longest wait for another reader of the same GPU: a reading takes some milliseconds, or 40 with the rates
/// of PCIe.
const BUSY_NS: u64 = 200_000_000;

const BUSY_RETRY: Duration = Duration::from_millis(1);

/// Age up to which a value is passed on to another reader. The driver updates values every 20 ms at most.
const FRESH_NS: u64 = 5_000_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) uuid: String,
    /// Number of the GPU instance, if it is a MIG device.
    pub(super) instance: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Gpu {
    /// The driver's number of the GPU.
    pub(super) index: u32,
    /// Number in the name of its device file, by which schedulers name it; the driver's number where that is
    /// unknown.
    pub(super) minor: u32,
    /// The GPU itself, then its MIG devices.
    pub(super) devices: Vec<Identity>,
    pub(super) xid: Arc<Mutex<Xid>>,
    nvml: &'static Nvml,
    /// Grouped by device and quantity: true for those that the device lacks.
    unsupported: Vec<Vec<AtomicBool>>,
    handles: Mutex<Handles>,
}

#[derive(Debug, Default)]
pub(super) struct Handles {
    /// A handle of each device; empty if the GPU is lost.
    devices: Vec<Arc<Device<'static>>>,
    /// Grouped by device and quantity: last value, and time at which its reading began.
    last: Vec<Vec<Option<(u64, u64)>>>,
}

impl Gpu {
    pub(super) fn new(
        nvml: &'static Nvml,
        (index, minor): (u32, u32),
        devices: Vec<Identity>,
        xid: Arc<Mutex<Xid>>,
    ) -> Self {
        Self {
            index,
            minor,
            nvml,
            xid,
            unsupported: devices
                .iter()
                .map(|_| QUANTITIES.iter().map(|_| AtomicBool::new(false)).collect())
                .collect(),
            handles: Mutex::default(),
            devices,
        }
    }

    pub(super) fn uuid(&self) -> &str {
        self.devices.first().map_or("", |device| &device.uuid)
    }

    pub(super) fn lacks(&self, device: usize, quantity: usize) -> bool {
        let known = self.unsupported.get(device).and_then(|quantities| quantities.get(quantity));
        known.is_some_and(|unsupported| unsupported.load(Relaxed))
    }

    /// Begins the exclusive use of the handles, if no reading is under way, and forgets them.
    pub(super) fn forget_handles(&self) -> Option<MutexGuard<'_, Handles>> {
        let mut handles = match self.handles.try_lock() {
            Ok(handles) => handles,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        handles.devices.clear();
        lock(&self.xid).forget_events();
        Some(handles)
    }

    /// Begins a reading; `None` if another one does not end.
    pub(super) fn begin(&self) -> Option<GpuReading<'_>> {
        let until_ns = clock::monotonic_ns().saturating_add(BUSY_NS);
        loop {
            let handles = match self.handles.try_lock() {
                Ok(handles) => handles,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if clock::monotonic_ns() < until_ns => {
                    clock::sleep(BUSY_RETRY);
                    continue;
                }
                Err(TryLockError::WouldBlock) => return None,
            };
            let mut reading = GpuReading {
                gpu: self,
                handles,
                began_ns: clock::monotonic_ns(),
                is_lost: false,
                has_new_gaps: false,
            };
            reading.find_devices();
            return Some(reading);
        }
    }
}

/// A reading of a GPU, during which no other thread reads it.
#[derive(Debug)]
pub(super) struct GpuReading<'a> {
    gpu: &'a Gpu,
    handles: MutexGuard<'a, Handles>,
    began_ns: u64,
    pub(super) is_lost: bool,
    /// True if a quantity turned out to be unsupported.
    pub(super) has_new_gaps: bool,
}

impl GpuReading<'_> {
    /// Gets the handles by the UUIDs, if there are none. A GPU that was lost has others when it returns.
    fn find_devices(&mut self) {
        if self.handles.devices.len() == self.gpu.devices.len() {
            return;
        }
        let device =
            |identity: &Identity| older_drivers::device_by_uuid(self.gpu.nvml, &identity.uuid).map(Arc::new);
        match self.gpu.devices.iter().map(device).collect() {
            Ok(devices) => {
                self.handles.devices = devices;
                let unread = vec![None; QUANTITIES.len()];
                self.handles.last = vec![unread; self.gpu.devices.len()];
            }
            Err(_lost) => self.lose(),
        }
    }

    fn lose(&mut self) {
        self.is_lost = true;
        if !self.handles.devices.is_empty() {
            tracing::warn!(gpu = self.gpu.index, uuid = self.gpu.uuid(), "the NVIDIA driver has lost a GPU");
            self.handles.devices.clear();
            lock(&self.gpu.xid).end();
        }
    }

    /// What is known of a quantity while the GPU is lost: its critical errors.
    pub(super) fn known(&self, quantity: usize) -> Option<u64> {
        let (errors, last) = lock(&self.gpu.xid).known();
        match QUANTITIES.get(quantity)?.call {
            Call::XidErrors => errors,
            Call::XidLast => last,
            Call::Device(_) | Call::Gpm(_) | Call::OfJob(_) => None,
        }
    }

    /// Reads the quantities of a device, and passes on each value with its place among them. Returns an
    /// error, unless it only says that the device lacks a quantity.
    pub(super) fn read(
        &mut self,
        device: usize,
        quantities: &[usize],
        gpm: &mut GpmState,
        mut value: impl FnMut(usize, u64),
    ) -> Option<NvmlError> {
        let handle = Arc::clone(self.handles.devices.get(device)?);
        let mut answers = Answers::new(&handle);
        let mut failure = None;
        let mut samples = Vec::new();
        for (place, quantity) in quantities.iter().enumerate() {
            match QUANTITIES.get(*quantity).map(|quantity| quantity.call) {
                Some(Call::Gpm(id)) => {
                    samples.push((place, *quantity, id));
                    continue;
                }
                // The job's source reads them.
                Some(Call::OfJob(_)) => continue,
                Some(Call::Device(_) | Call::XidErrors | Call::XidLast) | None => {}
            }
            match self.value(device, *quantity, &mut answers) {
                Ok(bits) => value(place, bits),
                Err(error) => failure = self.classify(device, *quantity, error).or(failure),
            }
            if self.is_lost {
                return failure;
            }
        }
        if samples.is_empty() {
            return failure;
        }
        let ids: Vec<_> = samples.iter().map(|(_, _, id)| *id).collect();
        let whole = self.handles.devices.first().map(Arc::clone)?;
        let instance = self.gpu.devices.get(device).and_then(|device| device.instance);
        for ((place, quantity, _), result) in samples.iter().zip(gpm.read(device, &whole, instance, &ids)) {
            match result {
                Ok(percent) => value(*place, percent.to_bits()),
                Err(error) => failure = self.classify(device, *quantity, error).or(failure),
            }
        }
        failure
    }

    pub(super) fn processes(&mut self, device: usize) -> Result<Vec<ProcessInfo>, NvmlError> {
        let handle = self.handles.devices.get(device).ok_or(NvmlError::GpuLost)?;
        let instance = self.gpu.devices.get(device).and_then(|device| device.instance);
        match (older_drivers::processes(handle), instance) {
            // The driver lists them for the whole GPU only, each with its instance.
            (Err(error), Some(instance)) if is_unsupported(&error) => {
                let whole = self.handles.devices.first().ok_or(NvmlError::GpuLost)?;
                let mut processes = older_drivers::processes(whole)?;
                processes.retain(|process| process.gpu_instance_id == Some(instance));
                Ok(processes)
            }
            (processes, _) => processes,
        }
    }

    /// Shares of processes in the time of a device since a time of the driver's clock.
    pub(super) fn process_shares(
        &mut self,
        device: usize,
        since_us: u64,
    ) -> Result<Vec<ProcessUtilizationSample>, NvmlError> {
        let handle = self.handles.devices.get(device).ok_or(NvmlError::GpuLost)?;
        match handle.process_utilization_stats(since_us) {
            // No process has used it since then.
            Err(NvmlError::NotFound) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Takes a value that another reader has just read, or reads it.
    fn value(&mut self, device: usize, quantity: usize, answers: &mut Answers<'_>) -> Result<u64, NvmlError> {
        let fresh_ns = self.began_ns.saturating_sub(FRESH_NS);
        let last = self.handles.last.get_mut(device).and_then(|device| device.get_mut(quantity));
        if let Some((bits, _)) = last.as_ref().and_then(|last| last.filter(|(_, at_ns)| *at_ns >= fresh_ns)) {
            return Ok(bits);
        }
        let call = QUANTITIES.get(quantity).map(|quantity| quantity.call);
        let xid = || lock(&self.gpu.xid);
        let bits = match call {
            Some(Call::Device(call)) => call(answers)?,
            Some(Call::XidErrors) => xid().errors(self.gpu.nvml, answers.device)?,
            Some(Call::XidLast) => xid().last(self.gpu.nvml, answers.device)?,
            Some(Call::Gpm(_) | Call::OfJob(_)) | None => return Err(NvmlError::NoData),
        };
        if let Some(last) = last {
            *last = Some((bits, self.began_ns));
        }
        Ok(bits)
    }

    /// Records that a device lacks a quantity, or that the GPU is lost. Returns any other error.
    pub(super) fn classify(&mut self, device: usize, quantity: usize, error: NvmlError) -> Option<NvmlError> {
        if is_lost(&error) {
            self.lose();
        } else if is_unsupported(&error) {
            let known = self.gpu.unsupported.get(device).and_then(|quantities| quantities.get(quantity));
            self.has_new_gaps |= known.is_some_and(|known| !known.swap(true, Relaxed));
            return None;
        } else if matches!(error, NvmlError::NoData | NvmlError::NotFound) {
            return None;
        }
        Some(error)
    }
}
