//! The plan: the period of each metric, computed from layers. Pure.

use std::collections::BTreeMap;

use polymeter_proto::catalogue::{self, Definition, Scope};
use polymeter_proto::ledger::Cause;
use polymeter_proto::name::Selector;
use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;

use crate::cgroups::StepLevel;
use crate::principal::Principal;

/// A rule: the period of the selected metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The metrics.
    pub selector: Selector,
    /// The period; none switches them off.
    pub period: Option<Period>,
}

/// The rules of one origin. For each metric the most specific rule applies: its name before a glob, a glob with more
/// letters before one with fewer, and of equal ones the last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer {
    rules: Vec<Rule>,
}

impl Layer {
    /// Creates a layer of these rules.
    pub const fn new(rules: Vec<Rule>) -> Self {
        Self { rules }
    }

    /// Returns whether it has no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the period of the metric `name` in this layer; none if it is off or not mentioned.
    pub fn period(&self, name: &str) -> Option<Period> {
        let fitting = self.rules.iter().filter(|rule| rule.selector.matches(name));
        fitting.max_by_key(|rule| specificity(&rule.selector)).and_then(|rule| rule.period)
    }
}

fn specificity(selector: &Selector) -> (bool, usize) {
    let letters = selector.as_str().bytes().filter(|byte| !matches!(byte, b'*' | b'?')).count();
    (selector.is_exact(), letters)
}

/// The greatest stretch of leases: it turns 100 µs into some minutes, beyond which there is nothing to save.
pub const MAX_STRETCH: u8 = 22;

/// A user's temporary change of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The metrics.
    pub selector: Selector,
    /// The longest period at which they are sampled.
    pub period: Period,
    /// The principal that requested it.
    pub principal: Principal,
    /// The time at which it ends, in microseconds since the epoch, for answers and data.
    pub until_us: i64,
    /// The time at which it ends on the monotonic clock, in nanoseconds. This one decides, because the wall clock may
    /// be set.
    pub ends_ns: u64,
}

/// The period of a metric in force, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// The period.
    pub period: Period,
    /// The layer that determines the period.
    pub cause: Cause,
    /// The user of the lease that determines it.
    pub by: Option<Identifier>,
    /// The time at which that lease ends, in microseconds since the epoch.
    pub until_us: Option<i64>,
    /// The period that the lease requests, if the governor has slowed it.
    pub requested: Option<Period>,
}

/// The plan of one job, or of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The administrator's baseline, which is guaranteed.
    pub baseline: Layer,
    /// The rules from the registration of the job.
    pub registration: Layer,
    /// The baseline of each step of a job.
    pub steps: Layer,
    /// The baseline of each task of a step.
    pub tasks: Layer,
    /// Users' temporary changes.
    pub leases: Vec<Lease>,
    /// The number of times that the governor has doubled the periods of the leases.
    pub stretch: u8,
}

impl Plan {
    /// Returns whether steps or tasks are sampled.
    pub fn wants_steps(&self) -> bool {
        !self.steps.is_empty() || !self.tasks.is_empty()
    }

    /// Returns the period of a metric of a step or task, to which leases do not apply.
    pub fn step_period(&self, kind: StepLevel, name: &str) -> Option<Period> {
        self.step_layer(kind).period(name)
    }

    /// Returns the metrics that are sampled of a step or task.
    pub fn step_definitions(&self, kind: StepLevel) -> Vec<Definition> {
        let plan = Self { baseline: self.step_layer(kind).clone(), ..Self::default() };
        let mut definitions = plan.definitions(Scope::Job);
        definitions.retain(Definition::is_of_file);
        definitions
    }

    const fn step_layer(&self, kind: StepLevel) -> &Layer {
        match kind {
            StepLevel::Step => &self.steps,
            StepLevel::Task => &self.tasks,
        }
    }

    /// Returns the effective period of a metric, which is the shortest of all layers, and its layer.
    pub fn period(&self, name: &str) -> Option<(Period, Cause)> {
        let baseline = self.baseline.period(name).map(|period| (period, Cause::Baseline));
        let registration = self.registration.period(name).map(|period| (period, Cause::Registration));
        let lease = self.lease(name).map(|lease| (self.stretched(lease.period), Cause::Lease));
        baseline.into_iter().chain(registration).chain(lease).min_by_key(|(period, _)| *period)
    }

    /// Returns the effective period of a metric, with the reason.
    pub fn in_force(&self, name: &str) -> Option<InForce> {
        let (period, cause) = self.period(name)?;
        let lease = self.lease(name).filter(|_| cause == Cause::Lease);
        Some(InForce {
            period,
            cause,
            by: lease.and_then(|lease| lease.principal.name()),
            until_us: lease.map(|lease| lease.until_us),
            requested: lease.map(|lease| lease.period).filter(|requested| *requested != period),
        })
    }

    /// Returns the period of a lease for `period` that the governor has slowed; at most a day.
    fn stretched(&self, period: Period) -> Period {
        let micros = period.as_micros().saturating_mul(1 << self.stretch.min(MAX_STRETCH));
        Period::from_micros(micros).unwrap_or(Period::MAX)
    }

    /// Returns the lease with the shortest period for a metric; of equal ones the one that ends last.
    fn lease(&self, name: &str) -> Option<&Lease> {
        let fitting = self.leases.iter().filter(|lease| lease.selector.matches(name));
        fitting.min_by_key(|lease| (lease.period, std::cmp::Reverse(lease.until_us)))
    }

    /// Returns the metrics of one scope that are sampled; whole families stand for their instances.
    pub fn definitions(&self, scope: Scope) -> Vec<Definition> {
        let rules =
            self.baseline.rules.iter().chain(&self.registration.rules).filter(|rule| rule.period.is_some());
        let selectors =
            rules.map(|rule| &rule.selector).chain(self.leases.iter().map(|lease| &lease.selector));
        let chosen =
            selectors.flat_map(catalogue::select).filter(|definition| definition.metric.scope == scope);
        let by_name: BTreeMap<String, Definition> =
            chosen.map(|definition| (definition.name(), definition)).collect();
        let mut definitions: Vec<_> = by_name
            .into_iter()
            .filter(|(name, _)| self.period(name).is_some())
            .map(|(_, definition)| definition)
            .collect();
        // A metric with a line of its own in the catalogue precedes the family of which it could be an instance.
        definitions.sort_by_key(Definition::is_family);
        definitions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(rules: &[(&str, &str)]) -> Layer {
        let rule = |(selector, period): &(&str, &str)| Rule {
            selector: selector.parse().unwrap(),
            period: period.parse().ok(),
        };
        Layer::new(rules.iter().map(rule).collect())
    }

    fn period(plan: &Plan, name: &str) -> Option<String> {
        plan.period(name).map(|(period, _)| period.to_string())
    }

    #[test]
    fn most_specific_rule_counts_in_any_order() {
        for rules in [
            [("cpu.usage", "1s"), ("cpu.*", "10ms"), ("*", "5s")],
            [("*", "5s"), ("cpu.*", "10ms"), ("cpu.usage", "1s")],
        ] {
            let plan = Plan { baseline: layer(&rules), ..Plan::default() };
            assert_eq!(period(&plan, "cpu.usage").as_deref(), Some("1s"));
            assert_eq!(period(&plan, "cpu.user").as_deref(), Some("10ms"));
            assert_eq!(period(&plan, "memory.anon").as_deref(), Some("5s"));
        }
    }

    #[test]
    fn shortest_period_of_all_layers_is_in_force() {
        let plan = Plan {
            leases: Vec::new(),
            baseline: layer(&[("cpu.*", "1s")]),
            registration: layer(&[("cpu.usage", "10ms"), ("cpu.user", "1min"), ("cpu.system", "off")]),
            stretch: 3,
            ..Plan::default()
        };
        assert_eq!(plan.period("cpu.usage"), Some(("10ms".parse().unwrap(), Cause::Registration)));
        assert_eq!(plan.period("cpu.user"), Some(("1s".parse().unwrap(), Cause::Baseline)));
        assert_eq!(plan.period("cpu.system"), Some(("1s".parse().unwrap(), Cause::Baseline)));
        assert_eq!(plan.period("memory.anon"), None);
    }

    #[test]
    fn lease_shortens_periods_and_never_lengthens_them() {
        let lease = |selector: &str, text: &str, until_us| Lease {
            selector: selector.parse().unwrap(),
            period: text.parse().unwrap(),
            principal: Principal { uid: 7, administrator: false },
            until_us,
            ends_ns: 0,
        };
        let leases = vec![
            lease("cpu.*", "10ms", 100),
            lease("cpu.user", "10ms", 200),
            lease("perf.page_faults", "1ms", 50),
        ];
        let plan =
            Plan { baseline: layer(&[("cpu.*", "1s"), ("cpu.system", "1ms")]), leases, ..Plan::default() };
        assert_eq!(plan.period("cpu.usage"), Some(("10ms".parse().unwrap(), Cause::Lease)));
        assert_eq!(plan.period("cpu.system"), Some(("1ms".parse().unwrap(), Cause::Baseline)));
        assert_eq!(plan.in_force("cpu.user").unwrap().until_us, Some(200));
        assert_eq!(plan.in_force("cpu.system").unwrap().until_us, None);
        let names: Vec<_> = plan.definitions(Scope::Job).iter().map(Definition::name).collect();
        assert!(
            names.contains(&"perf.page_faults".to_owned()),
            "a lease may begin what the baseline leaves out"
        );
    }

    #[test]
    fn governor_slows_leases_only() {
        let principal = Principal { uid: 7, administrator: false };
        let lease = |selector: &str| Lease {
            selector: selector.parse().unwrap(),
            period: "10ms".parse().unwrap(),
            principal,
            until_us: 1,
            ends_ns: 1,
        };
        let mut plan = Plan {
            baseline: layer(&[("cpu.*", "30ms")]),
            leases: vec![lease("cpu.usage"), lease("perf.page_faults")],
            stretch: 1,
            ..Plan::default()
        };
        assert_eq!(period(&plan, "cpu.usage").as_deref(), Some("20ms"));
        assert_eq!(plan.in_force("cpu.usage").unwrap().requested, "10ms".parse().ok());
        plan.stretch = 2;
        assert_eq!(plan.period("cpu.usage"), Some(("30ms".parse().unwrap(), Cause::Baseline)));
        assert_eq!(period(&plan, "perf.page_faults").as_deref(), Some("40ms"));
        plan.stretch = u8::MAX;
        assert_eq!(period(&plan, "perf.page_faults").as_deref(), Some("41943040ms"));
    }

    #[test]
    fn steps_have_plans_of_their_own() {
        let plan = Plan {
            baseline: layer(&[("cpu.*", "1s")]),
            steps: layer(&[("*", "10s"), ("cpu.user", "off")]),
            ..Plan::default()
        };
        assert!(plan.wants_steps() && !Plan::default().wants_steps());
        let names = |kind| plan.step_definitions(kind).iter().map(Definition::name).collect::<Vec<_>>();
        let of_step = names(StepLevel::Step);
        assert!(of_step.contains(&"cpu.usage".to_owned()) && !of_step.contains(&"cpu.user".to_owned()));
        assert!(
            !of_step.iter().any(|name| name.starts_with("perf") || name.starts_with("node")),
            "{of_step:?}"
        );
        assert_eq!(plan.step_period(StepLevel::Step, "cpu.usage"), "10s".parse().ok());
        assert_eq!(names(StepLevel::Task), [""; 0]);
    }

    #[test]
    fn off_switches_off_within_a_layer() {
        let plan = Plan {
            baseline: layer(&[("memory.*", "1s"), ("memory.anon", "off"), ("node.load?", "5s")]),
            ..Plan::default()
        };
        let names: Vec<_> = plan.definitions(Scope::Job).iter().map(Definition::name).collect();
        assert!(names.contains(&"memory.file".to_owned()));
        assert!(!names.contains(&"memory.anon".to_owned()));
        assert_eq!(plan.definitions(Scope::Node).len(), 2);
    }
}
