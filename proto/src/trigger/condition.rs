//! Conditions of triggers: `oom`, `exit_status and memory.current > 100GiB`, `rate(cpu.usage) < 1000 for
//! 30s`.
//!
//! ```text
//! condition  = test { "and" test }
//! test       = event | quantity comparison number [ "for" duration ]
//! event      = "oom" | "xid" | "exit_status" | "signal" | "time_limit"
//! quantity   = METRIC | "rate(" METRIC ")"
//! comparison = "<" | "<=" | ">" | ">=" | "==" | "!="
//! ```

use std::fmt;
use std::str::FromStr;

use crate::catalogue;
use crate::name::{MetricName, Selector};
use crate::period::Period;
use crate::suggest;

/// Longest text: it is shown in one line of a list.
const BYTES: usize = 256;

/// Each test costs time for every sample of its metric.
const TESTS: usize = 4;

/// Something that happens to a job at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEvent {
    /// The kernel killed a process for lack of memory.
    Oom,
    /// The driver of a GPU reported a critical error (XID).
    Xid,
    /// The job ended with an exit status other than 0.
    ExitStatus,
    /// The job was ended by a signal.
    Signal,
    /// The job was ended at its time limit.
    TimeLimit,
}

impl JobEvent {
    pub const ALL: [Self; 5] = [Self::Oom, Self::Xid, Self::ExitStatus, Self::Signal, Self::TimeLimit];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Oom => "oom",
            Self::Xid => "xid",
            Self::ExitStatus => "exit_status",
            Self::Signal => "signal",
            Self::TimeLimit => "time_limit",
        }
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == word)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Less,
    AtMost,
    Greater,
    AtLeast,
    Equal,
    Unequal,
}

impl Comparison {
    const ALL: [Self; 6] =
        [Self::Less, Self::AtMost, Self::Greater, Self::AtLeast, Self::Equal, Self::Unequal];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
            Self::Equal => "==",
            Self::Unequal => "!=",
        }
    }

    #[expect(clippy::float_cmp, reason = "a user who writes == means exactly this number")]
    pub fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Less => value < bound,
            Self::AtMost => value <= bound,
            Self::Greater => value > bound,
            Self::AtLeast => value >= bound,
            Self::Equal => value == bound,
            Self::Unequal => value != bound && !value.is_nan(),
        }
    }
}

/// Comparison of a metric, or of its change per second, with a number.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricTest {
    pub metric: String,
    pub is_rate: bool,
    pub comparison: Comparison,
    pub bound: f64,
    /// Time for which it must hold, in microseconds; 0 for one sample.
    pub lasts_us: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    Event(JobEvent),
    Metric(MetricTest),
}

/// All tests must hold. At most one is an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    text: String,
    tests: Vec<Test>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCondition {
    #[error("the condition is longer than {BYTES} bytes, or has characters other than printable ASCII")]
    Text,
    #[error("more than {TESTS} tests")]
    TooManyTests,
    #[error("expected {expected}, found {found}")]
    Unexpected { expected: &'static str, found: String },
    #[error("unknown metric or event `{name}`{}", advice.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    Unknown { name: String, advice: Option<String> },
    #[error("a condition has at most one event: two do not happen at the same instant")]
    TwoEvents,
    #[error(
        "`straggler` compares nodes, which an agent cannot; write the rule to the configuration of the collector"
    )]
    OfCollector,
    #[error("`{0}` is not one series of a job on each node")]
    NotOfJobs(String),
}

impl Condition {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn tests(&self) -> &[Test] {
        &self.tests
    }

    pub fn event(&self) -> Option<JobEvent> {
        self.tests.iter().find_map(|test| match test {
            Test::Event(event) => Some(*event),
            Test::Metric(_) => None,
        })
    }

    pub fn metric_tests(&self) -> impl Iterator<Item = &MetricTest> {
        self.tests.iter().filter_map(|test| match test {
            Test::Event(_) => None,
            Test::Metric(test) => Some(test),
        })
    }

    /// Metrics that must be sampled for the condition to be noticed.
    pub fn metrics(&self) -> impl Iterator<Item = &str> {
        let of_event = match self.event() {
            Some(JobEvent::Oom) => Some(super::OOM_METRIC),
            Some(JobEvent::Xid) => Some(super::XID_METRIC),
            Some(JobEvent::ExitStatus | JobEvent::Signal | JobEvent::TimeLimit) | None => None,
        };
        of_event.into_iter().chain(self.metric_tests().map(|test| test.metric.as_str()))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Condition {
    type Err = InvalidCondition;

    fn from_str(text: &str) -> Result<Self, InvalidCondition> {
        let text = text.trim();
        let mut words = Words::of(text)?;
        let mut tests = vec![words.test()?];
        while let Some(word) = words.next() {
            if word != "and" {
                return Err(unexpected("`and` or the end", Some(word)));
            }
            if tests.len() == TESTS {
                return Err(InvalidCondition::TooManyTests);
            }
            tests.push(words.test()?);
        }
        if tests.iter().filter(|test| matches!(test, Test::Event(_))).count() > 1 {
            return Err(InvalidCondition::TwoEvents);
        }
        Ok(Self { text: text.to_owned(), tests })
    }
}

pub(super) fn unexpected(expected: &'static str, found: Option<&str>) -> InvalidCondition {
    let found = found.map_or_else(|| "the end".to_owned(), |word| format!("`{word}`"));
    InvalidCondition::Unexpected { expected, found }
}

pub(super) struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    pub(super) fn of(text: &'a str) -> Result<Self, InvalidCondition> {
        let is_printable = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if text.len() > BYTES || !is_printable {
            Err(InvalidCondition::Text)
        } else {
            Ok(Self { rest: text })
        }
    }

    /// Signs of comparison need no spaces around them.
    pub(super) fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let is_sign = |c: char| matches!(c, '<' | '>' | '=' | '!');
        let starts_with_sign = rest.starts_with(is_sign);
        let end = rest.find(|c: char| c == ' ' || is_sign(c) != starts_with_sign).unwrap_or(rest.len());
        let (word, rest) = rest.split_at_checked(end)?;
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn peek(&self) -> Option<&'a str> {
        Words { rest: self.rest }.next()
    }

    fn test(&mut self) -> Result<Test, InvalidCondition> {
        let name = self.next().ok_or_else(|| unexpected("a metric or an event", None))?;
        if let Some(event) = JobEvent::of(name) {
            return Ok(Test::Event(event));
        }
        if straggler_metric(name).is_some() {
            return Err(InvalidCondition::OfCollector);
        }
        let of_rate = name.strip_prefix("rate(").and_then(|name| name.strip_suffix(')'));
        let metric = of_rate.unwrap_or(name);
        check_metric(metric)?;
        let sign = self.next();
        let comparison = Comparison::ALL.into_iter().find(|comparison| Some(comparison.as_str()) == sign);
        let comparison = comparison.ok_or_else(|| unexpected("a comparison such as `>`", sign))?;
        let word = self.next();
        let bound = word.and_then(number).ok_or_else(|| unexpected("a number such as 0.5 or 2GiB", word))?;
        let mut lasts_us = 0;
        if self.peek() == Some("for") {
            self.next();
            let word = self.next();
            let lasts = word.and_then(|word| word.parse::<Period>().ok());
            let lasts = lasts.ok_or_else(|| unexpected("a duration such as 5s", word))?;
            lasts_us = i64::try_from(lasts.as_micros()).unwrap_or(i64::MAX);
        }
        let metric = metric.to_owned();
        Ok(Test::Metric(MetricTest { metric, is_rate: of_rate.is_some(), comparison, bound, lasts_us }))
    }
}

/// Returns the metric of a word `straggler(METRIC)`; none for another word.
pub(super) fn straggler_metric(word: &str) -> Option<&str> {
    word.strip_prefix("straggler(")?.strip_suffix(')')
}

pub(super) fn check_metric(name: &str) -> Result<(), InvalidCondition> {
    const USERS: &str = "user.";
    let is_of_user = name.starts_with(USERS) && MetricName::new(name.to_owned()).is_ok();
    let selector = name.parse::<Selector>().ok().filter(Selector::is_exact);
    let is_sampled = selector.is_some_and(|one| !catalogue::select(&one).is_empty());
    if is_sampled || is_of_user {
        return Ok(());
    }
    let events = JobEvent::ALL.map(JobEvent::as_str);
    let names = catalogue::all().map(|metric| metric.name).chain(events);
    let advice = suggest::nearest(name, names).map(str::to_owned);
    Err(InvalidCondition::Unknown { name: name.to_owned(), advice })
}

fn number(word: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 4] = [
        ("KiB", 1024.0),
        ("MiB", 1024.0 * 1024.0),
        ("GiB", 1024.0 * 1024.0 * 1024.0),
        ("TiB", 1024.0 * 1024.0 * 1024.0 * 1024.0),
    ];
    let unit = UNITS.iter().find_map(|(unit, factor)| Some((word.strip_suffix(unit)?, *factor)));
    let (digits, factor) = unit.unwrap_or((word, 1.0));
    // Rust's parser also takes `inf` and `nan`.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || b".-+eE".contains(&byte));
    let parsed = digits.parse::<f64>().ok().filter(|_| is_number)?;
    Some(parsed * factor).filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_events_comparisons_and_durations() {
        let condition: Condition =
            "oom and memory.current>=1.5GiB and rate(cpu.usage) < 1e3 for 30s".parse().unwrap();
        assert_eq!(condition.event(), Some(JobEvent::Oom));
        let metric = |metric: &str, is_rate, comparison, bound, lasts_us| {
            Test::Metric(MetricTest { metric: metric.to_owned(), is_rate, comparison, bound, lasts_us })
        };
        let expected = [
            Test::Event(JobEvent::Oom),
            metric("memory.current", false, Comparison::AtLeast, 1_610_612_736.0, 0),
            metric("cpu.usage", true, Comparison::Less, 1000.0, 30_000_000),
        ];
        assert_eq!(condition.tests(), expected);
        let metrics: Vec<&str> = condition.metrics().collect();
        assert_eq!(metrics, ["memory.events.oom_kill", "memory.current", "cpu.usage"]);
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, expected) in [
            ("", "expected a metric or an event, found the end"),
            ("oomm", "did you mean `oom`?"),
            ("xids", "did you mean `xid`?"),
            ("xid > 1", "expected `and` or the end, found `>`"),
            ("oom and xid", "at most one event"),
            ("cpu.usag > 1", "did you mean `cpu.usage`?"),
            ("cpu.* > 1", "unknown metric"),
            ("cpu.usage", "expected a comparison such as `>`, found the end"),
            ("cpu.usage => 1", "found `=>`"),
            ("cpu.usage > much", "expected a number such as 0.5 or 2GiB, found `much`"),
            ("cpu.usage > nan", "expected a number"),
            ("cpu.usage > 1e999", "expected a number"),
            ("cpu.usage > 1 for ever", "expected a duration such as 5s, found `ever`"),
            ("oom or signal", "expected `and` or the end, found `or`"),
            ("oom and signal", "at most one event"),
            ("oom and", "found the end"),
            ("rate(cpu.usage > 1", "unknown metric"),
            ("rate(rate(cpu.usage)) > 1", "unknown metric"),
            ("cpu.usage > 1\u{202e}", "printable ASCII"),
            ("straggler(cpu.usage)", "to the configuration of the collector"),
        ] {
            let error = text.parse::<Condition>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let long = ["cpu.usage > 1"; 5].join(" and ");
        assert_eq!(long.parse::<Condition>(), Err(InvalidCondition::TooManyTests));
        let longer = ["cpu.usage > 1"; 50].join(" and ");
        assert_eq!(longer.parse::<Condition>(), Err(InvalidCondition::Text));
    }

    #[test]
    fn a_hostile_condition_is_refused_in_few_words() {
        let million = |word: &str| word.repeat(1_000_000);
        for text in [
            million("oom and "),
            format!("oom and {}", million("cpu.usage > 1 and ")),
            million("rate("),
            million("("),
            million(" "),
            million("<"),
            format!("cpu.usage > {}", million("9")),
            format!("{} > 1", million("x")),
            format!("user.{} > 1", "x".repeat(252)),
            "oom\0".to_owned(),
            "oom\tand cpu.usage > 1".to_owned(),
            "oom\n".repeat(2),
            "\u{1b}[2Joom".to_owned(),
            "cpu.usage > \u{663}".to_owned(),
            "cpu.usage > -inf".to_owned(),
            "cpu.usage > NaN".to_owned(),
            "cpu.usage > +nan".to_owned(),
            "cpu.usage > 1e308TiB".to_owned(),
            "cpu.usage > 0x10".to_owned(),
            "cpu.usage > --1".to_owned(),
            "cpu.usage > 1 for -1s".to_owned(),
            "cpu.usage > 1 for 0s".to_owned(),
            "cpu.usage > 1 for 2d".to_owned(),
            "cpu.usage > 1 for 18446744073709551616us".to_owned(),
            "cpu.usage > 1 for 99999999999999999999999999d".to_owned(),
            "cpu.usage > 1 for NaN".to_owned(),
            "cpu.usage > 1 for 1s for 1s".to_owned(),
            "*.* > 1".to_owned(),
            "user.* > 1".to_owned(),
            "user. > 1".to_owned(),
            "user.a(b > 1".to_owned(),
        ] {
            let error = text.parse::<Condition>().unwrap_err().to_string();
            assert!(error.len() < 500, "{} bytes for {:?}", error.len(), text.get(..40));
            assert!(!error.chars().any(char::is_control), "{error:?}");
        }
    }

    #[test]
    fn no_comparison_holds_for_what_is_no_number() {
        for comparison in Comparison::ALL {
            assert!(!comparison.holds(f64::NAN, 1.0) && !comparison.holds(f64::NAN, f64::NAN));
        }
        assert!(Comparison::Unequal.holds(f64::INFINITY, 1.0) && !Comparison::Unequal.holds(1.0, 1.0));
    }

    proptest! {
        #[test]
        fn any_text_is_a_condition_or_an_error(text in "[ -~]{0,300}") {
            if let Ok(condition) = text.parse::<Condition>() {
                prop_assert!((1..=TESTS).contains(&condition.tests().len()));
                prop_assert_eq!(condition.as_str().parse::<Condition>(), Ok(condition.clone()));
            }
        }

        #[test]
        fn words_of_the_language_are_parsed(words in prop::collection::vec(
            prop::sample::select(vec!["oom", "and", "cpu.usage", "rate(cpu.usage)", ">", "<=", "1", "2GiB", "for", "5s"]),
            0..20,
        )) {
            words.join(" ").parse::<Condition>().ok();
        }
    }
}
