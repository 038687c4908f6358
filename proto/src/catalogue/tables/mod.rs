//! The metric tables, one file for each field of measurement.

mod agent;
mod beegfs;
mod busiest;
mod cgroup;
mod cray;
mod derived;
mod device;
mod drm_gpu;
mod drm_job;
mod ebpf;
mod energy;
mod ethernet;
mod exited;
mod filesystem;
mod gpfs;
mod hwmon;
mod infiniband;
mod infiniband_drivers;
mod infiniband_hardware;
mod ipmi;
mod job_cpus;
mod kfd;
mod lnet;
mod lustre;
mod memory;
mod nfs;
mod node;
mod numa;
mod nvidia;
mod perf;
mod pressure;
mod process;
mod processor;
mod resctrl;
mod slingshot;
mod stacks;

use super::metric::Metric;
pub(crate) use derived::DERIVED;
pub(crate) use device::INSTANCES as DEVICE_INSTANCES;
pub(crate) use perf::SCALED as SCALED_EVENTS;

/// All tables, in the order of the documentation.
pub(crate) static ALL: &[&[Metric]] = &[
    cgroup::CPU,
    job_cpus::METRICS,
    memory::contents::METRICS,
    memory::reclaim::METRICS,
    memory::local::METRICS,
    memory::usage::METRICS,
    cgroup::OTHER,
    pressure::JOB,
    perf::METRICS,
    perf::PER_CPU,
    stacks::METRICS,
    process::METRICS,
    resctrl::METRICS,
    ebpf::METRICS,
    nvidia::JOB,
    nvidia::JOB_PROCESSES,
    drm_job::METRICS,
    kfd::METRICS,
    busiest::METRICS,
    exited::METRICS,
    node::cpu::METRICS,
    node::cpu::PER_CPU,
    node::kernel::METRICS,
    node::memory::METRICS,
    node::memory::HUGE_PAGES,
    node::vm::METRICS,
    node::disk::METRICS,
    node::network::METRICS,
    pressure::NODE,
    filesystem::METRICS,
    ethernet::METRICS,
    infiniband::METRICS,
    infiniband_hardware::METRICS,
    infiniband_drivers::METRICS,
    infiniband_drivers::LANES,
    slingshot::METRICS,
    lnet::METRICS,
    lustre::METRICS,
    nfs::METRICS,
    gpfs::METRICS,
    beegfs::METRICS,
    energy::METRICS,
    cray::METRICS,
    ipmi::METRICS,
    hwmon::METRICS,
    perf::NODE,
    processor::METRICS,
    numa::MEMORY,
    numa::HUGE_PAGES,
    numa::ALLOCATIONS,
    nvidia::NODE,
    nvidia::NODE_PROCESSES,
    drm_gpu::METRICS,
    device::METRICS,
    agent::METRICS,
];
