//! Dates in UTC. Pure.

use std::str::FromStr;

use polymeter_proto::text::Text;
use polymeter_service::clock::rfc3339;

/// The microseconds of a day.
pub(crate) const DAY_US: i64 = 86_400 * 1_000_000;

/// The begin of a day in UTC, written as `2026-11-22`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Date {
    /// Microseconds since the epoch.
    pub(crate) begin_us: i64,
}

impl FromStr for Date {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid =
            || format!("invalid date `{}`: expected YYYY-MM-DD, such as 2026-11-22", Text::of(text));
        let mut parts = text.split('-').map(|part| {
            part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<i64>().ok()).flatten()
        });
        let (Some(Some(year)), Some(Some(month)), Some(Some(day)), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(invalid());
        };
        if !(1970..=2100).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return Err(invalid());
        }
        let begin_us = days_from_civil(year, month, day) * DAY_US;
        // The days of a month that it does not have belong to the next one.
        if date(begin_us) == format!("{year:04}-{month:02}-{day:02}") {
            Ok(Self { begin_us })
        } else {
            Err(invalid())
        }
    }
}

/// Returns the date of a time in UTC.
pub(crate) fn date(time_us: i64) -> String {
    rfc3339(time_us).chars().take(10).collect()
}

/// Returns the days from the epoch to a date. Howard Hinnant's algorithm: years begin in March.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
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
    fn other_text_is_refused() {
        for text in
            ["", "2026", "2026-13-01", "2026-02-30", "2025-02-29", "22.11.2026", "2026-11-22T00", "+2026-1-1"]
        {
            assert!(text.parse::<Date>().unwrap_err().contains("YYYY-MM-DD"), "{text}");
        }
    }
}
