//! The only module that looks at the clocks; everybody else is told what time it is.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// One look at both clocks: the wall clock dates, the monotonic clock measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since the epoch.
    pub wall_us: i64,
    /// Since the clock was made. Never goes back.
    pub since_start: Duration,
}

/// Where times since the start are counted from. Copies count from the same instant.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// What time it is.
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now {
            wall_us: i64::try_from(wall.as_micros()).unwrap_or(i64::MAX),
            since_start: self.start.elapsed(),
        }
    }
}
