//! The clocks of the experiments. No other module reads a clock.

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

pub const SECOND_NS: u64 = 1_000_000_000;

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(SECOND_NS).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Monotonic time, since an arbitrary fixed instant.
#[inline]
pub fn now_ns() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

pub fn wall_us() -> i64 {
    i64::try_from(nanos(clock_gettime(ClockId::Realtime)) / 1_000).unwrap_or(i64::MAX)
}

/// CPU time that all threads of this process have used.
pub fn process_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

pub fn thread_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// Sleeps until the time of [`now_ns`] reaches `deadline_ns`. A signal may end the sleep early.
pub fn sleep_until(deadline_ns: u64) {
    let deadline = Timespec {
        tv_sec: i64::try_from(deadline_ns / SECOND_NS).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(deadline_ns % SECOND_NS).unwrap_or(0),
    };
    // An interrupted sleep ends early; callers that depend on the deadline read the clock again.
    clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &deadline).ok();
}

/// Polls every few milliseconds until there is a result, for at most `patience_s` seconds. The error names
/// `what`.
pub fn wait_for<T>(
    what: &str,
    patience_s: u64,
    mut ask: impl FnMut() -> Option<T>,
) -> Result<T, Box<dyn std::error::Error>> {
    let end_ns = now_ns() + patience_s * SECOND_NS;
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        if now_ns() > end_ns {
            return Err(format!("timeout after {patience_s} s while waiting until {what}").into());
        }
        sleep_until(now_ns() + 10_000_000);
    }
}
