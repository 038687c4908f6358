//! perf events, identified by the type and the config of perf_event_open(2):
//! `include/uapi/linux/perf_event.h`.

/// A perf event, or a time of a group of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerfEvent {
    Software(u64),
    Hardware(u64),
    /// `PERF_TYPE_HW_CACHE`: `config = cache | op << 8 | result << 16`.
    Cache(u64),
    /// `PERF_TYPE_RAW`; the instance is `r` and the config in hexadecimal.
    Raw,
    /// Event of the CPU's own counters; the instance is its name in the kernel or in the agent's table of CPU
    /// models.
    Named,
    /// Event of a PMU outside of the cores, of the whole node. The instance is the name of the PMU without
    /// the number of a unit, a dot, and the name of the event.
    Unit,
    /// `PERF_TYPE_TRACEPOINT`; the instance is subsystem and name, joined by a dot.
    Tracepoint,
    /// Time that the events of a group were enabled, summed over the CPUs.
    TimeEnabled,
    /// Time that the events of a group counted, summed over the CPUs.
    TimeRunning,
    /// Time that the events of a group of the node were enabled, summed over the units.
    UnitTimeEnabled,
    /// Time that the events of a group of the node counted, summed over the units.
    UnitTimeRunning,
}

impl PerfEvent {
    /// Returns true if it takes a counter of the hardware, of which there are few.
    pub const fn is_of_hardware(self) -> bool {
        match self {
            Self::Hardware(_) | Self::Cache(_) | Self::Raw | Self::Named | Self::Unit => true,
            Self::Software(_)
            | Self::Tracepoint
            | Self::TimeEnabled
            | Self::TimeRunning
            | Self::UnitTimeEnabled
            | Self::UnitTimeRunning => false,
        }
    }
}

/// Returns the config of a raw event's instance: 0x1c2 of `r01c2`.
pub fn raw_config(instance: &str) -> Option<u64> {
    let digits = instance.strip_prefix('r')?;
    let plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// Returns the subsystem and the name of a tracepoint's instance: `sched.sched_switch`.
pub fn tracepoint(instance: &str) -> Option<(&str, &str)> {
    let (subsystem, name) = instance.split_once('.')?;
    (!subsystem.is_empty() && !name.is_empty() && !name.contains('.')).then_some((subsystem, name))
}
