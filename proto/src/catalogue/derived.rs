//! Derived metrics: formulas over other metrics. They are never sampled. Whoever asks for one samples its
//! inputs, and readers compute it from the increases of the inputs.

use super::lookup;
use super::metric::{Definition, Scope};
use super::tables;
use crate::name::Selector;

pub use super::formula::{Derived, Formula, Input, Machine, Quantity};

impl Derived {
    /// Returns the metrics that are sampled for it on a machine.
    pub fn sampled_inputs(&self, machine: Machine) -> impl Iterator<Item = Definition> {
        let inputs = self.formula(machine).into_iter().flat_map(|formula| formula.inputs);
        inputs.filter_map(Input::definition)
    }

    /// Returns the names of the metrics that any machine needs to compute it.
    pub fn inputs_of_all(&self) -> impl Iterator<Item = &'static str> {
        let inputs = self.formulas.iter().flat_map(|formula| formula.inputs);
        inputs.filter_map(|input| input.quantity.metric())
    }

    pub fn may_use(&self, name: &str) -> bool {
        self.inputs_of_all().any(|input| input == name)
    }

    /// Returns true if the metric `name` is sampled for it on a machine: an input, or a time of the groups of
    /// hardware events, which scales counts.
    pub fn has_input(&self, machine: Machine, name: &str) -> bool {
        if times_of(self.scope).contains(&name) {
            return self.sampled_inputs(machine).any(|input| input.is_of_hardware());
        }
        let mut inputs = self.formula(machine).into_iter().flat_map(|formula| formula.inputs);
        inputs.any(|input| input.quantity.metric() == Some(name))
    }
}

impl Input {
    /// Returns the metric that is sampled for it; none for a quantity that needs no metric of its own.
    pub fn definition(&self) -> Option<Definition> {
        self.quantity.metric().and_then(lookup::find)
    }
}

/// Returns the names of the times for which the groups of hardware events were enabled and counted.
pub const fn times_of(scope: Scope) -> [&'static str; 2] {
    match scope {
        Scope::Job | Scope::Agent => ["perf.time_enabled", "perf.time_running"],
        Scope::Node => ["node.pmu_time.enabled", "node.pmu_time.running"],
    }
}

pub fn all() -> impl Iterator<Item = &'static Derived> {
    tables::DERIVED.iter()
}

/// Finds a derived metric by its name, which may be an instance of a family.
pub fn find(name: &str) -> Option<&'static Derived> {
    all().find(|derived| derived.instance(name).is_some())
}

pub fn select(selector: &Selector) -> impl Iterator<Item = &'static Derived> {
    all().filter(move |derived| derived.is_selected(selector))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn selected(selector: &str) -> Vec<&'static str> {
        let selector = selector.parse().unwrap();
        select(&selector).map(|derived| derived.name).collect()
    }

    #[test]
    fn declarations_are_consistent() {
        let mut names = BTreeSet::new();
        for derived in all() {
            assert!(
                names.insert(derived.name) && super::super::find(derived.name).is_none(),
                "{}",
                derived.name
            );
            assert!(derived.help.ends_with('.'), "{}", derived.name);
            let machines: BTreeSet<_> =
                derived.formulas.iter().map(|formula| formula.machine.as_str()).collect();
            assert_eq!(machines.len(), derived.formulas.len(), "{}: one formula for a machine", derived.name);
            for formula in derived.formulas {
                let inputs: BTreeSet<_> = formula.inputs.iter().map(|input| input.name).collect();
                assert_eq!(inputs.len(), formula.inputs.len(), "{}", derived.name);
                for input in formula.inputs {
                    let is_known = input.definition().is_some() || input.quantity.metric().is_none();
                    assert!(is_known, "{}: {:?} is no metric", derived.name, input.quantity);
                }
            }
        }
    }

    #[test]
    fn globs_select_only_what_they_name() {
        assert_eq!(selected("perf.flops"), ["perf.flops"]);
        assert_eq!(selected("perf.*_ratio"), ["perf.cache_miss_ratio", "perf.branch_miss_ratio"]);
        assert!(selected("perf.*").contains(&"perf.ipc"));
        assert_eq!(selected("energy_per.iterations"), ["energy_per.*"]);
        for nothing in ["*", "p*", "node.*", "perf.flop", "energy_per.", "energy_per.a..b"] {
            if let Ok(selector) = nothing.parse::<Selector>() {
                assert_eq!(select(&selector).count(), 0, "{nothing}");
            }
        }
    }

    #[test]
    fn the_inputs_depend_on_the_machine() {
        for (name, machine, inputs) in [
            ("perf.flops", Machine::Intel, 8),
            ("perf.flops", Machine::Amd, 1),
            ("perf.flops", Machine::NeoverseV2, 2),
            ("perf.flops", Machine::Any, 0),
            ("perf.ipc", Machine::Any, 2),
            ("node.dram.bandwidth", Machine::Amd, 2),
            ("energy_per.iterations", Machine::Intel, 0),
        ] {
            let derived = find(name).unwrap();
            let sampled: Vec<_> = derived.sampled_inputs(machine).collect();
            assert_eq!(sampled.len(), inputs, "{name} on {machine:?}");
            assert!(sampled.iter().all(|input| input.metric.scope == derived.scope), "{name}");
            assert!(sampled.iter().all(|input| derived.has_input(machine, &input.name())), "{name}");
        }
        assert!(!find("perf.ipc").unwrap().has_input(Machine::Any, "cycles"));
    }
}
