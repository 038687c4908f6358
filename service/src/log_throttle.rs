//! A rate limit for repeated log messages, so that a faulty peer fills neither the log nor the memory. Pure:
//! the caller passes the time.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Allows one message per key and interval, and a bounded number of messages per interval in total.
#[derive(Debug)]
pub struct LogThrottle<K = String> {
    interval: Duration,
    messages_max: u32,
    logged_at: HashMap<K, Duration>,
    window_start: Duration,
    window_messages: u32,
}

impl<K: Hash + Eq> LogThrottle<K> {
    /// Allows one message per key and `messages_max` in total within `interval`.
    pub fn new(interval: Duration, messages_max: u32) -> Self {
        let (logged_at, window_start) = (HashMap::new(), Duration::ZERO);
        Self { interval, messages_max, logged_at, window_start, window_messages: 0 }
    }

    /// Tells whether a message about `key` may be logged at `now`, a time since any fixed instant.
    pub fn allows<Q>(&mut self, key: &Q, now: Duration) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let is_recent = |since: &Duration| now.saturating_sub(*since) < self.interval;
        if self.logged_at.get(key).is_some_and(is_recent) {
            return false;
        }
        if !is_recent(&self.window_start) {
            (self.window_start, self.window_messages) = (now, 0);
        }
        if self.window_messages >= self.messages_max {
            return false;
        }
        // At most the messages of two intervals remain.
        self.logged_at.retain(|_, since| now.saturating_sub(*since) < self.interval);
        self.window_messages += 1;
        self.logged_at.insert(key.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_messages_per_key_and_in_total() {
        let (mut throttle, at) =
            (LogThrottle::<String>::new(Duration::from_secs(60), 20), Duration::from_secs);
        assert!(throttle.allows("a", at(0)));
        assert!(!throttle.allows("a", at(59)));
        assert!(throttle.allows("b", at(59)));
        assert!(throttle.allows("a", at(60)));
        let allowed = (0..1000).filter(|key| throttle.allows(&key.to_string(), at(61))).count();
        assert_eq!(allowed, 19);
        assert!(throttle.logged_at.len() <= 40);
        assert!(throttle.allows("c", at(200)));
        assert_eq!(throttle.logged_at.len(), 1);
    }
}
