//! NVIDIA GPUs. Source: `nvml.h` of the NVIDIA Management Library, whose functions the places name.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::period::Period;
use crate::series::Unit::{
    self, Bytes, BytesPerSecond, Celsius, Count, Hertz, Joules, Nanoseconds, Percent, Watts,
};

const fn counter(name: &'static str, unit: Unit, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, unit, origins, help)
}

const fn gauge(name: &'static str, unit: Unit, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::gauge(name, unit, origins, help)
}

const fn float_counter(
    name: &'static str,
    unit: Unit,
    origins: &'static [Origin],
    help: &'static str,
) -> Metric {
    updated_counter(name, unit, origins, help).float()
}

/// A counter that the driver updates every 20 to 100 ms.
const fn updated_counter(
    name: &'static str,
    unit: Unit,
    origins: &'static [Origin],
    help: &'static str,
) -> Metric {
    counter(name, unit, origins, help).updated_every(Period::HUNDRED_MILLISECONDS)
}

const fn float_gauge(
    name: &'static str,
    unit: Unit,
    origins: &'static [Origin],
    help: &'static str,
) -> Metric {
    gauge(name, unit, origins, help).float()
}

/// Declares each quantity of a GPU twice: for all GPUs of the node, and for the GPUs of a job.
macro_rules! of_gpus {
    ($($kind:ident $name:literal, $field:literal, $unit:ident, $place:literal, $help:literal;)*) => {
        /// All GPUs of the node.
        pub(crate) static NODE: &[Metric] = &[
            $($kind(
                concat!("node.gpu.", $name),
                $unit,
                &[Origin::source("nvidia", $field, concat!("NVML `", $place, "`, each GPU"))],
                $help,
            )
            .of_node(),)*
        ];

        /// The GPUs of a job.
        pub(crate) static JOB: &[Metric] = &[
            $($kind(
                concat!("gpu.", $name),
                $unit,
                &[Origin::source("nvidia_job", $field, concat!("NVML `", $place, "`, each GPU of the job"))],
                $help,
            ),)*
        ];
    };
}

of_gpus! {
    float_counter "energy", "energy", Joules, "nvmlDeviceGetTotalEnergyConsumption",
        "Energy of each GPU since the driver was loaded.";
    float_gauge "power", "power", Watts, "nvmlDeviceGetPowerUsage",
        "Power of each GPU with its memory, averaged over up to a second by the hardware.";
    float_gauge "power.limit", "power_limit", Watts, "nvmlDeviceGetEnforcedPowerLimit",
        "Limit of the power of each GPU.";
    gauge "utilization", "utilization", Percent, "nvmlDeviceGetUtilizationRates",
        "Share of the time in which a kernel ran on each GPU, over the driver's last sample period.";
    gauge "memory.utilization", "memory_utilization", Percent, "nvmlDeviceGetUtilizationRates",
        "Share of the time in which the memory of each GPU was read or written, over the driver's last sample period.";
    gauge "memory.used", "memory_used", Bytes, "nvmlDeviceGetMemoryInfo_v2",
        "Memory of each GPU that is allocated, without the memory that the driver reserves.";
    gauge "memory.total", "memory_total", Bytes, "nvmlDeviceGetMemoryInfo_v2", "Memory of each GPU.";
    gauge "clock.sm", "clock_sm", Hertz, "nvmlDeviceGetClockInfo", "Clock of the processors of each GPU.";
    gauge "clock.memory", "clock_memory", Hertz, "nvmlDeviceGetClockInfo", "Clock of the memory of each GPU.";
    gauge "temperature", "temperature", Celsius, "nvmlDeviceGetTemperature", "Temperature of each GPU.";
    gauge "throttled", "throttled", Count, "nvmlDeviceGetCurrentClocksThrottleReasons",
        "1 for each reason that lowers the clocks of a GPU now, else 0.";
    updated_counter "throttled.time", "throttled_time", Nanoseconds, "nvmlDeviceGetViolationStatus",
        "Time in which each reason lowered the clocks of a GPU.";
    counter "ecc.corrected.volatile", "ecc_corrected_volatile", Count, "nvmlDeviceGetTotalEccErrors",
        "Corrected memory errors of each GPU since the driver was loaded.";
    counter "ecc.corrected.aggregate", "ecc_corrected_aggregate", Count, "nvmlDeviceGetTotalEccErrors",
        "Corrected memory errors of each GPU in its lifetime.";
    counter "ecc.uncorrected.volatile", "ecc_uncorrected_volatile", Count, "nvmlDeviceGetTotalEccErrors",
        "Memory errors of each GPU that could not be corrected, since the driver was loaded.";
    counter "ecc.uncorrected.aggregate", "ecc_uncorrected_aggregate", Count, "nvmlDeviceGetTotalEccErrors",
        "Memory errors of each GPU that could not be corrected, in its lifetime.";
    counter "xid.errors", "xid_errors", Count, "nvmlEventSetWait_v2",
        "Critical errors (XID) that the driver reported for each GPU since the agent watches it.";
    gauge "xid.last", "xid_last", Count, "nvmlEventSetWait_v2",
        "Number of the last critical error (XID) of each GPU; absent before the first.";
    gauge "pcie.receive.rate", "pcie_receive_rate", BytesPerSecond, "nvmlDeviceGetPcieThroughput",
        "Bytes per second that each GPU received over PCIe in the last 20 ms; a read takes as long.";
    gauge "pcie.transmit.rate", "pcie_transmit_rate", BytesPerSecond, "nvmlDeviceGetPcieThroughput",
        "Bytes per second that each GPU sent over PCIe in the last 20 ms; a read takes as long.";
    counter "pcie.receive.bytes", "pcie_receive_bytes", Bytes, "NVML_FI_DEV_PCIE_COUNT_RX_BYTES",
        "Bytes that each GPU received over PCIe.";
    counter "pcie.transmit.bytes", "pcie_transmit_bytes", Bytes, "NVML_FI_DEV_PCIE_COUNT_TX_BYTES",
        "Bytes that each GPU sent over PCIe.";
    counter "pcie.replays", "pcie_replays", Count, "nvmlDeviceGetPcieReplayCounter",
        "Repeated transfers of each GPU over PCIe.";
    counter "nvlink.receive.bytes", "nvlink_receive_bytes", Bytes, "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX",
        "Bytes that each GPU received over all its links of NVLink.";
    counter "nvlink.transmit.bytes", "nvlink_transmit_bytes", Bytes, "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX",
        "Bytes that each GPU sent over all its links of NVLink.";
    float_gauge "gpm.sm.active", "gpm_sm_active", Percent, "nvmlGpmMetricsGet",
        "Share of the time in which a multiprocessor had work, over all of each GPU, since the last reading.";
    float_gauge "gpm.sm.occupancy", "gpm_sm_occupancy", Percent, "nvmlGpmMetricsGet",
        "Warps that were resident, of those that fit into the multiprocessors of each GPU, since the last reading.";
    float_gauge "gpm.tensor.active", "gpm_tensor_active", Percent, "nvmlGpmMetricsGet",
        "Share of the time in which the tensor cores of each GPU had work, since the last reading.";
    float_gauge "gpm.fp64.active", "gpm_fp64_active", Percent, "nvmlGpmMetricsGet",
        "Share of the time in which the double-precision units of each GPU had work, since the last reading.";
    float_gauge "gpm.fp32.active", "gpm_fp32_active", Percent, "nvmlGpmMetricsGet",
        "Share of the time in which the single-precision units of each GPU had work, since the last reading.";
    float_gauge "gpm.fp16.active", "gpm_fp16_active", Percent, "nvmlGpmMetricsGet",
        "Share of the time in which the half-precision units of each GPU had work, since the last reading.";
    float_gauge "gpm.memory.bandwidth", "gpm_memory_bandwidth", Percent, "nvmlGpmMetricsGet",
        "Share of the memory bandwidth of each GPU that was used since the last reading.";
}

/// The processes on all GPUs of the node.
pub(crate) static NODE_PROCESSES: &[Metric] = &[gauge(
    "node.gpu.processes",
    Count,
    &[Origin::source("nvidia", "processes", "NVML `nvmlDeviceGetComputeRunningProcesses_v3`, each GPU")],
    "Processes with a compute context on each GPU.",
)
.of_node()];

const fn of_processes(field: &'static str, place: &'static str) -> Origin {
    Origin::source("nvidia_job", field, place)
}

/// The processes of a job on its GPUs.
pub(crate) static JOB_PROCESSES: &[Metric] = &[
    gauge(
        "gpu.process.count",
        Count,
        &[of_processes(
            "process_count",
            "NVML `nvmlDeviceGetComputeRunningProcesses_v3`, the job's processes",
        )],
        "Processes of the job with a compute context on each of its GPUs.",
    ),
    gauge(
        "gpu.process.memory",
        Bytes,
        &[of_processes(
            "process_memory",
            "NVML `nvmlDeviceGetComputeRunningProcesses_v3`, the job's processes",
        )],
        "Memory of each GPU that the job's processes have allocated.",
    ),
    gauge(
        "gpu.process.utilization",
        Percent,
        &[of_processes("process_utilization", "NVML `nvmlDeviceGetProcessUtilization`, the job's processes")],
        "Share of the time in which the multiprocessors of each GPU worked for the job's processes since the last reading.",
    ),
];
