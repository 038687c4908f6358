//! What sampling costs, predicted from what one read of each source costs. Pure.

use polymeter_proto::period::Period;

use crate::request::Cost;

/// What a read is assumed to take before it has been measured, in nanoseconds.
pub(super) const READ_NS: f64 = 10_000.0;
/// What a read costs beside its own time, in nanoseconds: finding its groups, dating it, recording the row.
const ROW_NS: f64 = 400.0;
/// What a wake-up costs beside the reads, in nanoseconds.
const WAKE_NS: f64 = 5_000.0;
/// What a value costs from its text to the wire, in nanoseconds.
const VALUE_NS: f64 = 40.0;
/// What a value takes on the wire, in bytes, at the rates at which that matters.
const VALUE_BYTES: f64 = 0.5;

/// Adds up what sources cost.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    ns_per_s: f64,
    samples_per_s: f64,
    wakes_per_s: f64,
}

impl Sum {
    /// A source whose metrics have these periods and whose read takes `read_ns`. Periods that divide one another share
    /// reads, as all that people write do.
    pub(super) fn add(&mut self, periods: &[Period], read_ns: f64) {
        let per_second =
            |period: &Period| 1e6 / f64::from(u32::try_from(period.as_micros()).unwrap_or(u32::MAX));
        let fastest = periods.iter().map(per_second).fold(0.0, f64::max);
        let samples: f64 = periods.iter().map(per_second).sum();
        self.ns_per_s += fastest * (read_ns + ROW_NS) + samples * VALUE_NS;
        self.samples_per_s += samples;
        self.wakes_per_s = self.wakes_per_s.max(fastest);
    }

    /// The cost of all that was added, on a machine that takes `slowness` times what the constants here say.
    pub(super) fn cost(&self, slowness: f64) -> Cost {
        Cost {
            cpu_percent: (self.ns_per_s + self.wakes_per_s * WAKE_NS) * slowness / 1e7,
            samples_per_s: self.samples_per_s,
            bytes_per_s: self.samples_per_s * VALUE_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_shared_and_values_are_not() {
        let mut sum = Sum::default();
        sum.add(&[Period::MILLISECOND, Period::SECOND], 10_000.0);
        let cost = sum.cost(1.0);
        assert!((cost.samples_per_s - 1001.0).abs() < 0.01);
        let expected = (1000.0 * (10_000.0 + ROW_NS + WAKE_NS) + 1001.0 * VALUE_NS) / 1e7;
        assert!((cost.cpu_percent - expected).abs() < 0.001, "{cost:?}");
        assert!((sum.cost(2.0).cpu_percent - 2.0 * expected).abs() < 0.001);
    }
}
