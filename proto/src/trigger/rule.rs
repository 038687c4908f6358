//! Rules of triggers: a condition and what is done when it becomes true.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::condition::Condition;
use crate::catalogue;
use crate::name::Selector;
use crate::period::Period;
use crate::series::Identifier;

/// Metric of the action `stacks`.
pub const STACKS_METRIC: &str = "stacks.cpu";

/// Characters of a name.
const NAME_BYTES: usize = 64;

/// Metrics whose periods one rule changes.
const RAISED: usize = 16;

/// Firings of one rule for one job in a day, at most.
const FIRINGS: u32 = 1000;

/// A rule as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleFields {
    /// Name, unique among the rules of a job.
    pub name: String,
    /// Condition: `oom`, or `memory.current > 100GiB for 5s`.
    pub when: String,
    /// Keeps the ring's samples from this time before the instant; 30s if no action is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<String>,
    /// Keeps them until this time after the instant; 5s by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Samples metrics at other periods for a while, by a lease.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub raise: BTreeMap<String, String>,
    /// Duration of that lease; 1min by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raise_for: Option<String>,
    /// Samples call stacks at this period for as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<String>,
    /// Records a mark with the name of the rule.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mark: bool,
    /// Logs it, in the agent and in the collector.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub notice: bool,
    /// Time without another firing; 1min by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_off: Option<String>,
    /// Firings for each job and day; 5 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firings: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub name: Identifier,
    pub when: Condition,
    /// Time before the instant that is kept, in microseconds; none to keep nothing.
    pub keep_us: Option<i64>,
    pub after_us: i64,
    /// Metrics to be leased, call stacks among them.
    pub raise: Vec<(Selector, Period)>,
    pub raise_for_us: u64,
    pub mark: bool,
    pub notice: bool,
    pub hold_off_us: i64,
    pub firings: u32,
}

/// Fault in one field of a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {message}")]
pub struct RuleFault {
    pub field: &'static str,
    pub message: String,
}

#[derive(Default)]
pub(super) struct Faults(Vec<RuleFault>);

impl Faults {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_inner(self) -> Vec<RuleFault> {
        self.0
    }

    pub(super) fn add(&mut self, field: &'static str, message: impl ToString) {
        self.0.push(RuleFault { field, message: message.to_string() });
    }

    fn period(&mut self, field: &'static str, text: Option<&str>, usual: Period) -> Period {
        let parsed = text.map_or(Ok(usual), str::parse);
        parsed.unwrap_or_else(|error| {
            self.add(field, error);
            usual
        })
    }
}

fn us(period: Period) -> i64 {
    i64::try_from(period.as_micros()).unwrap_or(i64::MAX)
}

/// What the rules of agents and of the collector have in common.
pub(super) struct Usual {
    /// None if it is invalid.
    pub(super) name: Option<Identifier>,
    pub(super) keep_us: Option<i64>,
    pub(super) after_us: i64,
    pub(super) hold_off_us: i64,
    pub(super) firings: u32,
}

impl Usual {
    /// A rule without another action keeps.
    pub(super) fn parse(fields: &RuleFields, has_other: bool, faults: &mut Faults) -> Self {
        let name = Identifier::try_from(fields.name.as_str());
        if let Err(error) = &name {
            faults.add("name", error);
        } else if fields.name.len() > NAME_BYTES {
            faults.add("name", format_args!("longer than {NAME_BYTES} bytes"));
        }
        let keeps = fields.keep.is_some() || fields.after.is_some() || !has_other;
        let keep = faults.period("keep", fields.keep.as_deref(), Period::HALF_MINUTE);
        let after = faults.period("after", fields.after.as_deref(), Period::FIVE_SECONDS);
        for (field, period, longest) in
            [("keep", keep, Rule::LONGEST_KEPT), ("after", after, Rule::LONGEST_AFTER)]
        {
            if period > longest {
                faults.add(field, format_args!("{period} is longer than {longest}"));
            }
        }
        let hold_off = faults.period("hold_off", fields.hold_off.as_deref(), Period::MINUTE);
        let firings = fields.firings.unwrap_or(5);
        if !(1..=FIRINGS).contains(&firings) {
            faults.add("firings", format_args!("expected a number from 1 to {FIRINGS}"));
        }
        Self {
            name: name.ok(),
            keep_us: keeps.then(|| us(keep)),
            after_us: us(after),
            hold_off_us: us(hold_off),
            firings,
        }
    }
}

impl Rule {
    /// Longest time before the instant that is kept.
    pub const LONGEST_KEPT: Period = Period::TEN_MINUTES;

    /// Longest time after the instant that is kept: until then the samples before it stay in memory.
    pub const LONGEST_AFTER: Period = Period::MINUTE;

    /// Checks a rule in whole. The error has all faults.
    pub fn parse(fields: &RuleFields) -> Result<Self, Vec<RuleFault>> {
        let mut faults = Faults::default();
        let has_other = !fields.raise.is_empty() || fields.stacks.is_some() || fields.mark || fields.notice;
        let usual = Usual::parse(fields, has_other, &mut faults);
        let when = fields.when.parse::<Condition>();
        if let Err(error) = &when {
            faults.add("when", error);
        }
        let raise = raised(fields, &mut faults);
        let raise_for = faults.period("raise_for", fields.raise_for.as_deref(), Period::MINUTE);
        if raise.is_empty() && fields.raise_for.is_some() {
            faults.add("raise_for", "no metric is raised; write `raise`, or `stacks`");
        }
        match (usual.name, when) {
            (Some(name), Ok(when)) if faults.is_empty() => Ok(Self {
                name,
                when,
                keep_us: usual.keep_us,
                after_us: usual.after_us,
                raise,
                raise_for_us: raise_for.as_micros(),
                mark: fields.mark,
                notice: fields.notice,
                hold_off_us: usual.hold_off_us,
                firings: usual.firings,
            }),
            _ => Err(faults.into_inner()),
        }
    }
}

impl Rule {
    /// Returns the rule as it could have been written.
    pub fn fields(&self) -> RuleFields {
        let text = |selector: &Selector, period: &Period| (selector.to_string(), period.to_string());
        let is_of_stacks = |selector: &Selector| selector.as_str() == STACKS_METRIC;
        let raised = self.raise.iter().filter(|(selector, _)| !is_of_stacks(selector));
        let stacks = self.raise.iter().find(|(selector, _)| is_of_stacks(selector));
        let raise_for = Period::from_micros(self.raise_for_us).ok().filter(|_| !self.raise.is_empty());
        RuleFields {
            name: self.name.to_string(),
            when: self.when.to_string(),
            keep: self.keep_us.map(seconds),
            after: self.keep_us.map(|_| seconds(self.after_us)),
            raise: raised.map(|(selector, period)| text(selector, period)).collect(),
            raise_for: raise_for.map(|period| period.to_string()),
            stacks: stacks.map(|(_, period)| period.to_string()),
            mark: self.mark,
            notice: self.notice,
            hold_off: Some(seconds(self.hold_off_us)),
            firings: Some(self.firings),
        }
    }

    /// What is done, in words.
    pub fn actions(&self) -> String {
        let mut actions = Vec::new();
        if let Some(keep_us) = self.keep_us {
            let (before, after) = (seconds(keep_us), seconds(self.after_us));
            actions.push(format!("keep {before} before and {after} after"));
        }
        if !self.raise.is_empty() {
            let metrics = self.raise.iter().map(|(selector, period)| format!("{selector}={period}"));
            let duration = Period::from_micros(self.raise_for_us).unwrap_or(Period::MINUTE);
            actions.push(format!("sample {} for {duration}", metrics.collect::<Vec<_>>().join(" ")));
        }
        actions.extend(self.mark.then(|| "mark".to_owned()));
        actions.extend(self.notice.then(|| "notice".to_owned()));
        actions.join(", ")
    }
}

fn seconds(duration_us: i64) -> String {
    let period = u64::try_from(duration_us).ok().and_then(|us| Period::from_micros(us).ok());
    period.map_or_else(|| format!("{duration_us}us"), |period| period.to_string())
}

fn raised(fields: &RuleFields, faults: &mut Faults) -> Vec<(Selector, Period)> {
    let mut raised = Vec::new();
    if fields.raise.len() > RAISED {
        faults.add("raise", format_args!("more than {RAISED} selectors"));
    }
    for (selector, period) in fields.raise.iter().take(RAISED) {
        match (selector.parse::<Selector>(), period.parse::<Period>()) {
            (Ok(selector), Ok(period)) if catalogue::is_known(&selector) => raised.push((selector, period)),
            (Ok(selector), Ok(_)) => {
                let near = catalogue::nearest(selector.as_str());
                let advice = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                faults.add("raise", format_args!("no metric matches `{selector}`{advice}"));
            }
            (Err(error), _) => faults.add("raise", error),
            (_, Err(error)) => faults.add("raise", error),
        }
    }
    if let Some(text) = &fields.stacks {
        match (STACKS_METRIC.parse::<Selector>(), text.parse::<Period>()) {
            (Ok(selector), Ok(period)) => raised.push((selector, period)),
            (_, Err(error)) => faults.add("stacks", error),
            (Err(error), _) => faults.add("stacks", error),
        }
    }
    raised
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(when: &str) -> RuleFields {
        RuleFields { name: "r".to_owned(), when: when.to_owned(), ..RuleFields::default() }
    }

    #[test]
    fn a_rule_without_an_action_keeps_the_ring() {
        let rule = Rule::parse(&fields("oom")).unwrap();
        assert_eq!((rule.keep_us, rule.after_us), (Some(30_000_000), 5_000_000));
        assert_eq!((rule.hold_off_us, rule.firings), (60_000_000, 5));
        let marks = Rule::parse(&RuleFields { mark: true, ..fields("oom") }).unwrap();
        assert_eq!(marks.keep_us, None);
        let stacks = RuleFields { stacks: Some("10ms".to_owned()), ..fields("oom") };
        let stacks = Rule::parse(&stacks).unwrap();
        assert_eq!(stacks.raise, [("stacks.cpu".parse().unwrap(), Period::TEN_MILLISECONDS)]);
    }

    #[test]
    fn a_rule_can_be_written_again() {
        let text = |text: &str| Some(text.to_owned());
        let raise = [("cpu.*", "10ms"), ("memory.current", "1s")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        for fields in [
            fields("oom"),
            RuleFields { keep: text("90s"), after: text("100us"), firings: Some(1000), ..fields_of_oom() },
            RuleFields { mark: true, notice: true, hold_off: text("1d"), ..fields("xid") },
            RuleFields {
                raise: raise.into(),
                raise_for: text("3min"),
                stacks: text("10ms"),
                ..fields("signal")
            },
            RuleFields { stacks: text("1ms"), ..fields(" rate(cpu.usage)<1e3 for 30s and oom ") },
        ] {
            let rule = Rule::parse(&fields).unwrap();
            assert_eq!(Rule::parse(&rule.fields()), Ok(rule.clone()), "{fields:?}");
        }
    }

    #[test]
    fn all_faults_are_reported_together() {
        let hostile = RuleFields {
            name: "x".repeat(65),
            when: "oomm".to_owned(),
            keep: Some("1h".to_owned()),
            after: Some("soon".to_owned()),
            raise: [("cpu.usag".to_owned(), "1ms".to_owned()), ("cpu.*".to_owned(), "no".to_owned())].into(),
            stacks: Some("0s".to_owned()),
            hold_off: Some("-1s".to_owned()),
            firings: Some(0),
            ..RuleFields::default()
        };
        let faults = Rule::parse(&hostile).unwrap_err();
        let fields: Vec<&str> = faults.iter().map(|fault| fault.field).collect();
        assert_eq!(
            fields,
            ["name", "after", "keep", "hold_off", "firings", "when", "raise", "raise", "stacks"]
        );
        let many = (0..17).map(|number| (format!("cpu.usage{number}"), "1s".to_owned())).collect();
        assert!(Rule::parse(&RuleFields { raise: many, ..fields_of_oom() }).is_err());
        let pointless = RuleFields { raise_for: Some("1s".to_owned()), ..fields_of_oom() };
        assert_eq!(Rule::parse(&pointless).unwrap_err()[0].field, "raise_for");
    }

    #[test]
    fn a_hostile_rule_is_refused_in_few_words() {
        let million = "9".repeat(1_000_000);
        let text = |text: &str| Some(text.to_owned());
        let raise = |selector: &str, period: &str| RuleFields {
            raise: [(selector.to_owned(), period.to_owned())].into(),
            ..fields_of_oom()
        };
        let mut hostile = vec![
            RuleFields { name: million.clone(), ..fields_of_oom() },
            RuleFields { name: String::new(), ..fields_of_oom() },
            raise(&million, "1s"),
            raise("cpu.*\u{7}", "1s"),
            raise("*", "1us"),
            raise("*", "99us"),
            raise("cpu.*", "NaN"),
            raise("cpu.*", &million),
            RuleFields {
                raise: (0..1_000_000).map(|number| (format!("m{number}"), "1s".to_owned())).collect(),
                ..fields_of_oom()
            },
            RuleFields { stacks: text("1us"), ..fields_of_oom() },
            RuleFields { firings: Some(u32::MAX), ..fields_of_oom() },
            RuleFields { after: text("61s"), ..fields_of_oom() },
        ];
        for name in ["a\u{1b}[2J", "a\nb", "\u{202e}moo", "a\u{200b}", " "] {
            hostile.push(RuleFields { name: name.to_owned(), ..fields_of_oom() });
        }
        for duration in
            ["-1s", "0s", "NaN", "inf", "1e9s", "2d", "18446744073709551616us", "1s\0", "", &million]
        {
            let (of, mark) = (text(duration), true);
            hostile.extend([
                RuleFields { keep: of.clone(), ..fields_of_oom() },
                RuleFields { after: of.clone(), ..fields_of_oom() },
                RuleFields { raise_for: of.clone(), stacks: text("10ms"), ..fields_of_oom() },
                RuleFields { hold_off: of, mark, ..fields_of_oom() },
            ]);
        }
        for fields in hostile {
            let faults = Rule::parse(&fields).unwrap_err();
            assert!(faults.len() <= RAISED + 1, "{} faults", faults.len());
            for fault in faults {
                let message = fault.to_string();
                assert!(message.len() < 600 && !message.chars().any(char::is_control), "{message:?}");
            }
        }
    }

    fn fields_of_oom() -> RuleFields {
        fields("oom")
    }
}
