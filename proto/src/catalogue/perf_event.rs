//! perf events, identified by the type and the config of perf_event_open(2):
//! `include/uapi/linux/perf_event.h`.

/// A perf event, or a time of a group of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerfEvent {
    /// `PERF_TYPE_SOFTWARE` with this config.
    Software(u64),
    /// `PERF_TYPE_HARDWARE` with this config.
    Hardware(u64),
    /// `PERF_TYPE_HW_CACHE`: `config = cache | op << 8 | result << 16`.
    Cache(u64),
    /// `PERF_TYPE_RAW`; the instance is `r` and the config in hexadecimal.
    Raw,
    /// `PERF_TYPE_TRACEPOINT`; the instance is subsystem and name, joined by a dot.
    Tracepoint,
    /// Time that the events of a group were enabled, summed over the CPUs.
    TimeEnabled,
    /// Time that the events of a group counted, summed over the CPUs.
    TimeRunning,
}

/// Returns the config of a raw event's instance: `r01c2` is 0x1c2.
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
