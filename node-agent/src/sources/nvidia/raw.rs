//! Calls of NVML that the wrapper does not have.

use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::struct_wrappers::device::FieldValueSample;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{nvmlFieldValue_t, nvmlValue_t};

/// Scope of a field that is summed over all links.
pub(super) const ALL_LINKS: u32 = u32::MAX;

/// Reads a field (`NVML_FI_DEV_...` of `nvml.h`) in a scope, which the wrapper cannot state.
pub(super) fn field_value(device: &Device<'_>, field: u32, scope: u32) -> Result<u64, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetFieldValues.as_ref())?;
    let mut value = nvmlFieldValue_t {
        fieldId: field,
        scopeId: scope,
        timestamp: 0,
        latencyUsec: 0,
        valueType: 0,
        nvmlReturn: 0,
        value: nvmlValue_t { ullVal: 0 },
    };
    #[expect(unsafe_code, reason = "a call of the library, which the wrapper does not have")]
    // SAFETY: the handle is valid as long as the library is, and the library writes to the one value only.
    nvml_try(unsafe { call(device.handle(), 1, &raw mut value) })?;
    match FieldValueSample::try_from(value)?.value? {
        SampleValue::U32(count) => Ok(u64::from(count)),
        SampleValue::U64(count) => Ok(count),
        SampleValue::I64(count) => u64::try_from(count).map_err(|_negative| NvmlError::NoData),
        SampleValue::F64(_) => Err(NvmlError::NoData),
    }
}

/// Initializes the library anew, as after the driver was loaded again: until then its calls fail. Handles are
/// not valid any more.
pub(super) fn initialize_anew(nvml: &Nvml) -> Result<(), NvmlError> {
    let shut_down = nvml_sym(nvml.lib().nvmlShutdown.as_ref())?;
    let initialize = nvml_sym(nvml.lib().nvmlInit_v2.as_ref())?;
    #[expect(unsafe_code, reason = "calls of the library, which the wrapper makes once only")]
    // SAFETY: these calls have no arguments, and the library may be used by several threads. It fails if it
    // is not initialized.
    let initialized = unsafe {
        shut_down();
        initialize()
    };
    nvml_try(initialized)
}

pub(super) fn gpu_instance(device: &Device<'_>) -> Result<u32, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let mut number = 0;
    #[expect(unsafe_code, reason = "a call of the library, which the wrapper does not have")]
    // SAFETY: the handle is valid as long as the library is, and the library writes to the number only.
    nvml_try(unsafe { call(device.handle(), &raw mut number) })?;
    Ok(number)
}
