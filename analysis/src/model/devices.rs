//! Measurements of devices outside the nodes during a job.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceQuantity {
    /// Energy as the integral of a power.
    Power,
    /// Energy by a counter.
    Energy,
    /// Bytes that a port transmitted to the node.
    ToNode,
    /// Bytes that a port received from the node.
    FromNode,
}

/// Measurement of one node, by one device or by several that each have a part of it: two outlets for two
/// power supplies. Several measurements of one node stand beside each other; their sum has no meaning.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceMeasurement {
    pub node: String,
    pub quantity: DeviceQuantity,
    /// Name of the metric behind that of the device: `outlet.power`.
    pub name: String,
    pub devices: Vec<String>,
    /// Sensor of the device; empty for outlets, ports, and devices that have one value.
    pub sensor: String,
    /// Number of series that were added.
    pub series: u64,
    /// True if other jobs ran on the node: the values are those of the whole node all the same.
    pub is_shared: bool,
    /// Energy from the start of the job on the node to its end there; none for traffic.
    pub joules: Option<f64>,
    pub watts_mean: Option<f64>,
    /// The same of traffic; none for power and energy.
    pub bytes: Option<f64>,
}
