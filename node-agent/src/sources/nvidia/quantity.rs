//! Quantities of a GPU: the calls of NVML, and the conversion of their answers to the units of the catalogue.

use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, PerformancePolicy, TemperatureSensor,
};
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::Utilization;
use nvml_wrapper_sys::bindings::field_id::{
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
    NVML_FI_DEV_PCIE_COUNT_RX_BYTES, NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
};
use polymeter_proto::units::to_f64;

use super::older_drivers::{self, Memory};
use super::raw::{ALL_LINKS, field_value};

#[derive(Debug)]
pub(super) struct Quantity {
    pub(super) field: &'static str,
    /// Reason of throttling that it is about, which becomes a label.
    pub(super) reason: Option<&'static str>,
    pub(super) of_mig: bool,
    /// True for GPUs of the node only, not for those of a job.
    is_only_of_nodes: bool,
    pub(super) call: Call,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Device(fn(&mut Answers<'_>) -> Result<u64, NvmlError>),
    XidErrors,
    XidLast,
    /// A quantity between two samples.
    Gpm(GpmMetricId),
    OfJob(JobQuantity),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobQuantity {
    Processes,
    Memory,
    /// Share of the time in which the multiprocessors worked for them.
    Utilization,
}

/// Answers of one device in one reading, so that each call with several values is made once.
#[derive(Debug)]
pub(super) struct Answers<'a> {
    pub(super) device: &'a Device<'static>,
    utilization: Option<Utilization>,
    memory: Option<Memory>,
    throttle: Option<ThrottleReasons>,
}

impl<'a> Answers<'a> {
    pub(super) const fn new(device: &'a Device<'static>) -> Self {
        Self { device, utilization: None, memory: None, throttle: None }
    }

    fn utilization(&mut self) -> Result<Utilization, NvmlError> {
        let known = self.utilization.take().map_or_else(|| self.device.utilization_rates(), Ok)?;
        Ok(self.utilization.insert(known).clone())
    }

    fn memory(&mut self) -> Result<Memory, NvmlError> {
        let known = self.memory.map_or_else(|| older_drivers::memory(self.device), Ok)?;
        Ok(*self.memory.insert(known))
    }

    fn is_throttled(&mut self, reason: ThrottleReasons) -> Result<u64, NvmlError> {
        let known = self.throttle.map_or_else(|| older_drivers::throttle_reasons(self.device), Ok)?;
        Ok(u64::from(self.throttle.insert(known).contains(reason)))
    }

    fn throttled_ns(&self, reason: PerformancePolicy) -> Result<u64, NvmlError> {
        Ok(self.device.violation_status(reason)?.violation_time)
    }
}

/// All quantities. Those of one call stand together.
pub(super) static QUANTITIES: &[Quantity] = &[
    device("energy", |gpu| Ok((to_f64(gpu.device.total_energy_consumption()?) / 1e3).to_bits())),
    device("power", |gpu| Ok(watts(gpu.device.power_usage()?))),
    device("power_limit", |gpu| Ok(watts(gpu.device.enforced_power_limit()?))),
    device("utilization", |gpu| Ok(u64::from(gpu.utilization()?.gpu))),
    device("memory_utilization", |gpu| Ok(u64::from(gpu.utilization()?.memory))),
    device("memory_used", |gpu| Ok(gpu.memory()?.used)).of_mig(),
    device("memory_total", |gpu| Ok(gpu.memory()?.total)).of_mig(),
    device("clock_sm", |gpu| Ok(hertz(gpu.device.clock_info(Clock::SM)?))),
    device("clock_memory", |gpu| Ok(hertz(gpu.device.clock_info(Clock::Memory)?))),
    device("temperature", |gpu| Ok(u64::from(gpu.device.temperature(TemperatureSensor::Gpu)?))),
    throttled("applications_clocks", |gpu| gpu.is_throttled(ThrottleReasons::APPLICATIONS_CLOCKS_SETTING)),
    throttled("power_cap", |gpu| gpu.is_throttled(ThrottleReasons::SW_POWER_CAP)),
    throttled("hardware_slowdown", |gpu| gpu.is_throttled(ThrottleReasons::HW_SLOWDOWN)),
    throttled("sync_boost", |gpu| gpu.is_throttled(ThrottleReasons::SYNC_BOOST)),
    throttled("thermal", |gpu| gpu.is_throttled(ThrottleReasons::SW_THERMAL_SLOWDOWN)),
    throttled("hardware_thermal", |gpu| gpu.is_throttled(ThrottleReasons::HW_THERMAL_SLOWDOWN)),
    throttled("power_brake", |gpu| gpu.is_throttled(ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN)),
    throttled_time("power", |gpu| gpu.throttled_ns(PerformancePolicy::Power)),
    throttled_time("thermal", |gpu| gpu.throttled_ns(PerformancePolicy::Thermal)),
    throttled_time("sync_boost", |gpu| gpu.throttled_ns(PerformancePolicy::SyncBoost)),
    throttled_time("board_limit", |gpu| gpu.throttled_ns(PerformancePolicy::BoardLimit)),
    throttled_time("low_utilization", |gpu| gpu.throttled_ns(PerformancePolicy::LowUtilization)),
    throttled_time("reliability", |gpu| gpu.throttled_ns(PerformancePolicy::Reliability)),
    device("ecc_corrected_volatile", |gpu| {
        gpu.device.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile)
    }),
    device("ecc_corrected_aggregate", |gpu| {
        gpu.device.total_ecc_errors(MemoryError::Corrected, EccCounter::Aggregate)
    }),
    device("ecc_uncorrected_volatile", |gpu| {
        gpu.device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
    }),
    device("ecc_uncorrected_aggregate", |gpu| {
        gpu.device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Aggregate)
    }),
    of("xid_errors", Call::XidErrors),
    of("xid_last", Call::XidLast),
    // In KB/s, of 1000 bytes.
    device("pcie_receive_rate", |gpu| {
        Ok(u64::from(gpu.device.pcie_throughput(PcieUtilCounter::Receive)?) * 1000)
    }),
    device("pcie_transmit_rate", |gpu| {
        Ok(u64::from(gpu.device.pcie_throughput(PcieUtilCounter::Send)?) * 1000)
    }),
    device("pcie_receive_bytes", |gpu| field_value(gpu.device, NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0)),
    device("pcie_transmit_bytes", |gpu| field_value(gpu.device, NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0)),
    device("pcie_replays", |gpu| Ok(u64::from(gpu.device.pcie_replay_counter()?))),
    device("nvlink_receive_bytes", |gpu| nvlink(gpu.device, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX)),
    device("nvlink_transmit_bytes", |gpu| nvlink(gpu.device, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)),
    device("processes", |gpu| Ok(older_drivers::processes(gpu.device)?.len() as u64)).of_mig().of_nodes(),
    of("process_count", Call::OfJob(JobQuantity::Processes)).of_mig(),
    of("process_memory", Call::OfJob(JobQuantity::Memory)).of_mig(),
    of("process_utilization", Call::OfJob(JobQuantity::Utilization)).of_mig(),
    of("gpm_sm_active", Call::Gpm(GpmMetricId::SmUtil)).of_mig(),
    of("gpm_sm_occupancy", Call::Gpm(GpmMetricId::SmOccupancy)).of_mig(),
    of("gpm_tensor_active", Call::Gpm(GpmMetricId::AnyTensorUtil)).of_mig(),
    of("gpm_fp64_active", Call::Gpm(GpmMetricId::Fp64Util)).of_mig(),
    of("gpm_fp32_active", Call::Gpm(GpmMetricId::Fp32Util)).of_mig(),
    of("gpm_fp16_active", Call::Gpm(GpmMetricId::Fp16Util)).of_mig(),
    of("gpm_memory_bandwidth", Call::Gpm(GpmMetricId::DramBwUtil)).of_mig(),
];

const fn of(field: &'static str, call: Call) -> Quantity {
    Quantity { field, reason: None, of_mig: false, is_only_of_nodes: false, call }
}

const fn device(field: &'static str, call: fn(&mut Answers<'_>) -> Result<u64, NvmlError>) -> Quantity {
    of(field, Call::Device(call))
}

const fn throttled(reason: &'static str, call: fn(&mut Answers<'_>) -> Result<u64, NvmlError>) -> Quantity {
    Quantity { reason: Some(reason), ..device("throttled", call) }
}

const fn throttled_time(
    reason: &'static str,
    call: fn(&mut Answers<'_>) -> Result<u64, NvmlError>,
) -> Quantity {
    Quantity { reason: Some(reason), ..device("throttled_time", call) }
}

impl Quantity {
    const fn of_mig(self) -> Self {
        Self { of_mig: true, ..self }
    }

    const fn of_nodes(self) -> Self {
        Self { is_only_of_nodes: true, ..self }
    }

    /// True for a quantity of GPUs of a job, or else of the node.
    pub(super) const fn is_of(&self, job: bool) -> bool {
        if job { !self.is_only_of_nodes } else { !matches!(self.call, Call::OfJob(_)) }
    }
}

/// Converts milliwatts to the bits of watts.
fn watts(milliwatts: u32) -> u64 {
    (f64::from(milliwatts) / 1e3).to_bits()
}

fn hertz(megahertz: u32) -> u64 {
    u64::from(megahertz) * 1_000_000
}

/// Bytes over all links; the library counts KiB.
fn nvlink(device: &Device<'_>, field: u32) -> Result<u64, NvmlError> {
    Ok(field_value(device, field, ALL_LINKS)?.saturating_mul(1024))
}

/// True if the device does not have the quantity, now and later.
pub(super) const fn is_unsupported(error: &NvmlError) -> bool {
    matches!(error, NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_))
}

/// True if the device cannot be reached any more with this handle.
pub(super) const fn is_lost(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::GpuLost
            | NvmlError::ResetRequired
            | NvmlError::Uninitialized
            | NvmlError::DriverNotLoaded
            | NvmlError::LibRmVersionMismatch
    )
}
