//! Values of the facts. Pure.

use std::collections::BTreeMap;

use super::catalogue::FACTS;
use crate::expression::{Lookup, Statistic, Type, Value};

/// Statistics of a metric over all series of a job that belong to no step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MetricFacts {
    pub mean: Option<f64>,
    /// Smallest value or rate.
    pub lowest: Option<f64>,
    /// Largest value or rate.
    pub highest: Option<f64>,
    /// Increase of a counter, summed over all series.
    pub growth: Option<f64>,
    /// Increase of a counter per second, summed over all series.
    pub rate: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    values: BTreeMap<&'static str, Value>,
    metrics: BTreeMap<String, MetricFacts>,
}

impl Facts {
    /// Sets a fact of [`FACTS`]; one that is not finite is unknown. Returns false if there is no such fact,
    /// or if its type is another.
    pub fn set(&mut self, name: &str, value: Option<Value>) -> bool {
        let Some(definition) = FACTS.iter().find(|definition| definition.name == name) else { return false };
        match value {
            Some(Value::Number(number)) if !number.is_finite() => drop(self.values.remove(definition.name)),
            Some(value) if Self::has_type(&value, definition.unit.value_type()) => {
                self.values.insert(definition.name, value);
            }
            Some(_) => return false,
            None => drop(self.values.remove(definition.name)),
        }
        true
    }

    const fn has_type(value: &Value, expected: Type) -> bool {
        matches!(
            (value, expected),
            (Value::Number(_), Type::Number) | (Value::Truth(_), Type::Truth) | (Value::Text(_), Type::Text)
        )
    }

    pub(super) fn set_number(&mut self, name: &'static str, value: Option<f64>) {
        self.set(name, value.map(Value::Number));
    }

    pub(super) fn set_text(&mut self, name: &'static str, value: Option<impl Into<String>>) {
        self.set(name, value.map(|value| Value::Text(value.into())));
    }

    pub fn set_metric(&mut self, metric: &str, facts: MetricFacts) {
        self.metrics.insert(metric.to_owned(), facts);
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        if let Some(Value::Number(number)) = self.values.get(name) { Some(*number) } else { None }
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        if let Some(Value::Text(text)) = self.values.get(name) { Some(text) } else { None }
    }

    pub fn known(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.values.iter().map(|(name, value)| (*name, value))
    }
}

impl Lookup for Facts {
    fn value(&self, name: &str) -> Option<Value> {
        self.values.get(name).cloned()
    }

    fn metric(&self, statistic: Statistic, metric: &str) -> Option<f64> {
        let facts = self.metrics.get(metric)?;
        match statistic {
            Statistic::Mean => facts.mean,
            Statistic::Lowest => facts.lowest,
            Statistic::Highest => facts.highest,
            Statistic::Growth => facts.growth,
            Statistic::Rate => facts.rate,
        }
    }
}

/// None if the divisor is 0.
pub(super) fn ratio(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.zip(other).filter(|(_, other)| *other != 0.0).map(|(one, other)| one / other)
}
