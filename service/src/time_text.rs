//! Times in text. Pure.

/// The end of the year 9999, in microseconds since the epoch.
const LATEST_US: i64 = 253_402_300_799_999_999;

/// Returns the microseconds since the epoch of a time: seconds since the epoch, or a date and time as in RFC
/// 3339, whose seconds, fraction and offset may be missing. Without an offset it is in UTC.
pub fn time_us(text: &str) -> Option<i64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let time_us = if is_number { seconds_us(text.parse().ok()?)? } else { date_time_us(text)? };
    (0..=LATEST_US).contains(&time_us).then_some(time_us)
}

#[expect(clippy::cast_possible_truncation, reason = "the range is checked before")]
fn seconds_us(seconds: f64) -> Option<i64> {
    let time_us = (seconds * 1e6).round();
    (0.0..=1e18).contains(&time_us).then_some(time_us as i64)
}

fn date_time_us(text: &str) -> Option<i64> {
    let (date, rest) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, time),
        None => (text, "00:00"),
    };
    let mut date = date.split('-').map(|part| digits(part, 2, 4));
    let (Some(Some(year)), Some(Some(month)), Some(Some(day)), None) =
        (date.next(), date.next(), date.next(), date.next())
    else {
        return None;
    };
    if !(1970..=9999).contains(&year)
        || !(1..=12).contains(&month)
        || !(1..=month_days(year, month)).contains(&day)
    {
        return None;
    }
    // In a query, `+` is decoded as a blank.
    let end = rest.find(['Z', 'z', '+', '-', ' ']).unwrap_or(rest.len());
    let (clock, offset) = rest.split_at_checked(end)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let (hour, minute, second) = clock_parts(clock)?;
    let is_clock = hour < 24 && minute < 60 && second < 61;
    let digits_of = fraction.get(..fraction.len().min(6))?;
    let scale = 10_i64.pow(6_u32.saturating_sub(u32::try_from(digits_of.len()).ok()?));
    let fraction_us = digits(digits_of, 1, 6)? * scale;
    if !is_clock || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let seconds =
        days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset_s(offset)?;
    Some(seconds * 1_000_000 + fraction_us)
}

/// Returns the number that some digits form.
fn digits(text: &str, min: usize, max: usize) -> Option<i64> {
    let is_number = (min..=max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn clock_parts(clock: &str) -> Option<(i64, i64, i64)> {
    let mut parts = clock.split(':').map(|part| digits(part, 2, 2));
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = match parts.next() {
        None => 0,
        Some(second) => second?,
    };
    parts.next().is_none().then_some((hour, minute, second))
}

fn offset_s(offset: &str) -> Option<i64> {
    if matches!(offset, "" | "Z" | "z") {
        return Some(0);
    }
    let (sign, text) = offset.split_at_checked(1)?;
    let text = text.replace(':', "");
    let (hour, minute) = (digits(text.get(..2)?, 2, 2)?, text.get(2..).filter(|text| !text.is_empty()));
    let minute = minute.map_or(Some(0), |minute| digits(minute, 2, 2))?;
    let seconds = hour * 3600 + minute * 60;
    (hour < 24 && minute < 60).then_some(if sign == "-" { -seconds } else { seconds })
}

const fn month_days(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days from the epoch to a date. Howard Hinnant's algorithm: years begin in March.
pub const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::rfc3339;

    #[test]
    fn times_are_read_as_they_are_written() {
        for at_us in [0, 951_782_399_000_001, 951_782_400_000_000, 1_796_000_000_123_456, LATEST_US] {
            assert_eq!(time_us(&rfc3339(at_us)), Some(at_us));
        }
        let noon_us = 1_795_348_800_000_000;
        for text in [
            "1795348800",
            "1795348800.0",
            "2026-11-22T12:00:00Z",
            "2026-11-22T12:00",
            "2026-11-22 12:00:00.000",
            "2026-11-22t13:30:00+01:30",
            "2026-11-22T13:30:00 0130",
            "2026-11-22T11:00:00-01",
        ] {
            assert_eq!(time_us(text), Some(noon_us), "{text}");
        }
        assert_eq!(time_us("2026-11-22"), Some(noon_us - 43_200_000_000));
        assert_eq!(time_us("2026-11-22T12:00:00.25"), Some(noon_us + 250_000));
    }

    #[test]
    fn other_text_is_no_time() {
        for text in [
            "",
            "now",
            "-1",
            "nan",
            "inf",
            "1e300",
            "1e3",
            "1.2.3",
            ".",
            "2026-02-29",
            "2026-13-01",
            "2026-11-22T24:00",
            "2026-11-22T12",
            "2026-11-22T12:0",
            "2026-11-22T12:00:00.",
            "2026-11-22T12:00:00.1x",
            "2026-11-22T12:00:00+",
            "2026-11-22T12:00+99:00",
            "2026-11-22T12:00Zx",
            "1969-12-31",
            "10000-01-01",
            "2026-11-22T\u{e9}:00",
            "2026-11-22T12:00\u{e9}",
        ] {
            assert_eq!(time_us(text), None, "{text}");
        }
    }
}
