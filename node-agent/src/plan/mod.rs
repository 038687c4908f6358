//! The plan: the period of each metric and its windows, computed from layers. Pure.

mod layer;

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::catalogue::derived::Machine;
use polymeter_proto::catalogue::{self, Definition, Metric, Scope};
use polymeter_proto::ledger::Cause;
use polymeter_proto::name::Selector;
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::series::{DEVICE_METRICS, Identifier};
use polymeter_proto::step_level::StepLevel;

use crate::in_force::InForce;
use crate::principal::Principal;

pub use layer::{Layer, Rule, names_perf};
use layer::{derived_from, selects_of_steps};
pub(crate) use layer::{is_of_devices, is_of_hardware, select, selects};

/// How the names of call stacks begin.
const STACKS: &str = "stacks.";

/// Greatest stretch of leases: it turns 100 µs into some minutes, beyond which there is nothing to save.
pub const MAX_STRETCH: u8 = 22;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Steps or tasks of the job; none for the job as a whole, or the node.
    pub level: Option<StepLevel>,
    /// True if the samples go to the ring of the job, and not to the collector.
    pub is_ring: bool,
    pub selector: Selector,
    /// Longest period at which they are sampled, and longest windows.
    pub sampling: Sampling,
    pub principal: Principal,
    /// End in microseconds since the epoch, for answers and data.
    pub until_us: i64,
    /// End on the monotonic clock. This one decides, because the wall clock may be set.
    pub ends_ns: u64,
    /// Job for which the collector asks for a metric of a device; none for a lease of a user of this node.
    pub demanded_by: Option<Identifier>,
}

/// A time in which hardware events are closed, so that other programs may use the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    pub principal: Principal,
    /// End in microseconds since the epoch, for answers.
    pub until_us: i64,
    /// End on the monotonic clock.
    pub ends_ns: u64,
}

impl Release {
    /// Reason why a hardware event has no samples.
    pub fn reason(&self) -> String {
        let by = self.principal.uid;
        format!("uid {by} has released the counters to other programs; `polymeter pmu resume` opens it again")
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Kind of machine, on which the inputs of derived metrics depend.
    pub machine: Machine,
    /// Administrator's baseline, which is guaranteed.
    pub baseline: Layer,
    pub registration: Layer,
    pub steps: Layer,
    pub tasks: Layer,
    /// Metrics of jobs that are sampled into the ring, beside everything else.
    pub ring: Layer,
    pub leases: Vec<Lease>,
    pub releases: Vec<Release>,
    /// How often the governor has doubled the periods of the leases.
    pub stretch: u8,
}

impl Plan {
    pub fn wants_steps(&self) -> bool {
        !self.steps.is_empty()
            || !self.tasks.is_empty()
            || self.leases.iter().any(|lease| lease.level.is_some())
    }

    pub fn step_sampling(&self, level: StepLevel, name: &str) -> Option<Sampling> {
        self.sampling_at(Some(level), name).map(|(sampling, _)| sampling)
    }

    pub fn step_definitions(&self, level: StepLevel) -> Vec<Definition> {
        let rules = self.step_layer(level).rules().iter().filter(|rule| rule.sampling.is_some());
        let mut definitions =
            self.select(rules.map(|rule| &rule.selector), Some(level), |metric| metric.scope == Scope::Job);
        definitions.retain(is_of_steps);
        definitions
    }

    const fn step_layer(&self, level: StepLevel) -> &Layer {
        match level {
            StepLevel::Step => &self.steps,
            StepLevel::Task => &self.tasks,
        }
    }

    pub fn has_ring(&self) -> bool {
        !self.ring.is_empty() || self.leases.iter().any(|lease| lease.is_ring)
    }

    /// Sampling of a metric of the whole job in the ring, without a window. Call stacks have no place there.
    pub fn ring_sampling(&self, name: &str) -> Option<Sampling> {
        self.ring_period(name).map(|(period, _)| Sampling::raw(period))
    }

    /// Shortest period of a metric in the ring, and the layer of it.
    fn ring_period(&self, name: &str) -> Option<(Period, Cause)> {
        if name.starts_with(STACKS) {
            return None;
        }
        let baseline = self.ring.sampling(self.machine, name);
        let baseline = baseline.map(|sampling| (sampling.period, Cause::Baseline));
        let leases = self.ring_leases_of(name);
        let leases = leases.map(|lease| (self.stretched(lease.sampling).period, Cause::Lease));
        baseline.into_iter().chain(leases).min_by_key(|(period, _)| *period)
    }

    /// Effective sampling of a metric, and the layer of its period.
    pub fn sampling(&self, name: &str) -> Option<(Sampling, Cause)> {
        self.sampling_at(None, name)
    }

    /// Effective sampling of a metric of steps or tasks, or of the whole job or node, and the layer of its
    /// period, which is the shortest of all layers. There is a row at least as often as each layer has one:
    /// with windows, if these are multiples of the period, and with histograms of them if any layer has some.
    pub fn sampling_at(&self, level: Option<StepLevel>, name: &str) -> Option<(Sampling, Cause)> {
        let (baseline, registration) = match level {
            None => {
                (self.baseline.sampling(self.machine, name), self.registration.sampling(self.machine, name))
            }
            Some(level) => (self.step_layer(level).step_sampling(self.machine, name), None),
        };
        let baseline = baseline.map(|sampling| (sampling, Cause::Baseline));
        let registration = registration.map(|sampling| (sampling, Cause::Registration));
        let leases = self.leases_of(level, name);
        let leases = leases.map(|lease| (self.stretched(lease.sampling), Cause::Lease));
        let (mut fastest, mut row_period, mut has_histogram) = (None, Period::MAX, false);
        for (sampling, cause) in baseline.into_iter().chain(registration).chain(leases) {
            row_period = row_period.min(sampling.row_period());
            has_histogram |= sampling.has_histogram;
            if fastest.is_none_or(|(period, _)| sampling.period < period) {
                fastest = Some((sampling.period, cause));
            }
        }
        let (period, cause) = fastest?;
        // Call stacks are summaries already.
        let windowed = Sampling::windowed(period, row_period).ok().filter(|_| !name.starts_with(STACKS));
        Some((windowed.unwrap_or(Sampling::raw(period)).with_histogram(has_histogram), cause))
    }

    /// Effective sampling of a metric of steps or tasks, or of the whole job or node, with the reason, on
    /// hardware without a refresh interval.
    pub fn in_force(&self, level: Option<StepLevel>, name: &str) -> Option<InForce> {
        let (sampling, cause) = self.sampling_at(level, name)?;
        let layers = match level {
            None => vec![&self.baseline, &self.registration],
            Some(level) => vec![self.step_layer(level)],
        };
        let leases = self.leases.iter().filter(|lease| lease.level == level && !lease.is_ring);
        let input_of = self.input_of(&layers, leases, name);
        Some(by_lease(sampling, cause, self.leases_of(level, name), input_of))
    }

    /// As [`Plan::in_force`], of a metric in the ring.
    pub fn ring_in_force(&self, name: &str) -> Option<InForce> {
        let (period, cause) = self.ring_period(name)?;
        let leases = self.leases.iter().filter(|lease| lease.is_ring);
        let input_of = self.input_of(&[&self.ring], leases, name);
        Some(by_lease(Sampling::raw(period), cause, self.ring_leases_of(name), input_of))
    }

    fn input_of<'a>(
        &self,
        layers: &[&'a Layer],
        leases: impl Iterator<Item = &'a Lease>,
        name: &str,
    ) -> Vec<&'static str> {
        // No derived metric is one of devices, of which there may be many thousands.
        if name.starts_with(DEVICE_METRICS) {
            return Vec::new();
        }
        let rules = layers.iter().flat_map(|layer| layer.rules()).filter(|rule| rule.sampling.is_some());
        let selectors = rules.map(|rule| &rule.selector).chain(leases.map(|lease| &lease.selector));
        let named = selectors.filter(|selector| !selector.matches(name));
        let derived = named.flat_map(|selector| derived_from(self.machine, selector, name));
        let names: BTreeSet<&'static str> = derived.map(|derived| derived.name).collect();
        names.into_iter().collect()
    }

    /// Sampling of a lease that the governor has slowed; at most once a day.
    fn stretched(&self, sampling: Sampling) -> Sampling {
        let micros = sampling.period.as_micros().saturating_mul(1 << self.stretch.min(MAX_STRETCH));
        sampling.not_shorter(Period::from_micros(micros).unwrap_or(Period::MAX))
    }

    fn leases_of(&self, level: Option<StepLevel>, name: &str) -> impl Iterator<Item = &Lease> {
        let leases = self.leases.iter().filter(move |lease| lease.level == level && !lease.is_ring);
        leases.filter(move |lease| lease.selects(self.machine, name))
    }

    fn ring_leases_of(&self, name: &str) -> impl Iterator<Item = &Lease> {
        self.leases.iter().filter(move |lease| lease.is_ring && lease.selects(self.machine, name))
    }

    /// Metrics of one scope that are sampled of the whole job or node; whole families stand for their
    /// instances.
    pub fn definitions(&self, scope: Scope) -> Vec<Definition> {
        let rules = self.baseline.rules().iter().chain(self.registration.rules()).chain(self.ring.rules());
        let rules = rules.filter(|rule| rule.sampling.is_some());
        let mut definitions =
            self.select(rules.map(|rule| &rule.selector), None, |metric| metric.scope == scope);
        // Also those that are off: what a device has is known before somebody asks for it.
        let devices = catalogue::devices().filter(|_| scope == Scope::Node && self.baseline.has_devices());
        definitions.extend(devices.filter(|devices| !definitions.contains(devices)));
        definitions
    }

    fn select<'a>(
        &'a self,
        selectors: impl Iterator<Item = &'a Selector>,
        level: Option<StepLevel>,
        is_wanted: impl Fn(&Metric) -> bool,
    ) -> Vec<Definition> {
        let of_leases = self.leases.iter().filter(|lease| lease.level == level).map(|lease| &lease.selector);
        let chosen = selectors.chain(of_leases).flat_map(|selector| select(self.machine, selector));
        let chosen = chosen.filter(|definition| is_wanted(definition.metric));
        let by_name: BTreeMap<String, Definition> =
            chosen.map(|definition| (definition.name(), definition)).collect();
        let mut definitions: Vec<_> = by_name
            .into_iter()
            .filter(|(name, _)| {
                self.sampling_at(level, name).is_some()
                    || (level.is_none() && self.ring_sampling(name).is_some())
            })
            .map(|(_, definition)| definition)
            .collect();
        // A metric with a line of its own in the catalogue precedes the family of which it could be an
        // instance.
        definitions.sort_by_key(Definition::is_family);
        definitions
    }
}

/// Sampling in force. If its cause is a lease, it is the one with the shortest period; of equal ones the one
/// that ends last.
fn by_lease<'a>(
    sampling: Sampling,
    cause: Cause,
    leases: impl Iterator<Item = &'a Lease>,
    input_of: Vec<&'static str>,
) -> InForce {
    let lease = leases
        .min_by_key(|lease| (lease.sampling.period, std::cmp::Reverse(lease.until_us)))
        .filter(|_| cause == Cause::Lease);
    InForce {
        sampling,
        cause,
        by: lease.and_then(|lease| lease.principal.name()),
        until_us: lease.map(|lease| lease.until_us),
        requested: lease.map(|lease| lease.sampling).filter(|of| of.period != sampling.period),
        slow_sources: Vec::new(),
        input_of,
    }
}

impl Lease {
    /// The lease as it is requested, without regard to others.
    pub fn in_force(&self) -> InForce {
        InForce {
            sampling: self.sampling,
            cause: Cause::Lease,
            by: self.principal.name(),
            until_us: Some(self.until_us),
            requested: None,
            slow_sources: Vec::new(),
            input_of: Vec::new(),
        }
    }

    fn selects(&self, machine: Machine, name: &str) -> bool {
        match self.level {
            // These are many, each of one metric.
            _ if self.demanded_by.is_some() => self.selector.as_str() == name,
            None => selects(machine, &self.selector, name),
            Some(_) => selects_of_steps(machine, &self.selector, name),
        }
    }
}

pub fn choose_of_steps(machine: Machine, selector: &Selector) -> Vec<Definition> {
    let mut chosen = select(machine, selector);
    chosen.retain(|definition| {
        let is_of_job = definition.metric.scope == Scope::Job;
        is_of_job && is_of_steps(definition) && selects_of_steps(machine, selector, &definition.name())
    });
    chosen
}

fn is_of_steps(definition: &Definition) -> bool {
    definition.is_of_file() || definition.is_perf()
}

#[cfg(test)]
mod tests;
