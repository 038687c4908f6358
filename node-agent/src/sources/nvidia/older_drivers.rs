//! Calls of NVML that some drivers have in another form only. The first form is that of current drivers.

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::nvmlMemory_t;

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) used: u64,
    pub(super) total: u64,
}

/// True if the library, or the driver in the kernel, does not have the call.
const fn is_missing(error: &NvmlError) -> bool {
    matches!(error, NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound)
}

/// Reads the memory of a device. Drivers before 510 count what the driver reserves as used.
pub(super) fn memory(device: &Device<'_>) -> Result<Memory, NvmlError> {
    match device.memory_info() {
        Err(error) if is_missing(&error) => memory_before_510(device),
        Ok(memory) => Ok(Memory { used: memory.used, total: memory.total }),
        Err(error) => Err(error),
    }
}

fn memory_before_510(device: &Device<'_>) -> Result<Memory, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
    #[expect(unsafe_code, reason = "a call of the library, which the wrapper does not have")]
    // SAFETY: the handle is valid as long as the library is, and the library writes to the structure only.
    nvml_try(unsafe { call(device.handle(), &raw mut memory) })?;
    Ok(Memory { used: memory.used, total: memory.total })
}

/// Lists the processes with a compute context on a device: by the third version of the call, or, before
/// driver 510, the second.
pub(super) fn processes(device: &Device<'_>) -> Result<Vec<ProcessInfo>, NvmlError> {
    match device.running_compute_processes() {
        Err(error) if is_missing(&error) => device.running_compute_processes_v2(),
        other => other,
    }
}

/// Reasons that lower the clocks of a device now. Drivers since 535 call them event reasons.
pub(super) fn throttle_reasons(device: &Device<'_>) -> Result<ThrottleReasons, NvmlError> {
    match device.current_throttle_reasons() {
        Err(error) if is_missing(&error) => event_reasons(device),
        other => other,
    }
}

fn event_reasons(device: &Device<'_>) -> Result<ThrottleReasons, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetCurrentClocksEventReasons.as_ref())?;
    let mut reasons = 0;
    #[expect(unsafe_code, reason = "a call of the library, which the wrapper does not have")]
    // SAFETY: the handle is valid as long as the library is, and the library writes to the number only.
    nvml_try(unsafe { call(device.handle(), &raw mut reasons) })?;
    Ok(ThrottleReasons::from_bits_truncate(reasons))
}

pub(super) fn device_by_uuid(nvml: &'static Nvml, uuid: &str) -> Result<Device<'static>, NvmlError> {
    match nvml.device_by_uuid(uuid) {
        Err(error) if is_missing(&error) => listed_device(nvml, uuid),
        other => other,
    }
}

fn listed_device(nvml: &'static Nvml, uuid: &str) -> Result<Device<'static>, NvmlError> {
    let is_it = |device: &Device<'static>| device.uuid().is_ok_and(|found| found == uuid);
    for gpu in (0..nvml.device_count()?).filter_map(|index| nvml.device_by_index(index).ok()) {
        if is_it(&gpu) {
            return Ok(gpu);
        }
        for number in 0..gpu.mig_device_count().unwrap_or(0) {
            if let Some(device) = gpu.mig_device_by_index(number).ok().filter(is_it) {
                return Ok(device);
            }
        }
    }
    Err(NvmlError::NotFound)
}
