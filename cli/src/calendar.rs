//! Dates in UTC. Pure.

use std::str::FromStr;

use polymeter_proto::text::Text;
use polymeter_service::time_text::{rfc3339, time_us};

pub(crate) const DAY_US: i64 = 86_400 * 1_000_000;

/// Begin of a day in UTC, written as `2026-11-22`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Date {
    /// Microseconds since the epoch.
    pub(crate) begin_us: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidTime {
    #[error("invalid date `{0}`: expected YYYY-MM-DD, such as 2026-11-22")]
    Date(Text),
    #[error(
        "invalid time `{0}`: expected YYYY-MM-DD or YYYY-MM-DDTHH:MM in UTC, or an age such as 12h or 7d"
    )]
    PointInTime(Text),
}

impl FromStr for Date {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        let begin_us = time_us(text).filter(|begin_us| date(*begin_us) == text);
        begin_us.map(|begin_us| Self { begin_us }).ok_or_else(|| InvalidTime::Date(Text::of(text)))
    }
}

/// A time, written as in [`time_us`], or an age such as `12h` or `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointInTime {
    /// Microseconds since the epoch.
    At(i64),
    /// Microseconds before now.
    Ago(i64),
}

impl PointInTime {
    /// Nanoseconds since the epoch.
    pub(crate) const fn time_ns(self, now_us: i64) -> i64 {
        let time_us = match self {
            Self::At(time_us) => time_us,
            Self::Ago(age_us) => now_us.saturating_sub(age_us),
        };
        time_us.saturating_mul(1000)
    }
}

impl FromStr for PointInTime {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        let age_us = [("min", 60), ("h", 3_600), ("d", 86_400)].into_iter().find_map(|(unit, seconds)| {
            let number = text.strip_suffix(unit)?;
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            number.parse::<i64>().ok().filter(|_| is_number)?.checked_mul(seconds * 1_000_000)
        });
        let time = age_us.map(Self::Ago).or_else(|| time_us(text).map(Self::At));
        time.ok_or_else(|| InvalidTime::PointInTime(Text::of(text)))
    }
}

pub(crate) fn date(time_us: i64) -> String {
    rfc3339(time_us).chars().take(10).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_and_written_alike() {
        for text in ["1970-01-01", "2000-02-29", "2026-11-22", "2028-02-29", "2099-12-31"] {
            let parsed: Date = text.parse().unwrap();
            assert_eq!(date(parsed.begin_us), text);
            assert_eq!(parsed.begin_us % DAY_US, 0);
        }
        assert_eq!("1970-01-02".parse(), Ok(Date { begin_us: DAY_US }));
    }

    #[test]
    fn times_are_dates_with_or_without_a_clock_and_ages() {
        let day_us = Date::from_str("2026-11-22").unwrap().begin_us;
        let hour_us = 3_600_000_000;
        for (text, expected) in [
            ("2026-11-22", PointInTime::At(day_us)),
            ("2026-11-22T14:30", PointInTime::At(day_us + 14 * hour_us + hour_us / 2)),
            ("2026-11-22T00:00Z", PointInTime::At(day_us)),
            ("12h", PointInTime::Ago(12 * hour_us)),
            ("7d", PointInTime::Ago(7 * DAY_US)),
            ("90min", PointInTime::Ago(hour_us * 3 / 2)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        assert_eq!(PointInTime::Ago(DAY_US).time_ns(day_us), (day_us - DAY_US) * 1000);
        for text in [
            "",
            "h",
            "-1d",
            "7 d",
            "2026-11-22T",
            "2026-11-22T24:00",
            "2026-11-22T1:00",
            "99999999999999999d",
        ] {
            assert!(text.parse::<PointInTime>().unwrap_err().to_string().contains("YYYY-MM-DD"), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in
            ["", "2026", "2026-13-01", "2026-02-30", "2025-02-29", "22.11.2026", "2026-11-22T00", "+2026-1-1"]
        {
            assert!(text.parse::<Date>().unwrap_err().to_string().contains("YYYY-MM-DD"), "{text}");
        }
    }
}
