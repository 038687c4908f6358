//! Layers: the rules of one origin. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::catalogue::derived::{self, Derived, Machine};
use polymeter_proto::catalogue::{self, Definition};
use polymeter_proto::name::Selector;
use polymeter_proto::period::Sampling;
use polymeter_proto::series::DEVICE_METRICS;

const PERF: [&str; 2] = ["perf.", "perf_per_cpu."];

/// How names begin that are selected only by name, or by a glob that begins like them: call stacks tell far
/// more than a value does, and cost more; named events have no instances of their own; devices are slow.
const NAMED_ONLY: [&str; 4] = ["stacks.", "perf.event.", "node.pmu", "device."];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub selector: Selector,
    /// None switches the metrics off.
    pub sampling: Option<Sampling>,
}

/// Rules of one origin. For each metric the most specific rule applies: its name before a glob, a glob with
/// more letters before one with fewer, and of equal ones the last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer {
    rules: Vec<Rule>,
    /// Sampling of the metrics of devices outside the nodes, by name. A search among rules would take seconds
    /// for thousands of them.
    devices: Arc<BTreeMap<String, Option<Sampling>>>,
}

impl Layer {
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules, devices: Arc::default() }
    }

    /// Replaces the sampling of the metrics of devices, none for those that are off.
    #[must_use]
    pub fn with_devices(self, devices: impl Iterator<Item = (String, Option<Sampling>)>) -> Self {
        Self { devices: Arc::new(devices.collect()), ..self }
    }

    pub fn has_devices(&self) -> bool {
        !self.devices.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Sampling of the metric `name` in this layer on a machine; none if it is off or not mentioned.
    pub fn sampling(&self, machine: Machine, name: &str) -> Option<Sampling> {
        if let Some(sampling) = self.devices.get(name) {
            return *sampling;
        }
        self.sampling_where(|selector| selects(machine, selector, name))
    }

    /// Sampling of the metric `name` in this layer, if it is one of steps or tasks.
    pub(super) fn step_sampling(&self, machine: Machine, name: &str) -> Option<Sampling> {
        self.sampling_where(|selector| selects_of_steps(machine, selector, name))
    }

    fn sampling_where(&self, is_selected: impl Fn(&Selector) -> bool) -> Option<Sampling> {
        let fitting = self.rules.iter().filter(|rule| is_selected(&rule.selector));
        fitting.max_by_key(|rule| specificity(&rule.selector)).and_then(|rule| rule.sampling)
    }
}

/// True if a selector selects the metric `name` itself, or one that is derived from it on a machine.
pub(crate) fn selects(machine: Machine, selector: &Selector, name: &str) -> bool {
    selects_itself(selector, name) || is_input(machine, selector, name)
}

fn selects_itself(selector: &Selector, name: &str) -> bool {
    let begin = NAMED_ONLY.iter().find(|begin| name.starts_with(**begin));
    selector.matches(name) && begin.is_none_or(|begin| selector.as_str().starts_with(begin))
}

pub(super) fn selects_of_steps(machine: Machine, selector: &Selector, name: &str) -> bool {
    let is_selected = selector.matches(name) || is_input(machine, selector, name);
    is_selected && (!is_of_perf(name) || names_perf(selector))
}

fn is_input(machine: Machine, selector: &Selector, name: &str) -> bool {
    derived_from(machine, selector, name).next().is_some()
}

/// Derived metrics that a selector selects and that have the metric `name` as an input.
pub(super) fn derived_from(
    machine: Machine,
    selector: &Selector,
    name: &str,
) -> impl Iterator<Item = &'static Derived> {
    derived::select(selector).filter(move |derived| derived.has_input(machine, name))
}

/// Metrics that a selector selects on a machine: for a derived one its inputs.
pub(crate) fn select(machine: Machine, selector: &Selector) -> Vec<Definition> {
    let mut selected = catalogue::select(selector);
    for derived in derived::select(selector) {
        for input in derived.sampled_inputs(machine) {
            if !selected.contains(&input) {
                selected.push(input);
            }
        }
    }
    selected
}

/// True for a selector of metrics of devices outside the nodes.
pub(crate) fn is_of_devices(selector: &Selector) -> bool {
    selector.as_str().starts_with(DEVICE_METRICS)
}

/// True for the name of a hardware event, whose counters users may release.
pub(crate) fn is_of_hardware(name: &str) -> bool {
    catalogue::find(name).is_some_and(|definition| definition.is_of_hardware())
}

/// True if a selector selects nothing but perf events. Only such a one selects those of steps and tasks: each
/// takes descriptors on every CPU for every step.
pub fn names_perf(selector: &Selector) -> bool {
    is_of_perf(selector.as_str())
}

fn is_of_perf(name: &str) -> bool {
    PERF.iter().any(|begin| name.starts_with(begin))
}

fn specificity(selector: &Selector) -> (bool, usize) {
    let letters = selector.as_str().bytes().filter(|byte| !matches!(byte, b'*' | b'?')).count();
    (selector.is_exact(), letters)
}
