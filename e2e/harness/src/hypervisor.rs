//! What a hypervisor takes from this machine.

use std::fs;
use std::time::Duration;

/// The unit in which the kernel states the time of its CPUs.
pub const TICK: Duration = Duration::from_millis(10);

/// Returns the time that the hypervisor gave to others, of all CPUs, rounded down to a [`TICK`]. The kernel's CPU
/// time of a process excludes it; the clocks of perf go on.
#[must_use]
pub fn stolen() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: Option<u32> = stat.lines().next().and_then(|cpu| cpu.split_whitespace().nth(8)?.parse().ok());
    TICK * ticks.unwrap_or_else(|| panic!("cannot read the stolen time: {stat}"))
}
