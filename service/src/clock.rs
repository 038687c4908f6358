//! The clocks. No other module of the programs reads the system's clocks.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds in a second.
const SECOND_NS: u64 = 1_000_000_000;

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(SECOND_NS).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the monotonic time, in nanoseconds since an arbitrary fixed instant. Durations and deadlines are
/// measured by it.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Returns the time since the machine started, with the time in which it was suspended, in nanoseconds. The
/// kernel dates the starts of processes by it.
pub fn boottime_ns() -> u64 {
    nanos(clock_gettime(ClockId::Boottime))
}

/// Returns the wall-clock time, in nanoseconds since the epoch.
#[inline]
pub fn realtime_ns() -> u64 {
    nanos(clock_gettime(ClockId::Realtime))
}

/// The wall-clock time of the start of the machine, as this process first computed it.
static MACHINE_START_NS: OnceLock<u64> = OnceLock::new();

/// Returns the time by which an agent dates samples and events, in nanoseconds since the epoch: the
/// wall-clock time of its first call, and the time that passed since. Setting the wall clock meanwhile
/// changes neither the order nor the distances of what one process dates.
#[inline]
pub fn steady_ns() -> u64 {
    let boottime_ns = boottime_ns();
    let start_ns = MACHINE_START_NS.get_or_init(|| realtime_ns().saturating_sub(boottime_ns));
    boottime_ns.saturating_add(*start_ns)
}

/// Returns the time of [`steady_ns`], in microseconds since the epoch.
#[inline]
pub fn steady_us() -> i64 {
    i64::try_from(steady_ns() / 1_000).unwrap_or(i64::MAX)
}

/// Returns the wall-clock time, in microseconds since the epoch.
#[inline]
pub fn realtime_us() -> i64 {
    i64::try_from(realtime_ns() / 1_000).unwrap_or(i64::MAX)
}

/// Returns the CPU time used by all threads of this process, in nanoseconds.
#[inline]
pub fn process_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// Returns the CPU time used by the calling thread, in nanoseconds.
#[inline]
pub fn thread_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// Sleeps for `duration`, or less if a signal arrives.
pub fn sleep(duration: Duration) {
    let deadline = Duration::from_nanos(monotonic_ns()).saturating_add(duration);
    // A deadline that the kernel cannot represent causes no wait.
    if let Ok(deadline) = Timespec::try_from(deadline) {
        clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &deadline).ok();
    }
}

/// A simultaneous reading of both clocks: wall-clock time for dates, monotonic time for durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since the epoch.
    pub wall_us: i64,
    /// Time since the clock was started; never decreases.
    pub since_start: Duration,
}

/// A clock that measures from its start. Copies measure from the same instant.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts a clock.
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Returns the current time.
    pub fn now(&self) -> Now {
        Now { wall_us: realtime_us(), since_start: self.start.elapsed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance() {
        let (clock, monotonic, steady) = (Clock::start(), monotonic_ns(), steady_ns());
        sleep(Duration::from_millis(2));
        assert!(clock.now().since_start >= Duration::from_millis(2));
        assert!(monotonic_ns() >= monotonic + 2_000_000);
        assert!(
            steady_ns() >= steady + 2_000_000
                && steady_us() / 1000 >= i64::try_from(steady / 1_000_000).unwrap()
        );
        assert!(clock.now().wall_us / 1_000_000 == realtime_us() / 1_000_000 || realtime_us() > 0);
    }
}
