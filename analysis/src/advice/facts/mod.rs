//! Facts about a job that the conditions of rules use. Pure.

mod balance;
mod catalogue;
mod compute;
mod cores;
mod course;
mod gpus;
mod stacks;
#[cfg(test)]
mod tests;
mod values;

pub use catalogue::{FACTS, FactDefinition, FactUnit};
pub(crate) use cores::Cores;
pub use values::{Facts, MetricFacts};

use crate::expression::{Scope, Type};
use crate::model::Report;

impl Facts {
    pub fn of(report: &Report) -> Self {
        compute::facts(report)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct FactScope;

impl Scope for FactScope {
    fn type_of(&self, name: &str) -> Option<Type> {
        definition(name).map(|definition| definition.unit.value_type())
    }

    fn names(&self) -> Vec<&str> {
        FACTS.iter().map(|definition| definition.name).collect()
    }
}

pub fn definition(name: &str) -> Option<&'static FactDefinition> {
    FACTS.iter().find(|definition| definition.name == name)
}
