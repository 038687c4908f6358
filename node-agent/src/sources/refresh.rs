//! Refresh intervals of hardware: the time between two updates of the values that a source reads.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::catalogue::RefreshUnit;
use polymeter_proto::period::Period;

/// Refresh interval of an open source, if it has one. A device that is opened at the first read makes it
/// known there, on the source's thread.
#[derive(Debug, Clone, Default)]
pub struct RefreshInterval {
    /// Microseconds; 0 for none.
    micros: Arc<AtomicU64>,
}

impl RefreshInterval {
    /// May become known later.
    pub(crate) fn new(interval: Option<Period>) -> Self {
        let refresh = Self::default();
        refresh.set(interval);
        refresh
    }

    pub(crate) fn set(&self, interval: Option<Period>) {
        self.micros.store(interval.map_or(0, Period::as_micros), Relaxed);
    }

    pub fn get(&self) -> Option<Period> {
        Period::from_micros(self.micros.load(Relaxed)).ok()
    }
}

/// Parses a stated interval; `None` if it has no positive number, or is shorter than any period. Longer ones
/// are cut to the longest period.
pub(super) fn parse(text: &str, unit: RefreshUnit) -> Option<Period> {
    let number: u64 = text.split_ascii_whitespace().next()?.parse().ok().filter(|number| *number > 0)?;
    let micros = match unit {
        RefreshUnit::Milliseconds => number.saturating_mul(1_000),
        RefreshUnit::Hertz => 1_000_000_u64.div_ceil(number),
    };
    Period::from_micros(micros.min(Period::MAX.as_micros())).ok()
}

pub(super) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for unit in [RefreshUnit::Milliseconds, RefreshUnit::Hertz] {
        assert!(parse(&text, unit).is_none_or(|period| period <= Period::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_how_often_hardware_updates_its_values() {
        let parsed = |text: &str, unit| parse(text, unit).map(|period| period.to_string());
        // `lm75` and `lm90`, pm_counters of a Cray EX, `lifespan` of mlx5.
        assert_eq!(parsed("1000\n", RefreshUnit::Milliseconds).as_deref(), Some("1s"));
        assert_eq!(parsed("16\n", RefreshUnit::Milliseconds).as_deref(), Some("16ms"));
        assert_eq!(parsed("10\n", RefreshUnit::Hertz).as_deref(), Some("100ms"));
        assert_eq!(parsed("3 Hz\n", RefreshUnit::Hertz).as_deref(), Some("333334us"));
        for nothing in ["", "\n", "0\n", "-1\n", "fast\n", "100000\n"] {
            assert_eq!(parsed(nothing, RefreshUnit::Hertz), None, "{nothing:?}");
        }
        let longest = parsed("18446744073709551615\n", RefreshUnit::Milliseconds);
        assert_eq!(longest.as_deref(), Some("1d"));
    }

    #[test]
    fn an_interval_may_become_known_later() {
        let refresh = RefreshInterval::new(None);
        let seen = refresh.clone();
        assert_eq!(seen.get(), None);
        refresh.set(Some(Period::SECOND));
        assert_eq!(seen.get(), Some(Period::SECOND));
    }
}
