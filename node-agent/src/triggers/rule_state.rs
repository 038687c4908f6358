//! State of one rule for one job: which tests hold, and when it may fire. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::series::{Kind, SeriesId, Unit};
use polymeter_proto::trigger::{JobEvent, MetricTest, Rule};
use polymeter_proto::units;

use crate::principal::Principal;

/// Series of one metric that are compared: the devices, steps or processes of a job. Further ones are
/// ignored.
const SERIES: usize = 256;

/// A gap of more periods than this interrupts the time for which a test holds.
const GAP_PERIODS: i64 = 3;
const GAP_US: i64 = 2_000_000;

/// Time by which samples may be late before another voice speaks.
const LATE_US: i64 = 200_000;

const DAY_US: i64 = 86_400_000_000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    pub(super) series: SeriesId,
    pub(super) kind: Kind,
    pub(super) unit: Unit,
    pub(super) period_us: i64,
    /// Microseconds since the epoch.
    pub(super) time_us: i64,
    pub(super) value: f64,
}

#[derive(Debug, Default)]
struct SeriesState {
    period_us: i64,
    last: Option<(i64, f64)>,
    /// Time since which the test holds, and its last value.
    since: Option<(i64, f64)>,
}

impl SeriesState {
    fn take(&mut self, test: &MetricTest, sample: Sample) {
        let Sample { kind, period_us, time_us, value, .. } = sample;
        let passed_us = self.last.map_or(0, |(last_us, _)| time_us.saturating_sub(last_us));
        let longest_us = period_us.max(self.period_us).saturating_mul(GAP_PERIODS).saturating_add(GAP_US);
        let is_gap = !(-longest_us..=longest_us).contains(&passed_us);
        // Plan and ring have the same series: the one that is read more often speaks. A batch has the
        // samples of the ring first, so that the ring has ended if its last one is older.
        let is_silent = passed_us > self.period_us.saturating_mul(GAP_PERIODS).saturating_add(LATE_US);
        let is_coarser = period_us > self.period_us && !is_silent;
        if self.last.is_some() && !is_gap && (is_coarser || passed_us <= 0) {
            return;
        }
        self.period_us = period_us;
        let last = self.last.replace((time_us, value));
        if is_gap {
            self.since = None;
        }
        let compared = if test.is_rate {
            last.and_then(|(last_us, before)| rate(kind, before, value, time_us.saturating_sub(last_us)))
        } else {
            Some(value)
        };
        match compared.filter(|compared| test.comparison.holds(*compared, test.bound)) {
            Some(compared) => {
                let since_us = self.since.map_or(time_us, |(since_us, _)| since_us);
                self.since = Some((since_us, compared));
            }
            None => self.since = None,
        }
    }

    /// The value with which the test holds.
    fn holds(&self, test: &MetricTest) -> Option<f64> {
        let ((since_us, value), (last_us, _)) = self.since.zip(self.last)?;
        (last_us.saturating_sub(since_us) >= test.lasts_us).then_some(value)
    }
}

/// Change per second. None for a counter that has begun anew.
fn rate(kind: Kind, before: f64, value: f64, lasted_us: i64) -> Option<f64> {
    let is_reset = kind == Kind::Counter && value < before;
    let lasted_us = u32::try_from(lasted_us).ok().filter(|lasted_us| *lasted_us > 0 && !is_reset)?;
    Some((value - before) / f64::from(lasted_us) * 1e6)
}

/// One test of a rule.
#[derive(Debug, Default)]
struct TestState {
    series: BTreeMap<SeriesId, SeriesState>,
    /// Unit of the metric, once there was a sample.
    unit: Option<Unit>,
}

impl TestState {
    fn take(&mut self, test: &MetricTest, sample: Sample) {
        if self.series.len() < SERIES || self.series.contains_key(&sample.series) {
            self.unit = Some(sample.unit);
            self.series.entry(sample.series).or_default().take(test, sample);
        }
    }

    /// The value with which the test holds, in words.
    fn holds(&self, test: &MetricTest) -> Option<String> {
        let value = self.series.values().find_map(|series| series.holds(test))?;
        let (metric, unit) = (test.metric.as_str(), self.unit?.as_str());
        let value = if test.is_rate { units::rate(metric, unit, value) } else { units::value(unit, value) };
        Some(format!("{metric} was {value}"))
    }
}

#[derive(Debug)]
pub(super) struct RuleState {
    pub(super) rule: Arc<Rule>,
    /// Requester; none for a rule of the site.
    pub(super) by: Option<Principal>,
    /// One for each test of a metric.
    tests: Vec<TestState>,
    held: bool,
    last_us: Option<i64>,
    /// Number of a day, and the firings on it.
    day: (i64, u32),
    pub(super) held_back: u64,
    /// Part of them that no firing has told.
    untold: u64,
}

impl RuleState {
    pub(super) fn new(rule: Arc<Rule>, by: Option<Principal>) -> Self {
        let tests = rule.when.metric_tests().map(|_| TestState::default()).collect();
        Self { rule, by, tests, held: false, last_us: None, day: (0, 0), held_back: 0, untold: 0 }
    }

    /// Numbers of the tests about a metric.
    pub(super) fn tests_of(&self, metric: &str) -> Vec<usize> {
        let tests = self.rule.when.metric_tests().enumerate();
        tests.filter(|(_, test)| test.metric == metric).map(|(number, _)| number).collect()
    }

    /// Takes a sample of a test. Returns why the rule should fire, if its condition has become true.
    pub(super) fn sample(&mut self, number: usize, sample: Sample) -> Option<String> {
        let rule = Arc::clone(&self.rule);
        self.tests.get_mut(number)?.take(rule.when.metric_tests().nth(number)?, sample);
        if rule.when.event().is_some() {
            return None;
        }
        let why = self.why();
        let had_held = std::mem::replace(&mut self.held, why.is_some());
        why.filter(|_| !had_held)
    }

    /// Returns why the rule should fire at an event.
    pub(super) fn event(&self, event: JobEvent, why: &str) -> Option<String> {
        if self.rule.when.event() != Some(event) {
            return None;
        }
        let values = self.why()?;
        Some(if values.is_empty() { why.to_owned() } else { format!("{why}; {values}") })
    }

    /// The values with which all tests of metrics hold; empty without such tests.
    fn why(&self) -> Option<String> {
        let tests = self.rule.when.metric_tests().zip(&self.tests);
        let values: Option<Vec<String>> = tests.map(|(test, state)| state.holds(test)).collect();
        Some(values?.join(", "))
    }

    pub(super) const fn hold_back(&mut self) {
        self.held_back += 1;
        self.untold += 1;
    }

    /// Firings that were held back since it was last asked.
    pub(super) const fn take_held_back(&mut self) -> u64 {
        std::mem::replace(&mut self.untold, 0)
    }

    /// False if the rule has fired too recently, or too often on that day.
    pub(super) fn may_fire(&self, at_us: i64) -> bool {
        // Samples of several sources are not in the order of their times.
        let hold_off_us = self.rule.hold_off_us;
        let is_held_off = self.last_us.is_some_and(|last_us| at_us < last_us.saturating_add(hold_off_us));
        let is_new_day = self.day.0 < at_us.div_euclid(DAY_US);
        !is_held_off && (is_new_day || self.day.1 < self.rule.firings)
    }

    pub(super) fn fired(&mut self, at_us: i64) {
        let day = at_us.div_euclid(DAY_US);
        if self.day.0 < day {
            self.day = (day, 0);
        }
        self.day.1 += 1;
        self.last_us = self.last_us.max(Some(at_us));
    }
}
