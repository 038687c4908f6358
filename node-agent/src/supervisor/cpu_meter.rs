//! CPU time that sampling uses.

use std::time::Duration;

use polymeter_service::clock;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CpuMeter {
    at_ns: u64,
    cpu_ns: u64,
}

impl CpuMeter {
    /// Percentage of a CPU since the last call; none for the first call. Excludes the calling thread: its
    /// work is requests of users, which have a budget of their own and which slower leases do not reduce.
    pub(super) fn measure(&mut self) -> Option<f64> {
        let cpu_ns = clock::process_cpu_ns().saturating_sub(clock::thread_cpu_ns());
        let former = std::mem::replace(self, Self { at_ns: clock::monotonic_ns(), cpu_ns });
        let cpu = Duration::from_nanos(cpu_ns.saturating_sub(former.cpu_ns)).as_secs_f64();
        let wall = Duration::from_nanos(self.at_ns.saturating_sub(former.at_ns)).as_secs_f64();
        (former.at_ns > 0 && wall > 0.0).then(|| 100.0 * cpu / wall)
    }
}
