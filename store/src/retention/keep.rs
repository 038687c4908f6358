//! Time for which rows are kept. Pure.

use std::fmt;
use std::str::FromStr;

use polymeter_proto::text::Text;

const YEAR_DAYS: u32 = 365;

/// A century.
const DAYS_MAX: u32 = 100 * YEAR_DAYS;

/// Time for which rows are kept: `90d`, `1y` or `forever`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Keep {
    /// Days, at least one.
    Days(u32),
    Forever,
}

impl Keep {
    /// Returns none for ever.
    pub const fn days(self) -> Option<u32> {
        match self {
            Self::Days(days) => Some(days),
            Self::Forever => None,
        }
    }

    /// Reads a number of days from a store, where none is for ever.
    pub(crate) fn from_days(days: Option<i64>) -> Self {
        days.map_or(Self::Forever, |days| Self::Days(u32::try_from(days).unwrap_or(DAYS_MAX)))
    }
}

/// A text that is no time for which rows are kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid time `{0}`: expected a whole number of d or y (365d), from 1d to 100y, or forever")]
pub struct InvalidKeep(Text);

impl FromStr for Keep {
    type Err = InvalidKeep;

    fn from_str(text: &str) -> Result<Self, InvalidKeep> {
        if text == "forever" {
            return Ok(Self::Forever);
        }
        let days = [('d', 1), ('y', YEAR_DAYS)].into_iter().find_map(|(unit, factor)| {
            let number = text.strip_suffix(unit)?;
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| number.parse::<u32>().ok()?.checked_mul(factor)).flatten()
        });
        let days = days.filter(|days| (1..=DAYS_MAX).contains(days));
        days.map(Self::Days).ok_or_else(|| InvalidKeep(Text::of(text)))
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Days(days) if days.is_multiple_of(YEAR_DAYS) => write!(f, "{}y", days / YEAR_DAYS),
            Self::Days(days) => write!(f, "{days}d"),
            Self::Forever => write!(f, "forever"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written_alike() {
        for (text, keep) in [
            ("1d", Keep::Days(1)),
            ("90d", Keep::Days(90)),
            ("1y", Keep::Days(365)),
            ("100y", Keep::Days(36_500)),
            ("forever", Keep::Forever),
        ] {
            assert_eq!(text.parse(), Ok(keep));
            assert_eq!(keep.to_string(), text);
        }
        assert_eq!("730d".parse::<Keep>().unwrap().to_string(), "2y");
    }

    #[test]
    fn other_text_is_refused_with_the_forms() {
        for text in ["", "d", "0d", "-1d", "+1d", "90", "12h", "1 d", "101y", "99999999999d", "Forever"] {
            let error = text.parse::<Keep>().unwrap_err().to_string();
            assert!(error.contains("from 1d to 100y, or forever"), "{text}: {error}");
        }
    }

    #[test]
    fn forever_is_the_longest() {
        assert!(Keep::Days(1) < Keep::Days(2) && Keep::Days(36_500) < Keep::Forever);
    }
}
