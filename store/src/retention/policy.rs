//! Policy of a store: for how long each level is kept. Pure.

use std::fmt;

use super::keep::Keep;
use super::partition_sizes::{Cutoffs, Level};

const DAY_US: i64 = 86_400 * 1_000_000;

/// Cutoffs are full hours, as the ends of buckets are.
const HOUR_US: i64 = 3600 * 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub samples: Keep,
    pub ten_seconds: Keep,
    pub minute: Keep,
    pub hour: Keep,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            samples: Keep::Days(90),
            ten_seconds: Keep::Days(90),
            minute: Keep::Days(365),
            hour: Keep::Forever,
        }
    }
}

impl Retention {
    /// Policy of a new store: nothing is removed.
    pub const FOREVER: Self = Self {
        samples: Keep::Forever,
        ten_seconds: Keep::Forever,
        minute: Keep::Forever,
        hour: Keep::Forever,
    };

    pub const fn of(&self, level: Level) -> Keep {
        match level {
            Level::Samples => self.samples,
            Level::TenSeconds => self.ten_seconds,
            Level::Minute => self.minute,
            Level::Hour => self.hour,
        }
    }

    /// Returns the levels that are kept for a shorter time than a finer one, each with the finer one: a
    /// coarse level is computed from the fine one, and would begin later than it.
    pub fn conflicts(&self) -> Vec<(Level, Level)> {
        let successive = Level::ALL.into_iter().zip(Level::ALL.into_iter().skip(1));
        successive
            .filter(|(fine, coarse)| self.of(*coarse) < self.of(*fine))
            .map(|(fine, coarse)| (coarse, fine))
            .collect()
    }
}

/// Lists the times, as `samples for 90d, ...`.
impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, level) in Level::ALL.into_iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            match self.of(level) {
                Keep::Forever => write!(f, "{separator}{} forever", level.relation())?,
                keep @ Keep::Days(_) => write!(f, "{separator}{} for {keep}", level.relation())?,
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelState {
    pub level: Level,
    pub keep: Keep,
    /// Time before which rows were removed, in microseconds since the epoch.
    pub dropped_before_us: Option<i64>,
}

/// Returns the time for which a store keeps the rows of a level.
pub(super) fn keep_of(states: &[LevelState], level: Level) -> Keep {
    states.iter().find(|state| state.level == level).map_or(Keep::Forever, |state| state.keep)
}

impl Retention {
    pub(crate) fn of_states(states: &[LevelState]) -> Self {
        Self {
            samples: keep_of(states, Level::Samples),
            ten_seconds: keep_of(states, Level::TenSeconds),
            minute: keep_of(states, Level::Minute),
            hour: keep_of(states, Level::Hour),
        }
    }

    /// Returns the times before which rows are removed at the time `now_us`.
    pub(crate) fn cutoffs(&self, now_us: i64) -> Cutoffs {
        Cutoffs {
            before_us: Level::ALL.map(|level| {
                let days = self.of(level).days()?;
                Some((now_us - i64::from(days) * DAY_US) / HOUR_US * HOUR_US)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coarser_level_is_not_kept_for_a_shorter_time() {
        assert_eq!(Retention::default().conflicts(), []);
        let retention =
            Retention { ten_seconds: Keep::Days(30), hour: Keep::Days(7), ..Retention::default() };
        assert_eq!(
            retention.conflicts(),
            [(Level::TenSeconds, Level::Samples), (Level::Hour, Level::Minute)]
        );
    }

    #[test]
    fn the_policy_is_described() {
        assert_eq!(
            Retention::default().to_string(),
            "samples for 90d, samples_10s for 90d, samples_1min for 1y, samples_1h forever"
        );
    }
}
