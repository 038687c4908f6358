//! Clocks. No other module of the programs reads the system's clocks.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

const SECOND_NS: u64 = 1_000_000_000;

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(SECOND_NS).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Monotonic time in nanoseconds, for durations and deadlines. Its zero is arbitrary.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds since the machine started, including the time in which it was suspended. The kernel dates the
/// starts of processes by it.
pub fn boottime_ns() -> u64 {
    nanos(clock_gettime(ClockId::Boottime))
}

/// Wall-clock time, in nanoseconds since the epoch.
#[inline]
pub fn realtime_ns() -> u64 {
    nanos(clock_gettime(ClockId::Realtime))
}

/// Wall-clock time of the machine's start, as this process computed it; 0 before the first call.
static MACHINE_START_NS: AtomicU64 = AtomicU64::new(0);

/// Smallest difference that counts as a set wall clock: from there on readers correct the times of jobs.
pub const STEP_NS: u64 = SECOND_NS;

/// Time by which an agent dates samples and events, in nanoseconds since the epoch: the wall-clock time of
/// the first call, plus the time that passed since. When the wall clock is set, neither the order of what one
/// process dates nor the distances change.
#[inline]
pub fn steady_ns() -> u64 {
    let boottime_ns = boottime_ns();
    let start_ns = match MACHINE_START_NS.load(Relaxed) {
        0 => {
            let start_ns = machine_start_ns(boottime_ns);
            // Another thread may have been first.
            MACHINE_START_NS
                .compare_exchange(0, start_ns, Relaxed, Relaxed)
                .map_or_else(|first| first, |_| start_ns)
        }
        start_ns => start_ns,
    };
    boottime_ns.saturating_add(start_ns)
}

fn machine_start_ns(boottime_ns: u64) -> u64 {
    realtime_ns().saturating_sub(boottime_ns).max(1)
}

/// Lets [`steady_ns`] begin anew with the wall clock. No thread may date anything meanwhile.
pub fn date_anew() {
    MACHINE_START_NS.store(machine_start_ns(boottime_ns()), Relaxed);
}

/// How far the wall clock is ahead of [`steady_ns`], in nanoseconds; 0 unless it was set.
pub fn ahead_ns() -> i64 {
    let (steady_ns, wall_ns) = (steady_ns(), realtime_ns());
    let difference_ns = i64::try_from(wall_ns.abs_diff(steady_ns)).unwrap_or(i64::MAX);
    if wall_ns < steady_ns { -difference_ns } else { difference_ns }
}

/// Tells whether the wall clock was set since this process began to date by it.
pub fn was_set() -> bool {
    ahead_ns().unsigned_abs() >= STEP_NS
}

/// [`steady_ns`] in microseconds.
#[inline]
pub fn steady_us() -> i64 {
    i64::try_from(steady_ns() / 1_000).unwrap_or(i64::MAX)
}

/// Wall-clock time, in microseconds since the epoch.
#[inline]
pub fn realtime_us() -> i64 {
    i64::try_from(realtime_ns() / 1_000).unwrap_or(i64::MAX)
}

/// CPU time of all threads of this process, in nanoseconds.
#[inline]
pub fn process_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// CPU time of the calling thread, in nanoseconds.
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

/// Both clocks, read at once: wall-clock time for dates, monotonic time for durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since the epoch.
    pub wall_us: i64,
    /// Never decreases.
    pub since_start: Duration,
}

/// Measures from its start. Copies measure from the same instant.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

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
        date_anew();
        assert!(ahead_ns().unsigned_abs() < STEP_NS && !was_set());
    }
}
