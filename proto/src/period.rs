//! Time between two samples of one metric.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::to_printable;

/// Time between two samples, from 100 µs to one day, in whole microseconds.
///
/// Written as a whole number and a unit, without a space: `100us`, `10ms`, `1s`, `5min`, `2h`, `1d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Period {
    micros: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid period `{given}`: expected a whole number of us, ms, s, min, h or d, from 100us to 1d, such as 10ms or 5min"
)]
pub struct InvalidPeriod {
    given: String,
}

const UNITS: [(&str, u64); 6] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("min", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

impl Period {
    /// Shortest period: below it, reading takes most of the time.
    pub const MIN: Self = Self { micros: 100 };
    pub const MAX: Self = Self { micros: 86_400_000_000 };
    /// Default period of a baseline.
    pub const SECOND: Self = Self { micros: 1_000_000 };

    pub const MILLISECOND: Self = Self { micros: 1_000 };
    pub const TEN_MILLISECONDS: Self = Self { micros: 10_000 };
    pub const HUNDRED_MILLISECONDS: Self = Self { micros: 100_000 };
    pub const HALF_SECOND: Self = Self { micros: 500_000 };
    pub const TWO_SECONDS: Self = Self { micros: 2_000_000 };
    pub const FIVE_SECONDS: Self = Self { micros: 5_000_000 };
    pub const TEN_SECONDS: Self = Self { micros: 10_000_000 };
    pub const FIFTEEN_SECONDS: Self = Self { micros: 15_000_000 };
    pub const HALF_MINUTE: Self = Self { micros: 30_000_000 };
    pub const MINUTE: Self = Self { micros: 60_000_000 };
    pub const FOUR_MINUTES: Self = Self { micros: 240_000_000 };
    pub const TEN_MINUTES: Self = Self { micros: 600_000_000 };
    pub const HOUR: Self = Self { micros: 3_600_000_000 };

    pub fn from_micros(micros: u64) -> Result<Self, InvalidPeriod> {
        let period = Self { micros };
        if (Self::MIN..=Self::MAX).contains(&period) {
            Ok(period)
        } else {
            Err(InvalidPeriod { given: format!("{micros}us") })
        }
    }

    pub const fn as_micros(self) -> u64 {
        self.micros
    }

    /// Returns the period in nanoseconds, at most 8.64e13.
    pub const fn as_nanos(self) -> u64 {
        self.micros * 1_000
    }
}

impl FromStr for Period {
    type Err = InvalidPeriod;

    fn from_str(text: &str) -> Result<Self, InvalidPeriod> {
        let invalid = || InvalidPeriod { given: text.chars().take(40).map(to_printable).collect() };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits).ok_or_else(invalid)?;
        let number: u64 = number.parse().ok().ok_or_else(invalid)?;
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?;
        let micros = number.checked_mul(*factor).ok_or_else(invalid)?;
        Self::from_micros(micros).ok().ok_or_else(invalid)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fitting = UNITS.iter().rev().find(|(_, factor)| self.micros.is_multiple_of(*factor));
        let (unit, factor) = fitting.copied().unwrap_or(("us", 1));
        write!(f, "{}{unit}", self.micros / factor)
    }
}

impl fmt::Debug for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Period({self})")
    }
}

impl TryFrom<u64> for Period {
    type Error = InvalidPeriod;

    fn try_from(micros: u64) -> Result<Self, InvalidPeriod> {
        Self::from_micros(micros)
    }
}

impl From<Period> for u64 {
    fn from(period: Period) -> Self {
        period.micros
    }
}

/// How a metric is sampled: the time between two samples, and between two rows if these summarise windows.
///
/// Written as a period, or as two: `1ms/1s` takes a sample every millisecond and sends a row every second;
/// with `1ms/1s/histogram` this has a histogram of the samples, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(Period, Option<Period>)", into = "(Period, Option<Period>)")]
pub struct Sampling {
    pub period: Period,
    /// Length of a window, a multiple of the period; none if each sample is sent.
    pub window: Option<Period>,
    /// True if windows have a histogram. Recorded changes of the plan do not tell it.
    pub has_histogram: bool,
}

/// Ending of a sampling whose windows have a histogram.
const HISTOGRAM: &str = "/histogram";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSampling {
    #[error(transparent)]
    Period(#[from] InvalidPeriod),
    #[error(
        "invalid window `{period}/{window}`: expected a multiple of {period}, at least two of it and at most 1h"
    )]
    Window { period: Period, window: Period },
    #[error("invalid `{0}/histogram`: only windows have histograms; write such as `10ms/1s/histogram`")]
    Histogram(Period),
}

impl Sampling {
    pub const MAX_WINDOW: Period = Period::HOUR;

    pub const fn raw(period: Period) -> Self {
        Self { period, window: None, has_histogram: false }
    }

    pub fn windowed(period: Period, window: Period) -> Result<Self, InvalidSampling> {
        let is_multiple = window.as_micros().is_multiple_of(period.as_micros());
        if is_multiple && window > period && window <= Self::MAX_WINDOW {
            Ok(Self { period, window: Some(window), has_histogram: false })
        } else {
            Err(InvalidSampling::Window { period, window })
        }
    }

    /// Returns the same with a histogram of each window if it `is_wanted`, and if there are windows.
    #[must_use]
    pub fn with_histogram(self, is_wanted: bool) -> Self {
        Self { has_histogram: is_wanted && self.window.is_some(), ..self }
    }

    /// Time between two rows.
    pub fn row_period(self) -> Period {
        self.window.unwrap_or(self.period)
    }

    /// Returns the same with a period that is not shorter than `period`. The window becomes the next multiple
    /// of the period; one of fewer than two periods ends.
    #[must_use]
    pub fn not_shorter(self, period: Period) -> Self {
        if period <= self.period {
            return self;
        }
        Self::raw(period).in_window(self.window).with_histogram(self.has_histogram)
    }

    /// Returns the same with windows of the next multiple of the period; without any if that is not at least
    /// two periods.
    fn in_window(self, window: Option<Period>) -> Self {
        let period_us = self.period.as_micros();
        let multiple = window.map(|window| window.as_micros().next_multiple_of(period_us));
        let window = multiple.and_then(|micros| Period::from_micros(micros).ok());
        window.and_then(|window| Self::windowed(self.period, window).ok()).unwrap_or(self)
    }
}

impl From<Sampling> for (Period, Option<Period>) {
    fn from(sampling: Sampling) -> Self {
        (sampling.period, sampling.window)
    }
}

impl TryFrom<(Period, Option<Period>)> for Sampling {
    type Error = InvalidSampling;

    fn try_from((period, window): (Period, Option<Period>)) -> Result<Self, InvalidSampling> {
        window.map_or(Ok(Self::raw(period)), |window| Self::windowed(period, window))
    }
}

impl FromStr for Sampling {
    type Err = InvalidSampling;

    fn from_str(text: &str) -> Result<Self, InvalidSampling> {
        if let Some(text) = text.strip_suffix(HISTOGRAM) {
            let sampling: Self = text.parse()?;
            let is_possible = sampling.window.is_some() && !sampling.has_histogram;
            return Some(sampling.with_histogram(true))
                .filter(|_| is_possible)
                .ok_or(InvalidSampling::Histogram(sampling.period));
        }
        match text.split_once('/') {
            Some((period, window)) => Self::windowed(period.parse()?, window.parse()?),
            None => Ok(Self::raw(text.parse()?)),
        }
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.window {
            Some(window) => write!(f, "{}/{window}", self.period),
            None => self.period.fmt(f),
        }?;
        if self.has_histogram { f.write_str(HISTOGRAM) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_multiple_of_its_period() {
        for text in ["10ms", "1ms/1s", "1s/1h", "500us/1ms", "1ms/1s/histogram"] {
            assert_eq!(text.parse::<Sampling>().unwrap().to_string(), text);
        }
        for text in ["", "/", "1ms/", "/1s", "1ms/1s/1s", "1s/1ms", "1s/1s", "3ms/10ms", "1s/2h", "1ms / 1s"]
        {
            assert!(text.parse::<Sampling>().is_err(), "{text}");
        }
        for text in
            ["10ms/histogram", "1ms/1s/histogram/histogram", "1ms/1s/hist", "/histogram", "1ms/1s/histogram "]
        {
            assert!(text.parse::<Sampling>().is_err(), "{text}");
        }
        let error = "10ms/histogram".parse::<Sampling>().unwrap_err().to_string();
        assert!(error.contains("10ms/1s/histogram"), "{error}");
        let with: Sampling = "1ms/1s/histogram".parse().unwrap();
        assert_eq!(with.not_shorter(Period::TEN_MILLISECONDS).to_string(), "10ms/1s/histogram");
        assert_eq!(with.not_shorter(Period::MINUTE).to_string(), "1min");
        let error = "3ms/10ms".parse::<Sampling>().unwrap_err().to_string();
        assert!(error.contains("a multiple of 3ms"), "{error}");
    }

    #[test]
    fn parses_numbers_with_units() {
        for (text, micros) in [
            ("100us", 100),
            ("10ms", 10_000),
            ("1s", 1_000_000),
            ("5min", 300_000_000),
            ("1d", 86_400_000_000),
        ] {
            assert_eq!(text.parse::<Period>().unwrap().as_micros(), micros);
        }
    }

    #[test]
    fn refuses_other_texts_and_states_the_allowed_ones() {
        for text in [
            "",
            "10",
            "ms",
            "1 s",
            "1.5s",
            "-1s",
            "99us",
            "0s",
            "2d",
            "25h",
            "1S",
            "1sec",
            "99999999999999999999s",
            "18446744073709551615d",
            "é",
        ] {
            let error = text.parse::<Period>().unwrap_err().to_string();
            assert!(error.contains("100us to 1d"), "{text}: {error}");
        }
    }

    #[test]
    fn is_written_in_its_largest_whole_unit() {
        for text in ["100us", "1500us", "10ms", "1s", "90s", "5min", "2h", "1d"] {
            assert_eq!(text.parse::<Period>().unwrap().to_string(), text);
        }
        assert_eq!("1000ms".parse::<Period>().unwrap().to_string(), "1s");
    }
}
