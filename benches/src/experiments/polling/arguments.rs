//! Arguments of the experiment.

use polymeter_benches::store::Kind;
use polymeter_proto::period::Period;

/// Measures an agent that polls devices by SNMP, of which some are dead, and one that scrapes exporters.
///
/// Devices are a process that answers at an address for each; the dead ones are a port that nobody reads. The
/// table has the deadlines of the living devices, the CPU time of the agent, and beside it what the stand-in
/// took: its longest time without a look at its port, and how late a timer of 1 ms was on this machine, both
/// of which the agent cannot help. Then the same with no dead device. The exporters are scraped by the agent,
/// with a collector and a store, and then by Prometheus, if `--prometheus` asks for it and it is in PATH.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Devices, with those that are dead.
    #[arg(long, default_value_t = 500)]
    pub(super) devices: u32,
    /// Devices that do not answer.
    #[arg(long, default_value_t = 50)]
    pub(super) dead: u32,
    /// Period of the four metrics of each device.
    #[arg(long, default_value = "1s")]
    pub(super) device_period: Period,
    /// Exporters.
    #[arg(long, default_value_t = 1000)]
    pub(super) exporters: u32,
    /// Series of each exporter.
    #[arg(long, default_value_t = 500)]
    pub(super) series: u32,
    /// Period of the exporters.
    #[arg(long, default_value = "15s")]
    pub(super) exporter_period: Period,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 120)]
    pub(super) seconds: u64,
    /// Seconds before it, in which the devices are searched for their values.
    #[arg(long, default_value_t = 60)]
    pub(super) warm_up: u64,
    /// The store of what exporters have.
    #[arg(long, value_enum)]
    pub(super) store: Option<Kind>,
    /// Let Prometheus scrape the same exporters.
    #[arg(long)]
    pub(super) prometheus: bool,
    /// Measure shortly, as a functional check.
    #[arg(long)]
    pub(super) quick: bool,
}
