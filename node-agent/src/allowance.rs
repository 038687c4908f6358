//! An allowance: so much per second in the long run, and a store for what comes at once (a token bucket). Pure.

/// What somebody may still use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    per_second: f64,
    at_most: f64,
    left: f64,
    at_ns: u64,
}

impl Allowance {
    /// A full store of `at_most`, filled again by `per_second`.
    pub(crate) const fn new(per_second: f64, at_most: f64) -> Self {
        Self { per_second, at_most, left: at_most, at_ns: 0 }
    }

    fn fill(&mut self, now_ns: u64) {
        let since_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = self.at_ns.max(now_ns);
        let since_s = std::time::Duration::from_nanos(since_ns).as_secs_f64();
        self.left = (self.left + since_s * self.per_second).min(self.at_most);
    }

    /// Takes so much if it is there.
    pub(crate) fn take(&mut self, amount: f64, now_ns: u64) -> bool {
        self.fill(now_ns);
        let fits = self.left >= amount;
        if fits {
            self.left -= amount;
        }
        fits
    }

    /// Takes what has been used already, be it there or not.
    pub(crate) fn charge(&mut self, amount: f64, now_ns: u64) {
        self.fill(now_ns);
        self.left -= amount;
    }

    /// How long until nothing is owed any more, in nanoseconds.
    pub(crate) fn owed_ns(&mut self, now_ns: u64) -> u64 {
        self.fill(now_ns);
        let owed_s = (-self.left).max(0.0) / self.per_second;
        u64::try_from(std::time::Duration::from_secs_f64(owed_s.min(3_600.0)).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether it is as full as it becomes: nothing is to be remembered of it then.
    pub(crate) fn is_full(&mut self, now_ns: u64) -> bool {
        self.fill(now_ns);
        self.left >= self.at_most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn what_comes_at_once_and_what_comes_in_the_long_run_are_bounded() {
        let mut allowance = Allowance::new(10.0, 20.0);
        let taken =
            |allowance: &mut Allowance, at_ns| (0..100).filter(|_| allowance.take(1.0, at_ns)).count();
        assert_eq!(taken(&mut allowance, SECOND_NS), 20);
        assert_eq!(taken(&mut allowance, SECOND_NS), 0);
        assert_eq!(taken(&mut allowance, 2 * SECOND_NS), 10);
        assert_eq!(taken(&mut allowance, 3_600 * SECOND_NS), 20);
        assert!(!allowance.is_full(3_600 * SECOND_NS));
        assert!(allowance.is_full(3_602 * SECOND_NS));
    }

    #[test]
    fn what_was_used_beyond_it_is_waited_for() {
        let mut allowance = Allowance::new(2.0, 1.0);
        allowance.charge(5.0, SECOND_NS);
        assert_eq!(allowance.owed_ns(SECOND_NS), 2 * SECOND_NS);
        assert_eq!(allowance.owed_ns(2 * SECOND_NS), SECOND_NS);
        assert_eq!(allowance.owed_ns(9 * SECOND_NS), 0);
        // A clock that stands still gives nothing, and takes nothing.
        assert_eq!(allowance.owed_ns(8 * SECOND_NS), 0);
    }
}
