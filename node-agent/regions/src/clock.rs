//! The clock of regions: the time stamp counter where the kernel itself relies on it, which takes a third of
//! the time of a call, else CLOCK_MONOTONIC.

#![expect(unsafe_code, reason = "reads a clock of the system and the counter of the processor")]

/// How often both clocks are read for the same instant.
const ATTEMPTS: u32 = 5;

/// Names the kernel's clock.
#[cfg(target_arch = "x86_64")]
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Clock in whose ticks threads count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    is_counter: bool,
    /// Ticks, and nanoseconds, when the process began to count.
    began: (u64, u64),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Nanoseconds, in units of 2^-32.
    fraction: u128,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let clock = Self { is_counter: is_counter_reliable(), began: (0, 0) };
        Self { began: clock.both(), ..clock }
    }

    #[inline]
    pub(crate) fn ticks(self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if self.is_counter {
            // SAFETY: every processor of this architecture has the instruction, and the kernel uses it, too.
            return unsafe { std::arch::x86_64::_rdtsc() };
        }
        monotonic_ns()
    }

    /// Measures the length of a tick, which is the more accurate the longer the process runs.
    pub(crate) fn scale(self) -> Scale {
        let (ticks, now_ns) = self.both();
        let ticks = ticks.saturating_sub(self.began.0);
        if !self.is_counter || ticks == 0 {
            return Scale { fraction: 1 << 32 };
        }
        let elapsed_ns = now_ns.saturating_sub(self.began.1);
        Scale { fraction: (u128::from(elapsed_ns) << 32) / u128::from(ticks) }
    }

    /// Reads both clocks, at the same instant as far as possible.
    fn both(self) -> (u64, u64) {
        let mut best = (u64::MAX, (0, 0));
        for _ in 0..ATTEMPTS {
            let before = self.ticks();
            let now_ns = monotonic_ns();
            let length = self.ticks().saturating_sub(before);
            if length < best.0 {
                best = (length, (before.saturating_add(length / 2), now_ns));
            }
        }
        best.1
    }
}

impl Scale {
    pub(crate) fn ns(self, ticks: u64) -> u64 {
        u64::try_from((u128::from(ticks) * self.fraction) >> 32).unwrap_or(u64::MAX)
    }
}

#[cfg(target_arch = "x86_64")]
fn is_counter_reliable() -> bool {
    std::fs::read_to_string(CLOCK_SOURCE).is_ok_and(|source| source.trim() == "tsc")
}

#[cfg(not(target_arch = "x86_64"))]
fn is_counter_reliable() -> bool {
    false
}

pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call, which fails for unknown clocks only.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_measure_the_time_of_the_system_clock() {
        for is_counter in [false, is_counter_reliable()] {
            let clock = Clock { is_counter, began: (0, 0) };
            let clock = Clock { began: clock.both(), ..clock };
            let (first, began_ns) = clock.both();
            while monotonic_ns() < began_ns + 50_000_000 {}
            let (last, ended_ns) = clock.both();
            let (measured_ns, passed_ns) = (clock.scale().ns(last - first), ended_ns - began_ns);
            assert!(measured_ns.abs_diff(passed_ns) < passed_ns / 100, "{measured_ns} of {passed_ns}");
        }
        assert_eq!(Scale { fraction: 1 << 31 }.ns(u64::MAX), u64::MAX / 2);
    }
}
