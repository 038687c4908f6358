//! Space that a store takes, and its growth. Pure.

use std::path::PathBuf;

use super::partition_sizes::{Level, Part};
use super::policy::{LevelState, keep_of};

const DAY_US: i64 = 86_400 * 1_000_000;

/// Days over which the growth is averaged.
const GROWTH_DAYS: i64 = 7;

/// Longest forecast in days. A disk that lasts for longer is not full in a time that matters.
const FORECAST_DAYS: u32 = 3650;

#[derive(Debug, Clone, PartialEq)]
pub struct Storage {
    pub form: &'static str,
    pub is_timescale: bool,
    pub is_citus: bool,
    pub bytes: u64,
    /// Part of `bytes` that is free, and used by the next samples.
    pub free_bytes: u64,
    pub samples: u64,
    /// Number of jobs; an estimate if there are more than a million.
    pub jobs: u64,
    /// Empty where sizes are not known by level.
    pub levels: Vec<LevelSize>,
    /// Chunks and partitions; none where rows are deleted.
    pub parts: Vec<Part>,
    /// Directory whose disk contains the store, or why it is not known.
    pub directory: Result<PathBuf, &'static str>,
    /// False if the space of deleted rows is not returned to the file system.
    pub returns_space: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LevelSize {
    pub level: Level,
    pub bytes: u64,
    /// Growth per day, the mean of the last days; none before there is a whole day.
    pub growth_bytes: Option<f64>,
}

/// Returns the size of each level that has parts, and its growth in the days before `now_us`.
pub(crate) fn level_sizes(parts: &[Part], now_us: i64) -> Vec<LevelSize> {
    let bytes_of = |part: &Part| part.bytes.unwrap_or_default();
    let oldest_us = parts.iter().map(|part| part.begin_us).min().unwrap_or(now_us);
    // Only whole days: the parts of today still grow.
    let end_us = now_us / DAY_US * DAY_US;
    let begin_us = (end_us - GROWTH_DAYS * DAY_US).max(oldest_us);
    let days = micros(end_us - begin_us) / micros(DAY_US);
    let mut sizes = Vec::new();
    for level in Level::ALL {
        let of_level = || parts.iter().filter(move |part| part.level == level);
        // A part that still grows has got its bytes before now.
        let grown = of_level().map(|part| {
            let filled_us = part.end_us.min(now_us) - part.begin_us;
            let inside_us = part.end_us.min(end_us) - part.begin_us.max(begin_us);
            if filled_us <= 0 || inside_us <= 0 {
                return 0.0;
            }
            count(bytes_of(part)) * micros(inside_us) / micros(filled_us)
        });
        let growth_bytes = (days > 0.0).then(|| grown.sum::<f64>() / days);
        sizes.push(LevelSize { level, bytes: of_level().map(bytes_of).sum(), growth_bytes });
    }
    sizes.retain(|size| size.bytes > 0);
    sizes
}

impl Storage {
    /// A disk with less space is full: a checkpoint of a database may need as much.
    pub const DISK_FULL_BYTES: u64 = 64 << 20;

    /// Returns the growth per day without what retention removes; none if it is not known yet.
    pub fn growth_bytes(&self) -> Option<f64> {
        self.levels.iter().map(|level| level.growth_bytes).sum()
    }

    /// Returns the days until `free_bytes` of disk are full, with what retention removes until then; none if
    /// they are not full for years or the growth is not known, and 0 if they are full already.
    pub fn days_until_full(&self, states: &[LevelState], free_bytes: u64, now_us: i64) -> Option<u32> {
        if free_bytes < Self::DISK_FULL_BYTES {
            return Some(0);
        }
        self.growth_bytes()?;
        let available = count(free_bytes) + count(self.free_bytes);
        (0..=FORECAST_DAYS).find(|day| {
            let grown = self.levels.iter().map(|size| {
                let kept_days = keep_of(states, size.level).days().map_or(*day, |days| days.min(*day));
                size.growth_bytes.unwrap_or_default() * f64::from(kept_days)
            });
            let at_us = now_us + i64::from(*day) * DAY_US;
            grown.sum::<f64>() - self.removed_bytes(states, at_us) > available
        })
    }

    /// Returns the size of the parts that retention has removed by the time `at_us`.
    fn removed_bytes(&self, states: &[LevelState], at_us: i64) -> f64 {
        let removed = self.parts.iter().filter(|part| {
            let days = keep_of(states, part.level).days();
            days.is_some_and(|days| part.end_us <= at_us - i64::from(days) * DAY_US)
        });
        count(removed.filter_map(|part| part.bytes).sum())
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
const fn count(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "differences of times have less than 53 bits")]
const fn micros(difference_us: i64) -> f64 {
    difference_us as f64
}

#[cfg(test)]
mod tests {
    use super::super::keep::Keep;
    use super::*;
    use crate::retention::PartKind;

    const NOW_US: i64 = 20_000 * DAY_US + DAY_US / 2;

    /// Returns the samples of a day, counted back from today.
    fn day(days_ago: i64, bytes: u64) -> Part {
        let begin_us = (20_000 - days_ago) * DAY_US;
        Part {
            level: Level::Samples,
            name: None,
            begin_us,
            end_us: begin_us + DAY_US,
            bytes: Some(bytes),
            kept_jobs: Vec::new(),
            kind: PartKind::Partition,
        }
    }

    fn storage(parts: Vec<Part>) -> Storage {
        Storage {
            form: "a test",
            is_timescale: false,
            is_citus: false,
            bytes: parts.iter().filter_map(|part| part.bytes).sum(),
            free_bytes: 0,
            samples: 0,
            jobs: 0,
            levels: level_sizes(&parts, NOW_US),
            parts,
            directory: Err("a test"),
            returns_space: true,
        }
    }

    fn states(keep: Keep) -> [LevelState; 1] {
        [LevelState { level: Level::Samples, keep, dropped_before_us: None }]
    }

    #[test]
    fn the_growth_is_that_of_whole_days() {
        let sizes = level_sizes(
            &(0..30).map(|ago| day(ago, 100 + u64::from(ago > 7) * 900)).collect::<Vec<_>>(),
            NOW_US,
        );
        assert_eq!(sizes.len(), 1);
        let growth = |sizes: &[LevelSize]| sizes[0].growth_bytes.unwrap();
        assert!((growth(&sizes) - 100.0).abs() < 1e-6, "{sizes:?}");
        // A store that began two days ago.
        let sizes = level_sizes(&[day(2, 300), day(1, 500), day(0, 10)], NOW_US);
        assert!((growth(&sizes) - 400.0).abs() < 1e-6, "{sizes:?}");
        assert_eq!(level_sizes(&[], NOW_US), []);
        // An hour's growth tells nothing of a day's.
        assert_eq!(level_sizes(&[day(0, 10)], NOW_US)[0].growth_bytes, None);
        assert_eq!(storage(vec![day(0, 10)]).growth_bytes(), None);
    }

    #[test]
    fn the_disk_is_full_unless_retention_removes_as_much() {
        let storage = storage((0..10).map(|ago| day(ago, 100_000_000)).collect());
        let full = |keep, free_mb: u64| storage.days_until_full(&states(keep), free_mb * 1_000_000, NOW_US);
        assert_eq!(full(Keep::Forever, 1000), Some(11));
        assert_eq!(full(Keep::Forever, 1_000_000), None);
        // From the tenth day on a day is removed for each that is added.
        assert_eq!(full(Keep::Days(20), 1500), None);
        assert_eq!(full(Keep::Days(20), 900), Some(10));
    }

    #[test]
    fn a_full_disk_is_full_today_whatever_grows() {
        for storage in [storage((0..10).map(|ago| day(ago, 1_000_000_000)).collect()), storage(Vec::new())] {
            for free_bytes in [0, 1, Storage::DISK_FULL_BYTES - 1] {
                assert_eq!(storage.days_until_full(&states(Keep::Forever), free_bytes, NOW_US), Some(0));
            }
            let enough = storage.days_until_full(&states(Keep::Forever), Storage::DISK_FULL_BYTES, NOW_US);
            assert_ne!(enough, Some(0));
        }
    }
}
