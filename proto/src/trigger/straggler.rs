//! Rules of stragglers: a node of a job that is far from the median of the job's nodes. Only the collector,
//! which has the samples of all nodes, can evaluate them.
//!
//! ```text
//! test = "straggler(" METRIC ")" [ ( "<" | ">" ) PERCENT "%" ] [ "for" duration ]
//! ```

use std::fmt;
use std::str::FromStr;

use super::condition::{InvalidCondition, Words, check_metric, straggler_metric, unexpected};
use super::rule::{Faults, RuleFault, RuleFields, Usual};
use crate::catalogue::{self, Cell, Origin, Scope};
use crate::period::Period;
use crate::series::Identifier;

/// Values of a node within 5 % of the median are normal in every job.
const BELOW: std::ops::RangeInclusive<u32> = 1..=95;
const ABOVE: std::ops::RangeInclusive<u32> = 105..=1_000_000;

/// Time for which a node must differ, by default and at least: nodes change from one phase of a program to
/// the next within some seconds.
const USUAL_FOR: Period = Period::FIFTEEN_SECONDS;
const LONGEST_FOR: Period = Period::HOUR;

/// Side of the median on which a node is a straggler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Below,
    Above,
}

/// Comparison of the values of a metric on each node of a job with their median. Counters are compared by
/// their rates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StragglerTest {
    text: String,
    pub metric: String,
    pub side: Side,
    /// Percentage of the median.
    pub percent: u32,
    /// Time for which it must hold, in microseconds.
    pub lasts_us: i64,
}

impl StragglerTest {
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for StragglerTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for StragglerTest {
    type Err = InvalidCondition;

    fn from_str(text: &str) -> Result<Self, InvalidCondition> {
        let mut words = Words::of(text)?;
        let first = words.next();
        let metric = first.and_then(straggler_metric);
        let metric = metric.ok_or_else(|| unexpected("`straggler(METRIC)`", first))?;
        check_metric(metric)?;
        if !has_one_series(metric) {
            return Err(InvalidCondition::NotOfJobs(metric.to_owned()));
        }
        let (mut side, mut percent, mut lasts) = (Side::Below, *BELOW.end(), USUAL_FOR);
        let mut next = words.next();
        if let Some(sign @ ("<" | ">")) = next {
            side = if sign == "<" { Side::Below } else { Side::Above };
            let (range, expected) = match side {
                Side::Below => (BELOW, "a percentage of the median from 1% to 95%"),
                Side::Above => (ABOVE, "a percentage of the median of 105% or more"),
            };
            let word = words.next();
            let number = word.and_then(|word| word.strip_suffix('%')?.parse::<u32>().ok());
            percent =
                number.filter(|number| range.contains(number)).ok_or_else(|| unexpected(expected, word))?;
            next = words.next();
        }
        if next == Some("for") {
            let word = words.next();
            let parsed = word.and_then(|word| word.parse::<Period>().ok());
            let parsed = parsed.filter(|lasts| (USUAL_FOR..=LONGEST_FOR).contains(lasts));
            lasts = parsed.ok_or_else(|| unexpected("a duration from 15s to 1h", word))?;
            next = words.next();
        }
        if next.is_some() {
            return Err(unexpected("`<`, `>`, `for` or the end", next));
        }
        let lasts_us = i64::try_from(lasts.as_micros()).unwrap_or(i64::MAX);
        Ok(Self { text: text.trim().to_owned(), metric: metric.to_owned(), side, percent, lasts_us })
    }
}

/// True unless the catalogue says that it is a metric of nodes, or has a series for each CPU or device.
fn has_one_series(name: &str) -> bool {
    let Some(definition) = catalogue::find(name) else { return true };
    let is_of_parts = |origin: &Origin| match origin {
        Origin::Text { file, field } => !file.path_labels.is_empty() || matches!(field.cell, Cell::Each(_)),
        Origin::Perf(_) | Origin::Source(_) => false,
    };
    let metric = definition.metric;
    metric.scope == Scope::Job && !metric.is_per_cpu && !metric.origins.iter().any(is_of_parts)
}

/// Rule of the collector: a test, and what is done when a node becomes a straggler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StragglerRule {
    pub name: Identifier,
    pub test: StragglerTest,
    /// Time before the instant that all nodes keep, in microseconds; none to keep nothing.
    pub keep_us: Option<i64>,
    pub after_us: i64,
    pub notice: bool,
    pub hold_off_us: i64,
    /// Firings for each job and day.
    pub firings: u32,
}

impl StragglerRule {
    /// Checks a rule in whole. The error has all faults. The fields `raise`, `raise_for`, `stacks` and `mark`
    /// belong to agents.
    pub fn parse(fields: &RuleFields) -> Result<Self, Vec<RuleFault>> {
        let mut faults = Faults::default();
        let usual = Usual::parse(fields, fields.notice, &mut faults);
        let test = fields.when.parse::<StragglerTest>();
        if let Err(error) = &test {
            faults.add("when", error);
        }
        match (usual.name, test) {
            (Some(name), Ok(test)) if faults.is_empty() => Ok(Self {
                name,
                test,
                keep_us: usual.keep_us,
                after_us: usual.after_us,
                notice: fields.notice,
                hold_off_us: usual.hold_off_us,
                firings: usual.firings,
            }),
            _ => Err(faults.into_inner()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_sides_and_durations() {
        for (text, metric, side, percent, seconds) in [
            ("straggler(cpu.usage)", "cpu.usage", Side::Below, 95, 15),
            (" straggler(cpu.usage)<80% ", "cpu.usage", Side::Below, 80, 15),
            ("straggler(memory.current) > 150% for 1min", "memory.current", Side::Above, 150, 60),
            ("straggler(perf.instructions) for 20s", "perf.instructions", Side::Below, 95, 20),
            ("straggler(user.steps)", "user.steps", Side::Below, 95, 15),
        ] {
            let test: StragglerTest = text.parse().unwrap();
            let found = (test.metric.as_str(), test.side, test.percent, test.lasts_us);
            assert_eq!(found, (metric, side, percent, seconds * 1_000_000), "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, expected) in [
            ("", "expected `straggler(METRIC)`, found the end"),
            ("cpu.usage > 1", "expected `straggler(METRIC)`, found `cpu.usage`"),
            ("straggler(cpu.usag)", "did you mean `cpu.usage`?"),
            ("straggler(cpu.*)", "unknown metric"),
            ("straggler(node.load1)", "is not one series of a job on each node"),
            ("straggler(cpu.usage.per_cpu)", "is not one series of a job on each node"),
            ("straggler(cpu.usage) < 99%", "from 1% to 95%, found `99%`"),
            ("straggler(cpu.usage) < 0%", "from 1% to 95%"),
            ("straggler(cpu.usage) > 101%", "of 105% or more"),
            ("straggler(cpu.usage) > 2", "of 105% or more, found `2`"),
            ("straggler(cpu.usage) >= 120%", "found `>=`"),
            ("straggler(cpu.usage) for 1s", "a duration from 15s to 1h, found `1s`"),
            ("straggler(cpu.usage) and oom", "found `and`"),
            ("straggler(cpu.usage) < 90% for 20s x", "found `x`"),
        ] {
            let error = text.parse::<StragglerTest>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_rule_keeps_unless_it_only_notices() {
        let fields = |notice| RuleFields {
            name: "slow".to_owned(),
            when: "straggler(cpu.usage)".to_owned(),
            notice,
            ..RuleFields::default()
        };
        let rule = StragglerRule::parse(&fields(false)).unwrap();
        assert_eq!((rule.keep_us, rule.after_us), (Some(30_000_000), 5_000_000));
        assert_eq!((rule.hold_off_us, rule.firings), (60_000_000, 5));
        assert_eq!(StragglerRule::parse(&fields(true)).unwrap().keep_us, None);
        let hostile = RuleFields {
            name: String::new(),
            keep: Some("1h".to_owned()),
            firings: Some(0),
            when: "oom".to_owned(),
            ..RuleFields::default()
        };
        let faults = StragglerRule::parse(&hostile).unwrap_err();
        let names: Vec<&str> = faults.iter().map(|fault| fault.field).collect();
        assert_eq!(names, ["name", "keep", "firings", "when"]);
    }

    proptest! {
        #[test]
        fn words_of_the_language_are_parsed(words in prop::collection::vec(
            prop::sample::select(vec!["straggler(cpu.usage)", "<", ">", "90%", "120%", "for", "20s", "and"]),
            0..8,
        )) {
            if let Ok(test) = words.join(" ").parse::<StragglerTest>() {
                prop_assert!(BELOW.contains(&test.percent) || ABOVE.contains(&test.percent));
                prop_assert_eq!(test.as_str().parse::<StragglerTest>(), Ok(test.clone()));
            }
        }
    }
}
