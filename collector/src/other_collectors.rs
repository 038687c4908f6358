//! Presence of other collectors of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time at which another collector last ran. Control looks for them; copies share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct OtherCollectors {
    /// Milliseconds since the start, and one more; 0 for never.
    seen_ms: Arc<AtomicU64>,
}

impl OtherCollectors {
    /// Records that others run. `now` is the time since the start.
    pub(crate) fn saw(&self, now: Duration) {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.seen_ms.store(now_ms.saturating_add(1), Ordering::Relaxed);
    }

    /// Tells whether another collector ran less than `limit` ago.
    pub(crate) fn ran_within(&self, limit: Duration, now: Duration) -> bool {
        let seen_ms = self.seen_ms.load(Ordering::Relaxed);
        seen_ms
            .checked_sub(1)
            .is_some_and(|seen_ms| now.saturating_sub(Duration::from_millis(seen_ms)) < limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_known_for_a_while() {
        let (others, limit) = (OtherCollectors::default(), Duration::from_secs(10));
        assert!(!others.ran_within(limit, Duration::ZERO));
        others.clone().saw(Duration::ZERO);
        assert!(others.ran_within(limit, Duration::from_secs(9)));
        assert!(!others.ran_within(limit, Duration::from_secs(10)));
    }
}
