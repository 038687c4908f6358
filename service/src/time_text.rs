//! Times in text. Pure.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::Offset;

/// Formats microseconds since the epoch, in UTC, as in RFC 3339. A time outside the calendar becomes the
/// nearest one within.
pub fn rfc3339(wall_us: i64) -> String {
    let nearest = if wall_us < 0 { Timestamp::MIN } else { Timestamp::MAX };
    let time = Timestamp::from_microsecond(wall_us).unwrap_or(nearest);
    DateTimePrinter::new().precision(Some(6)).timestamp_to_string(&time)
}

/// Formats microseconds since the epoch for people, in UTC, to the second: `2026-11-28 21:07:40`.
pub fn to_the_second(wall_us: i64) -> String {
    let text = rfc3339(wall_us);
    text.get(..19).unwrap_or(&text).replace('T', " ")
}

/// Parses seconds since the epoch, or a date and time as in ISO 8601, into microseconds since the epoch. The
/// clock, seconds, fraction and offset may be missing; without an offset the time is in UTC.
pub fn time_us(text: &str) -> Option<i64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let time_us = if is_number { seconds_us(text.parse().ok()?)? } else { date_time_us(text)? };
    (0..=Timestamp::MAX.as_microsecond()).contains(&time_us).then_some(time_us)
}

#[expect(clippy::cast_possible_truncation, reason = "the range is checked before")]
fn seconds_us(seconds: f64) -> Option<i64> {
    let time_us = (seconds * 1e6).round();
    (0.0..=1e18).contains(&time_us).then_some(time_us as i64)
}

fn date_time_us(text: &str) -> Option<i64> {
    // In a query, the `+` of an offset is decoded as a blank.
    let text = match text.rsplit_once(' ') {
        Some((time, offset)) if time.contains(':') => format!("{time}+{offset}"),
        _ => text.to_owned(),
    };
    let time = match text.parse::<Timestamp>() {
        Ok(time) => time,
        Err(_no_offset) => Offset::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok()?,
    };
    Some(time.as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_rfc_3339() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(rfc3339(951_782_399_000_001), "2000-02-28T23:59:59.000001Z");
        assert_eq!(rfc3339(951_782_400_000_000), "2000-02-29T00:00:00.000000Z");
        assert_eq!(rfc3339(1_709_251_199_999_999), "2024-02-29T23:59:59.999999Z");
        assert_eq!(rfc3339(4_107_542_400_000_000), "2100-03-01T00:00:00.000000Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999999Z");
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for at_us in [
            0,
            951_782_399_000_001,
            951_782_400_000_000,
            1_796_000_000_123_456,
            Timestamp::MAX.as_microsecond(),
        ] {
            assert_eq!(time_us(&rfc3339(at_us)), Some(at_us));
        }
        let noon_us = 1_795_348_800_000_000;
        for text in [
            "1795348800",
            "1795348800.0",
            "2026-11-22T12:00:00Z",
            "2026-11-22T12",
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
