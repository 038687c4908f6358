//! A token bucket: limits the long-term rate and the burst. Pure: the caller passes the time.

use std::time::Duration;

/// Longest reported debt, in seconds.
const DEBT_MAX_S: f64 = 3_600.0;

/// Tokens are units of a limited resource.
#[derive(Debug, Clone, Copy)]
pub struct TokenBucket {
    per_second: f64,
    capacity: f64,
    tokens: f64,
    updated_ns: u64,
}

impl TokenBucket {
    pub const fn new(per_second: f64, capacity: f64) -> Self {
        Self { per_second, capacity, tokens: capacity, updated_ns: 0 }
    }

    fn refill(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.updated_ns);
        self.updated_ns = self.updated_ns.max(now_ns);
        let elapsed_s = Duration::from_nanos(elapsed_ns).as_secs_f64();
        self.tokens = (self.tokens + elapsed_s * self.per_second).min(self.capacity);
    }

    /// Takes `amount` tokens and returns true, or returns false if there are fewer.
    pub fn try_take(&mut self, amount: f64, now_ns: u64) -> bool {
        self.refill(now_ns);
        let fits = self.tokens >= amount;
        if fits {
            self.tokens -= amount;
        }
        fits
    }

    /// Takes `amount` tokens that were already used, even if the bucket goes into debt.
    pub fn charge(&mut self, amount: f64, now_ns: u64) {
        self.refill(now_ns);
        self.tokens -= amount;
    }

    /// Takes up to `amount` tokens, without debt.
    pub fn drain(&mut self, amount: f64, now_ns: u64) {
        self.refill(now_ns);
        self.tokens = (self.tokens - amount).max(0.0);
    }

    /// Negative while in debt.
    pub fn tokens(&self, now_ns: u64) -> f64 {
        let mut bucket = *self;
        bucket.refill(now_ns);
        bucket.tokens
    }

    /// Time until the debt is paid, in nanoseconds, at most an hour.
    pub fn debt_ns(&mut self, now_ns: u64) -> u64 {
        self.refill(now_ns);
        let debt_s = (-self.tokens).max(0.0) / self.per_second;
        u64::try_from(Duration::from_secs_f64(debt_s.min(DEBT_MAX_S)).as_nanos()).unwrap_or(u64::MAX)
    }

    /// A full bucket has no state to keep.
    pub fn is_full(&mut self, now_ns: u64) -> bool {
        self.refill(now_ns);
        self.tokens >= self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn burst_and_rate_are_bounded() {
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
    fn debt_is_paid_over_time() {
        let mut bucket = TokenBucket::new(2.0, 1.0);
        bucket.charge(5.0, SECOND_NS);
        assert_eq!(bucket.debt_ns(SECOND_NS), 2 * SECOND_NS);
        assert_eq!(bucket.debt_ns(2 * SECOND_NS), SECOND_NS);
        assert_eq!(bucket.debt_ns(9 * SECOND_NS), 0);
        // A clock that goes backwards neither adds nor removes tokens.
        assert_eq!(bucket.debt_ns(8 * SECOND_NS), 0);
    }

    #[test]
    fn draining_stops_at_empty() {
        let mut bucket = TokenBucket::new(1.0, 10.0);
        bucket.drain(4.0, 0);
        assert!((bucket.tokens(0) - 6.0).abs() < 1e-9);
        bucket.drain(100.0, 0);
        assert_eq!((bucket.tokens(0), bucket.debt_ns(0)), (0.0, 0));
        assert!((bucket.tokens(3 * SECOND_NS) - 3.0).abs() < 1e-9);
    }
}
