//! A time of a job: a point in time, or a time after the job's start. Pure.

use std::str::FromStr;

use polymeter_proto::text::Text;
use polymeter_store::reader::JobRow;

use crate::calendar::PointInTime;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeInJob {
    Point(PointInTime),
    /// Nanoseconds after the start.
    After(i64),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid time `{0}`: expected a time after the start of the job, such as +90s or +5min, YYYY-MM-DDTHH:MM in UTC, or an age such as 12h"
)]
pub(super) struct InvalidTimeInJob(Text);

impl FromStr for TimeInJob {
    type Err = InvalidTimeInJob;

    fn from_str(text: &str) -> Result<Self, InvalidTimeInJob> {
        let invalid = || InvalidTimeInJob(Text::of(text));
        let Some(duration) = text.strip_prefix('+') else {
            return text.parse().map(Self::Point).map_err(|_other| invalid());
        };
        let units =
            [("ms", 1_000_000), ("min", 60_000_000_000), ("s", 1_000_000_000), ("h", 3_600_000_000_000)];
        let after_ns = units.into_iter().find_map(|(unit, length_ns): (_, i64)| {
            let number = duration.strip_suffix(unit)?;
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            number.parse::<i64>().ok().filter(|_| is_number)?.checked_mul(length_ns)
        });
        after_ns.map(Self::After).ok_or_else(invalid)
    }
}

impl TimeInJob {
    /// Nanoseconds since the epoch.
    pub(super) const fn time_ns(self, job: &JobRow, now_us: i64) -> i64 {
        match self {
            Self::Point(point) => point.time_ns(now_us),
            Self::After(after_ns) => job.started_ns.saturating_add(after_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_relative_to_the_start_or_to_the_epoch() {
        for (text, after_s) in [("+0s", 0), ("+90s", 90), ("+5min", 300), ("+2h", 7200)] {
            assert_eq!(text.parse(), Ok(TimeInJob::After(after_s * 1_000_000_000)), "{text}");
        }
        assert_eq!("+250ms".parse(), Ok(TimeInJob::After(250_000_000)));
        assert_eq!("12h".parse(), Ok(TimeInJob::Point("12h".parse().unwrap())));
        assert_eq!("1970-01-02".parse(), Ok(TimeInJob::Point(PointInTime::At(86_400_000_000))));
        for text in ["", "+", "+s", "+-1s", "+1", "+1 s", "+99999999999999999h", "1x", "+1d"] {
            assert!(text.parse::<TimeInJob>().is_err(), "{text}");
        }
    }
}
