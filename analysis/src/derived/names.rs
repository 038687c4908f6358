//! Names in the expressions of formulas, and the metrics that they stand for. Pure.

use polymeter_proto::catalogue::derived::{Formula, Input};

use crate::expression::{Scope, Type};

/// Name of the length of a time in expressions.
pub(super) const SECONDS: &str = "seconds";

/// A group with this share of the time counts as not shared with others.
pub(super) const WHOLE: f64 = 0.995;

pub(super) struct Names(pub(super) &'static Formula);

impl Scope for Names {
    fn type_of(&self, name: &str) -> Option<Type> {
        (name == SECONDS || self.0.input(name).is_some()).then_some(Type::Number)
    }

    fn names(&self) -> Vec<&str> {
        self.0.inputs.iter().map(|input| input.name).chain([SECONDS]).collect()
    }
}

/// Metric that an input is the increase of; none for other quantities.
pub(super) fn metric_of(input: &'static Input) -> Option<&'static str> {
    input.quantity.metric()
}
