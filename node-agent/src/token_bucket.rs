//! An bucket: so much per second in the long run, and a store for what comes at once (a token bucket). Pure.

/// What somebody may still use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenBucket {
    rate_per_s: f64,
    capacity: f64,
    tokens: f64,
    at_ns: u64,
}

impl TokenBucket {
    /// A full store of `capacity`, filled again by `rate_per_s`.
    pub(crate) const fn new(rate_per_s: f64, capacity: f64) -> Self {
        Self { rate_per_s, capacity, tokens: capacity, at_ns: 0 }
    }

    fn fill(&mut self, now_ns: u64) {
        let since_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = self.at_ns.max(now_ns);
        let since_s = std::time::Duration::from_nanos(since_ns).as_secs_f64();
        self.tokens = (self.tokens + since_s * self.rate_per_s).min(self.capacity);
    }

    /// Takes so much if it is there.
    pub(crate) fn try_take(&mut self, tokens_wanted: f64, now_ns: u64) -> bool {
        self.fill(now_ns);
        let fits = self.tokens >= tokens_wanted;
        if fits {
            self.tokens -= tokens_wanted;
        }
        fits
    }

    /// Takes what has been used already, be it there or not.
    pub(crate) fn charge(&mut self, tokens_wanted: f64, now_ns: u64) {
        self.fill(now_ns);
        self.tokens -= tokens_wanted;
    }

    /// How long until nothing is owed any more, in nanoseconds.
    pub(crate) fn debt_ns(&mut self, now_ns: u64) -> u64 {
        self.fill(now_ns);
        let owed_s = (-self.tokens).max(0.0) / self.rate_per_s;
        u64::try_from(std::time::Duration::from_secs_f64(owed_s.min(3_600.0)).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether it is as full as it becomes: nothing is to be remembered of it then.
    pub(crate) fn is_full(&mut self, now_ns: u64) -> bool {
        self.fill(now_ns);
        self.tokens >= self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn what_comes_at_once_and_what_comes_in_the_long_run_are_bounded() {
        let mut bucket = TokenBucket::new(10.0, 20.0);
        let taken =
            |bucket: &mut TokenBucket, at_ns| (0..100).filter(|_| bucket.try_take(1.0, at_ns)).count();
        assert_eq!(taken(&mut bucket, SECOND_NS), 20);
        assert_eq!(taken(&mut bucket, SECOND_NS), 0);
        assert_eq!(taken(&mut bucket, 2 * SECOND_NS), 10);
        assert_eq!(taken(&mut bucket, 3_600 * SECOND_NS), 20);
        assert!(!bucket.is_full(3_600 * SECOND_NS));
        assert!(bucket.is_full(3_602 * SECOND_NS));
    }

    #[test]
    fn what_was_used_beyond_it_is_waited_for() {
        let mut bucket = TokenBucket::new(2.0, 1.0);
        bucket.charge(5.0, SECOND_NS);
        assert_eq!(bucket.debt_ns(SECOND_NS), 2 * SECOND_NS);
        assert_eq!(bucket.debt_ns(2 * SECOND_NS), SECOND_NS);
        assert_eq!(bucket.debt_ns(9 * SECOND_NS), 0);
        // A clock that stands still gives nothing, and takes nothing.
        assert_eq!(bucket.debt_ns(8 * SECOND_NS), 0);
    }
}
