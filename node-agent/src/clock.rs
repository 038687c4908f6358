//! The clocks. Nothing else in this crate asks what time it is.

use std::time::Duration;

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds in a second.
const SECOND_NS: u64 = 1_000_000_000;

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(SECOND_NS).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Monotonic time, in nanoseconds since some fixed instant: what durations and deadlines are measured by.
pub(crate) fn monotonic_ns() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Wall-clock time, in nanoseconds since the epoch: what samples are dated by.
pub(crate) fn realtime_ns() -> u64 {
    nanos(clock_gettime(ClockId::Realtime))
}

/// Wall-clock time, in microseconds since the epoch.
pub fn realtime_us() -> i64 {
    i64::try_from(realtime_ns() / 1_000).unwrap_or(i64::MAX)
}

/// CPU time that all threads of this process have used, in nanoseconds.
pub(crate) fn process_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// CPU time that the calling thread has used, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// Sleeps for so long, or less where a signal comes.
pub(crate) fn sleep(duration: Duration) {
    let deadline = Duration::from_nanos(monotonic_ns()).saturating_add(duration);
    // A time that the kernel cannot name is no time to wait for.
    if let Ok(deadline) = Timespec::try_from(deadline) {
        clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &deadline).ok();
    }
}
