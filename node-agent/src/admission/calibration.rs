//! Calibration: the slowness of the machine in the sampler's main work, which is to sleep, wake up and read a
//! small file.
//!
//! The time of a read with warm caches predicts little of its time after a sleep: idle states, a hypervisor,
//! other load and the clock frequency multiply it by two to five, and the factor changes from minute to
//! minute. Therefore it is measured regularly, by exercises that the supervisor runs.

use std::time::Duration;

use super::cost::Slowness;

/// A number of sleeps, each followed by a read.
#[derive(Debug)]
pub(crate) struct Exercise {
    period_us: f64,
    pub(crate) sleep: Duration,
    pub(crate) reads: u32,
    /// CPU time of one sleep and read on the reference machine: the constants of the cost were fitted to that
    /// machine.
    reference_ns: f64,
}

/// Most of its cost is wake-ups.
pub(crate) const SHORT: Exercise =
    Exercise { period_us: 1_000.0, sleep: Duration::from_millis(1), reads: 16, reference_ns: 8_400.0 };

/// Most of its cost is cold caches.
pub(crate) const LONG: Exercise =
    Exercise { period_us: 10_000.0, sleep: Duration::from_millis(10), reads: 6, reference_ns: 14_500.0 };

/// Rounds of each exercise: several, because CPUs and moments differ.
pub(crate) const ROUNDS: u32 = 4;

const EARLIER: u64 = 60;

/// CPU time of all rounds of each exercise, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExerciseTimes {
    pub(crate) short_ns: u64,
    pub(crate) long_ns: u64,
}

/// Smoothed CPU time of one sleep and read of each exercise, in nanoseconds; 0 before the first measurement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Calibration {
    short_ns: u64,
    long_ns: u64,
}

impl Calibration {
    pub(super) fn add(&mut self, times: ExerciseTimes) {
        self.short_ns = SHORT.smooth(self.short_ns, times.short_ns);
        self.long_ns = LONG.smooth(self.long_ns, times.long_ns);
    }

    pub(super) fn slowness(self) -> Slowness {
        [SHORT.slowness(self.short_ns), LONG.slowness(self.long_ns)]
    }
}

impl Exercise {
    fn smooth(&self, earlier_ns: u64, all_ns: u64) -> u64 {
        let now_ns = all_ns / u64::from(ROUNDS * self.reads);
        match earlier_ns {
            0 => now_ns,
            _ => (earlier_ns * EARLIER + now_ns * (100 - EARLIER)) / 100,
        }
    }

    fn slowness(&self, measured_ns: u64) -> (f64, f64) {
        let slowness = match u32::try_from(measured_ns).unwrap_or(u32::MAX) {
            0 => 1.0,
            measured_ns => f64::from(measured_ns) / self.reference_ns,
        };
        (self.period_us, slowness)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowness_follows_the_measurements() {
        let mut calibration = Calibration::default();
        assert_eq!(calibration.slowness(), [(1_000.0, 1.0), (10_000.0, 1.0)], "nothing was measured yet");
        let rounds = u64::from(ROUNDS);
        let times = ExerciseTimes { short_ns: 16_800 * 16 * rounds, long_ns: 43_500 * 6 * rounds };
        calibration.add(times);
        assert_eq!(calibration.slowness(), [(1_000.0, 2.0), (10_000.0, 3.0)]);
        calibration.add(ExerciseTimes { short_ns: 0, long_ns: 0 });
        assert_eq!(
            (calibration.short_ns, calibration.long_ns),
            (10_080, 26_100),
            "one measurement is not all"
        );
    }
}
