//! The CPU time that sampling uses.

use std::time::Duration;

use polymeter_service::clock;

/// The CPU time at the last measurement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CpuMeter {
    at_ns: u64,
    cpu_ns: u64,
}

impl CpuMeter {
    /// Percent of a CPU since the last call; none at the first. The calling thread is not counted: it is busy with what users
    /// ask, which has a budget of its own, and none of it is saved by a slower lease.
    pub(super) fn measure(&mut self) -> Option<f64> {
        let cpu_ns = clock::process_cpu_ns().saturating_sub(clock::thread_cpu_ns());
        let former = std::mem::replace(self, Self { at_ns: clock::monotonic_ns(), cpu_ns });
        let cpu = Duration::from_nanos(cpu_ns.saturating_sub(former.cpu_ns)).as_secs_f64();
        let wall = Duration::from_nanos(self.at_ns.saturating_sub(former.at_ns)).as_secs_f64();
        (former.at_ns > 0 && wall > 0.0).then(|| 100.0 * cpu / wall)
    }
}
