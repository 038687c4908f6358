//! Ranges of thresholds, in the syntax of plugins for Nagios: `10`, `10:`, `~:10`, `10:20`, `@10:20`.

use std::fmt;
use std::str::FromStr;

use polymeter_proto::text::Text;
use polymeter_proto::units::to_f64;

/// Values that are no reason for an alert; with `@` those that are one. Both ends belong to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Range {
    start: f64,
    end: f64,
    is_inside: bool,
    /// As it was written.
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid range `{0}`: expected [@][START:][END], such as 10, 10:, ~:10, 10:20 or @10:20")]
pub(crate) struct InvalidRange(Text);

impl Range {
    pub(super) fn up_to(end: u64) -> Self {
        Self { start: 0.0, end: to_f64(end), is_inside: false, text: end.to_string() }
    }

    pub(super) fn alerts(&self, value: f64) -> bool {
        (self.start <= value && value <= self.end) == self.is_inside
    }
}

/// None for anything but decimal digits with a sign and a point.
fn decimal(text: &str) -> Option<f64> {
    let is_decimal = text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '-'));
    text.parse().ok().filter(|_| is_decimal)
}

fn parse(text: &str) -> Option<Range> {
    let (is_inside, ends) = match text.strip_prefix('@') {
        Some(ends) => (true, ends),
        None => (false, text),
    };
    let (start, end) = match ends.split_once(':') {
        None => (0.0, decimal(ends)?),
        Some((start, end)) => {
            let start = match start {
                "~" => f64::NEG_INFINITY,
                "" => 0.0,
                number => decimal(number)?,
            };
            (start, if end.is_empty() { f64::INFINITY } else { decimal(end)? })
        }
    };
    (start <= end).then(|| Range { start, end, is_inside, text: text.to_owned() })
}

impl FromStr for Range {
    type Err = InvalidRange;

    fn from_str(text: &str) -> Result<Self, InvalidRange> {
        parse(text).ok_or_else(|| InvalidRange(Text::of(text)))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the plugin guidelines, and the ends.
    #[test]
    fn ranges_alert_as_the_guidelines_say() {
        for (text, alerts, others) in [
            ("10", &[-0.1, 10.1][..], &[0.0, 5.0, 10.0][..]),
            ("10:", &[9.9, -1.0], &[10.0, 1e9]),
            ("~:10", &[10.1], &[-1e9, 10.0]),
            ("10:20", &[9.9, 20.1], &[10.0, 20.0]),
            ("@10:20", &[10.0, 15.0, 20.0], &[9.9, 20.1]),
            ("@5", &[0.0, 5.0], &[-0.1, 5.1]),
            (":2.5", &[-1.0, 2.6], &[0.0, 2.5]),
            ("-3:-1", &[0.0, -4.0], &[-2.0]),
            ("@~:0", &[-5.0, 0.0], &[0.1]),
        ] {
            let range: Range = text.parse().unwrap();
            assert_eq!(range.to_string(), text);
            assert!(alerts.iter().all(|value| range.alerts(*value)), "{text}");
            assert!(!others.iter().any(|value| range.alerts(*value)), "{text}");
        }
        for text in ["", "@", "a", "1:2:3", "20:10", "1e3", "inf", "nan", "10:~", "~", "1-2", "1.2.3", " 1"] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
        assert!(!Range::up_to(7).alerts(7.0) && Range::up_to(7).alerts(7.5));
    }
}
