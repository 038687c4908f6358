//! What the file says of the times that samples may have: the section `[clock]`.

use std::str::FromStr;
use std::time::Duration;

use crate::ingest::{OutOfRangePolicy, TimeRange};
use crate::limits;

/// The keys of the section.
pub(super) const KEYS: [&str; 3] = ["ahead", "behind", "beyond"];

const UNITS: [(&str, u64); 4] = [("s", 1), ("min", 60), ("h", 3_600), ("d", 86_400)];

/// What a file said of times.
#[derive(Debug, Default)]
pub struct SaidClock {
    /// See [`TimeRange::max_skew`].
    pub ahead: Option<Reach>,
    /// See [`TimeRange::max_age`].
    pub behind: Option<Reach>,
    /// See [`TimeRange::out_of_range`].
    pub beyond: Option<OutOfRangePolicy>,
}

impl SaidClock {
    /// What is meant by it.
    pub(super) fn meant(self) -> TimeRange {
        let usual = TimeRange::default();
        TimeRange {
            max_skew: self.ahead.map_or(usual.max_skew, |reach| reach.0),
            max_age: self.behind.map_or(usual.max_age, |reach| reach.0),
            out_of_range: self.beyond.unwrap_or(usual.out_of_range),
        }
    }
}

/// How far from now a time may lie, from a second to [`limits::SAMPLE_REACH_MAX`]: `90s`, `5min`, `12h`, `366d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach(pub(super) Duration);

impl FromStr for Reach {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let seconds = text.split_at_checked(digits).and_then(|(number, unit)| {
            let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
            number.parse::<u64>().ok()?.checked_mul(*factor)
        });
        let reach = seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
        reach.filter(|reach| *reach <= limits::SAMPLE_REACH_MAX).map(Self).ok_or_else(|| {
            let text = crate::log::printable(text);
            format!(
                "`{text}` is no time from 1s to 3660d: write a whole number and s, min, h or d, as in 12h"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reaches_have_a_unit_and_bounds() {
        let seconds = |text: &str| text.parse::<Reach>().map(|reach| reach.0.as_secs());
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("5min"), Ok(300));
        assert_eq!(seconds("3660d"), Ok(limits::SAMPLE_REACH_MAX.as_secs()));
        for wrong in ["", "s", "0s", "12", "1 h", "-1h", "3661d", "99999999999999999999d", "10ms", "1µs"] {
            assert!(seconds(wrong).unwrap_err().contains("3660d"), "{wrong}");
        }
    }
}
