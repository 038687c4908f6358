//! The section `[clock]`: the accepted times of samples.

use std::str::FromStr;
use std::time::Duration;

use polymeter_service::document::{Reporter, Section};

use crate::ingest::{OutOfRangePolicy, TimeRange};
use crate::limits;

const UNITS: [(&str, u64); 4] = [("s", 1), ("min", 60), ("h", 3_600), ("d", 86_400)];

/// The raw section.
#[derive(Debug, Default)]
pub(super) struct RawClock {
    max_age: Option<CoarseDuration>,
    max_skew: Option<CoarseDuration>,
    out_of_range: Option<OutOfRangePolicy>,
}

impl RawClock {
    /// Takes the section out of the document.
    pub(super) fn take(root: &mut Section<'_>, reporter: &mut Reporter<'_>) -> Self {
        let Some(mut section) = root.section("clock", reporter) else { return Self::default() };
        let raw = Self {
            max_age: section.parse("max_age", reporter, str::parse),
            max_skew: section.parse("max_skew", reporter, str::parse),
            out_of_range: section.parse("out_of_range", reporter, str::parse),
        };
        section.finish(reporter);
        raw
    }

    pub(super) fn resolve(self) -> TimeRange {
        let usual = TimeRange::default();
        TimeRange {
            max_age: self.max_age.map_or(usual.max_age, |age| age.0),
            max_skew: self.max_skew.map_or(usual.max_skew, |skew| skew.0),
            out_of_range: self.out_of_range.unwrap_or(usual.out_of_range),
        }
    }
}

/// A duration in whole seconds, minutes, hours or days, from a second to [`limits::SAMPLE_DISTANCE_MAX`]:
/// `90s`, `5min`, `12h`, `366d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CoarseDuration(pub(super) Duration);

impl FromStr for CoarseDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let seconds = text.split_at_checked(digits).and_then(|(number, unit)| {
            let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
            number.parse::<u64>().ok()?.checked_mul(*factor)
        });
        let duration = seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
        duration.filter(|duration| *duration <= limits::SAMPLE_DISTANCE_MAX).map(Self).ok_or_else(|| {
            format!("invalid duration `{text}`: expected a whole number of s, min, h or d, from 1s to 3660d")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_bounds() {
        let seconds = |text: &str| text.parse::<CoarseDuration>().map(|duration| duration.0.as_secs());
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("5min"), Ok(300));
        assert_eq!(seconds("3660d"), Ok(limits::SAMPLE_DISTANCE_MAX.as_secs()));
        for wrong in ["", "s", "0s", "12", "1 h", "-1h", "3661d", "99999999999999999999d", "10ms", "1µs"] {
            assert!(seconds(wrong).unwrap_err().contains("3660d"), "{wrong}");
        }
    }
}
