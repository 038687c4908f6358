//! Calibration: how slow the machine is now in what the sampler does most, which is to sleep, wake up and read a small file.
//!
//! What a read takes on a warm cache says little of what it takes after a sleep: idle states, a hypervisor, other work and
//! the clock's speed multiply it by two to five, and differently from minute to minute. So it is measured now and then,
//! by exercises that the supervisor runs.

use std::time::Duration;

use super::cost::Slowness;

/// A sleep and a read that are exercised.
#[derive(Debug)]
pub(crate) struct Exercise {
    period_us: f64,
    /// The sleep before each read.
    pub(crate) sleep: Duration,
    /// The number of reads in one round.
    pub(crate) reads: u32,
    /// CPU time of one on the machine to which the constants of the cost were fitted, in nanoseconds.
    reference_ns: f64,
}

/// Where most of the cost is wake-ups.
pub(crate) const SHORT: Exercise =
    Exercise { period_us: 1_000.0, sleep: Duration::from_millis(1), reads: 16, reference_ns: 8_400.0 };

/// Where most of it is what has grown cold.
pub(crate) const LONG: Exercise =
    Exercise { period_us: 10_000.0, sleep: Duration::from_millis(10), reads: 6, reference_ns: 14_500.0 };

/// How often all exercises are run, one round after the other: CPUs differ, and so do moments.
pub(crate) const ROUNDS: u32 = 4;

/// The weight of earlier measurements, in percent.
const EARLIER: u64 = 60;

/// CPU time that all rounds of each exercise took, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExerciseTimes {
    pub(crate) short_ns: u64,
    pub(crate) long_ns: u64,
}

/// CPU time of one sleep and read of each exercise, in nanoseconds; 0 before the first measurement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Calibration {
    short_ns: u64,
    long_ns: u64,
}

impl Calibration {
    /// Takes a measurement into account.
    pub(super) fn add(&mut self, times: ExerciseTimes) {
        self.short_ns = SHORT.smooth(self.short_ns, times.short_ns);
        self.long_ns = LONG.smooth(self.long_ns, times.long_ns);
    }

    /// How many times as long as on the machine of reference things take now.
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

    /// The period, and how many times as long things take that are done so often.
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
