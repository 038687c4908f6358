//! Increase of a counter that wraps around. Pure.

/// Least power that is assumed as the highest of a domain: no processor of 2026 takes more.
const ASSUMED_POWER_W: u64 = 2_000;

/// How far the counter's value and the time of its read may differ.
const SLACK_US: u64 = 100_000;

/// Energy since the first reading of a counter that wraps around at `range_uj`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unwrapped {
    /// Highest value before it begins at 0 again; `None` if it never does.
    range_uj: Option<u64>,
    /// Highest power of the domain. A watt is a microjoule in a microsecond.
    power_w: u64,
    /// Last value and its time on the monotonic clock, in nanoseconds.
    last: Option<(u64, u64)>,
    total_uj: u64,
}

/// The counter may have wrapped around more than once before this read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLate;

impl Unwrapped {
    /// Has no reading yet. `stated_power_w` is the highest power that the kernel states for the domain; short
    /// peaks exceed it, but not twice.
    pub(super) fn new(range_uj: Option<u64>, stated_power_w: u64) -> Self {
        let power_w = stated_power_w.saturating_mul(2).max(ASSUMED_POWER_W);
        Self { range_uj, power_w, last: None, total_uj: 0 }
    }

    /// Longest time between two reads in which it cannot wrap around twice.
    pub(super) fn longest_gap_ns(&self) -> Option<u64> {
        self.range_uj.map(|range_uj| (range_uj / self.power_w).saturating_mul(1_000))
    }

    /// Adds the increase up to `value_uj`, which was read at `now_ns`. Returns the sum of all increases.
    ///
    /// A lower value is a wrap-around if the domain could take that much energy since the last read.
    /// Otherwise the counter began anew, as when its driver was loaded again, and only the energy since then
    /// is known.
    pub(super) fn advance(&mut self, value_uj: u64, now_ns: u64) -> Result<u64, TooLate> {
        if let Some((last_uj, last_ns)) = self.last {
            let elapsed_ns = now_ns.saturating_sub(last_ns);
            if self.longest_gap_ns().is_some_and(|longest_ns| elapsed_ns > longest_ns) {
                return Err(TooLate);
            }
            let possible_uj = (elapsed_ns / 1_000).saturating_add(SLACK_US).saturating_mul(self.power_w);
            let increase_uj = value_uj.checked_sub(last_uj).unwrap_or_else(|| {
                let rest_uj = self.range_uj.and_then(|range_uj| range_uj.checked_sub(last_uj));
                let wrapped_uj = rest_uj.and_then(|rest_uj| rest_uj.checked_add(value_uj));
                wrapped_uj.filter(|wrapped_uj| *wrapped_uj <= possible_uj).unwrap_or(value_uj)
            });
            self.total_uj = self.total_uj.saturating_add(increase_uj);
        }
        self.last = Some((value_uj, now_ns));
        Ok(self.total_uj)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: u64 = 1_000_000_000;
    const RANGE_UJ: u64 = 262_143_328_850;

    #[test]
    fn adds_increases_from_the_first_reading() {
        let mut counter = Unwrapped::new(Some(RANGE_UJ), 0);
        assert_eq!(counter.advance(100_000_000_000, 0), Ok(0));
        assert_eq!(counter.advance(100_150_000_000, S), Ok(150_000_000));
        assert_eq!(counter.advance(100_150_000_000, 2 * S), Ok(150_000_000), "it may stand still");
    }

    #[test]
    fn a_wrap_around_continues() {
        let mut counter = Unwrapped::new(Some(RANGE_UJ), 0);
        counter.advance(RANGE_UJ - 100_000_000, 0).unwrap();
        assert_eq!(counter.advance(50_000_000, S), Ok(150_000_000));
        assert_eq!(counter.advance(250_000_000, 2 * S), Ok(350_000_000));
    }

    #[test]
    fn a_counter_that_begins_anew_is_no_wrap_around() {
        let mut counter = Unwrapped::new(Some(RANGE_UJ), 0);
        counter.advance(100_000_000_000, 0).unwrap();
        // A wrap-around would be 162 kJ in a second.
        assert_eq!(counter.advance(40_000_000, S), Ok(40_000_000));
        let mut without_range = Unwrapped::new(None, 0);
        without_range.advance(1_000, 0).unwrap();
        assert_eq!(without_range.advance(10, 1_000_000 * S), Ok(10));
        assert_eq!(without_range.longest_gap_ns(), None);
        let mut beyond = Unwrapped::new(Some(RANGE_UJ), 0);
        beyond.advance(RANGE_UJ + 5, 0).unwrap();
        assert_eq!(beyond.advance(7, 1), Ok(7), "a value above the stated range");
    }

    #[test]
    fn a_read_after_a_possible_second_wrap_around_is_refused() {
        let mut counter = Unwrapped::new(Some(RANGE_UJ), 0);
        assert_eq!(counter.longest_gap_ns(), Some(131_071_664_000));
        counter.advance(5, 0).unwrap();
        assert_eq!(counter.advance(6, 132 * S), Err(TooLate));
        assert_eq!(counter.advance(7, 133 * S), Err(TooLate), "until it is opened anew");
        assert_eq!(counter.advance(7, 131 * S), Ok(2));
        let strong = Unwrapped::new(Some(RANGE_UJ), 4_000);
        assert_eq!(strong.longest_gap_ns(), Some(32_767_916_000));
    }

    proptest! {
        /// Sums are exact for every course of power below the highest, and every distance of reads below the
        /// longest.
        #[test]
        fn sums_are_exact(
            range_uj in 1_000_000_000..RANGE_UJ,
            steps in prop::collection::vec((1_u64..1_000, 0_u64..2_000), 1..200),
            first_uj in any::<u64>(),
        ) {
            let mut counter = Unwrapped::new(Some(range_uj), 0);
            let longest_us = counter.longest_gap_ns().unwrap() / 1_000;
            let (mut now_ns, mut total_uj) = (0, 0);
            let first_uj = first_uj % range_uj;
            prop_assert_eq!(counter.advance(first_uj, now_ns), Ok(0));
            for (thousandths, power_w) in steps {
                let elapsed_us = longest_us * thousandths / 1_000;
                now_ns += elapsed_us * 1_000;
                total_uj += elapsed_us * power_w;
                // The counter has `range_uj` values: the last of them and 0 are the same energy.
                prop_assert_eq!(counter.advance((first_uj + total_uj) % range_uj, now_ns), Ok(total_uj));
            }
        }
    }
}
