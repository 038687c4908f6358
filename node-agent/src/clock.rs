//! The clocks. Nothing else in this crate asks what time it is.

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
pub(crate) fn sleep(duration: std::time::Duration) {
    let deadline_ns = monotonic_ns().saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    let deadline = Timespec {
        tv_sec: i64::try_from(deadline_ns / SECOND_NS).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(deadline_ns % SECOND_NS).unwrap_or(0),
    };
    clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &deadline).ok();
}
