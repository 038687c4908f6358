//! The clocks. No other module of the programs reads the system's clocks.

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

/// Returns the wall-clock time, in nanoseconds since the epoch. It dates samples.
#[inline]
pub fn realtime_ns() -> u64 {
    nanos(clock_gettime(ClockId::Realtime))
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

/// Formats the time `wall_us` microseconds after the epoch, in UTC, as in RFC 3339. Pure.
pub fn rfc3339(wall_us: i64) -> String {
    let (second, us) = (wall_us.div_euclid(1_000_000), wall_us.rem_euclid(1_000_000));
    let (day, second_of_day) = (second.div_euclid(86_400), second.rem_euclid(86_400));
    // Howard Hinnant's `civil_from_days`: years begin in March, so that the leap day is the last day of a
    // year.
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second_of_day / 3_600, second_of_day / 60 % 60);
    let second = second_of_day % 60;
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}.{us:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_rfc_3339() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(rfc3339(951_782_399_000_001), "2000-02-28T23:59:59.000001Z");
        assert_eq!(rfc3339(951_782_400_000_000), "2000-02-29T00:00:00.000000Z");
        assert_eq!(rfc3339(1_709_251_199_999_999), "2024-02-29T23:59:59.999999Z");
        assert_eq!(rfc3339(4_107_542_400_000_000), "2100-03-01T00:00:00.000000Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999999Z");
    }

    #[test]
    fn clocks_advance() {
        let (clock, monotonic) = (Clock::start(), monotonic_ns());
        sleep(Duration::from_millis(2));
        assert!(clock.now().since_start >= Duration::from_millis(2));
        assert!(monotonic_ns() >= monotonic + 2_000_000);
        assert!(clock.now().wall_us / 1_000_000 == realtime_us() / 1_000_000 || realtime_us() > 0);
    }
}
