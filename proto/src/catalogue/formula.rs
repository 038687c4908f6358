//! Declaration of derived metrics: formulas over other metrics, as data.

use super::metric::Scope;
use crate::name::{MetricName, Selector};
use crate::series::Unit;

#[derive(Debug)]
pub struct Derived {
    /// A family's name ends in `*`, which stands for the name of a user's own metric.
    pub name: &'static str,
    pub unit: &'static str,
    pub scope: Scope,
    /// One sentence.
    pub help: &'static str,
    pub formulas: &'static [Formula],
}

#[derive(Debug)]
pub struct Formula {
    pub machine: Machine,
    pub inputs: &'static [Input],
    /// Expression in the language of the rules of advice. A name stands for the increase of its input in a
    /// time, `seconds` for the length of that time.
    pub expression: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Input {
    pub name: &'static str,
    pub quantity: Quantity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Increase of a counter, summed over its series.
    Metric(&'static str),
    /// Bytes of a counter of cache lines, which the kernel scales to bytes on some machines.
    Lines(&'static str),
    /// Energy of the job, in joules.
    Energy,
    /// Growth of the user's own metric that the family's `*` stands for.
    Pushed,
}

const LINE_BYTES: f64 = 64.0;

impl Quantity {
    /// Metric that is sampled for it; none for a quantity that needs no metric of its own.
    pub const fn metric(self) -> Option<&'static str> {
        match self {
            Self::Metric(name) | Self::Lines(name) => Some(name),
            Self::Energy | Self::Pushed => None,
        }
    }

    /// Factor from the increase of its metric, which is stored in `unit`, to the input.
    pub fn factor(self, unit: &str) -> f64 {
        let is_lines = matches!(self, Self::Lines(_)) && unit != Unit::Bytes.as_str();
        if is_lines { LINE_BYTES } else { 1.0 }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Machine {
    #[default]
    Any,
    Intel,
    Amd,
    /// Processors with the core Neoverse V2, such as NVIDIA Grace.
    NeoverseV2,
}

impl Machine {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Intel => "Intel",
            Self::Amd => "AMD",
            Self::NeoverseV2 => "Neoverse V2 (Grace)",
        }
    }

    pub fn includes(self, other: Self) -> bool {
        self == Self::Any || self == other
    }
}

impl Derived {
    pub fn formula(&self, machine: Machine) -> Option<&'static Formula> {
        self.formulas.iter().find(|formula| formula.machine.includes(machine))
    }

    /// Returns the text that a family's `*` stands for in `name`; an empty one for a plain metric with this
    /// name; none for another name.
    pub fn instance<'a>(&self, name: &'a str) -> Option<&'a str> {
        match self.name.strip_suffix('*') {
            None => (self.name == name).then_some(""),
            Some(prefix) => {
                name.strip_prefix(prefix).filter(|instance| MetricName::new((*instance).to_owned()).is_ok())
            }
        }
    }

    /// Returns true if a selector selects it. A glob must have at least the begin of the name, up to the last
    /// dot, so that `*` opens no counters that nobody named.
    pub fn is_selected(&self, selector: &Selector) -> bool {
        if selector.is_exact() {
            return self.instance(selector.as_str()).is_some();
        }
        let begin = self.name.rfind('.').map_or(self.name.len(), |dot| dot + 1);
        selector.literal().len() >= begin && selector.matches(self.name)
    }
}

impl Formula {
    pub fn input(&self, name: &str) -> Option<&'static Input> {
        self.inputs.iter().find(|input| input.name == name)
    }
}
