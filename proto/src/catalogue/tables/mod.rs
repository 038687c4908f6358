//! The metric tables, one file for each field of measurement.

mod agent;
mod cgroup;
mod filesystem;
mod hwmon;
mod infiniband;
mod memory;
mod node;
mod perf;
mod process;

use super::metric::Metric;

/// All tables, in the order of the documentation.
pub(crate) static ALL: &[&[Metric]] = &[
    cgroup::CPU,
    memory::STAT,
    memory::USAGE,
    cgroup::OTHER,
    cgroup::PRESSURE,
    perf::METRICS,
    process::METRICS,
    node::METRICS,
    filesystem::METRICS,
    infiniband::METRICS,
    hwmon::METRICS,
    agent::METRICS,
];
