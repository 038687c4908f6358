//! Value of a syntax tree. Pure.

use std::cmp::Ordering;

use super::syntax::{Function, Lookup, Node, Operator, Value};

/// None if the value is unknown.
pub(super) fn evaluate(node: &Node, lookup: &dyn Lookup) -> Option<Value> {
    match node {
        Node::Constant(value) => Some(value.clone()),
        Node::Name(name) => lookup.value(name).filter(is_valid),
        Node::Metric(statistic, metric) => lookup.metric(*statistic, metric).and_then(finite),
        Node::Known(operand) => Some(Value::Truth(evaluate(operand, lookup).is_some())),
        Node::Not(operand) => truth(evaluate(operand, lookup)).map(|value| Value::Truth(!value)),
        Node::Negate(operand) => number(evaluate(operand, lookup)).and_then(|value| finite(-value)),
        Node::Call(function, operands) => {
            let numbers: Option<Vec<f64>> =
                operands.iter().map(|operand| number(evaluate(operand, lookup))).collect();
            let numbers = numbers?.into_iter();
            match function {
                Function::Min => numbers.reduce(f64::min),
                Function::Max => numbers.reduce(f64::max),
                // The quotient of two measured numbers may exceed a whole number by an error of rounding.
                Function::Ceil => numbers.last().map(|value| (value - 1e-9).ceil()),
                Function::Floor => numbers.last().map(|value| (value + 1e-9).floor()),
            }
            .and_then(finite)
        }
        Node::Binary(operator, one, other) => binary(*operator, one, other, lookup),
    }
}

fn binary(operator: Operator, one: &Node, other: &Node, lookup: &dyn Lookup) -> Option<Value> {
    let one = evaluate(one, lookup);
    let other = || evaluate(other, lookup);
    match operator {
        Operator::And => match (truth(one), truth(other())) {
            (Some(false), _) | (_, Some(false)) => Some(Value::Truth(false)),
            (one, other) => one.zip(other).map(|(one, other)| Value::Truth(one && other)),
        },
        Operator::Or => match (truth(one), truth(other())) {
            (Some(true), _) | (_, Some(true)) => Some(Value::Truth(true)),
            (one, other) => one.zip(other).map(|(one, other)| Value::Truth(one || other)),
        },
        Operator::Plus => calculate(one, other(), |one, other| one + other),
        Operator::Minus => calculate(one, other(), |one, other| one - other),
        Operator::Times => calculate(one, other(), |one, other| one * other),
        Operator::Divide => calculate(one, other(), |one, other| one / other),
        Operator::Less => compare(one, other(), Ordering::is_lt),
        Operator::LessOrEqual => compare(one, other(), Ordering::is_le),
        Operator::Greater => compare(one, other(), Ordering::is_gt),
        Operator::GreaterOrEqual => compare(one, other(), Ordering::is_ge),
        Operator::Equal => compare(one, other(), Ordering::is_eq),
        Operator::NotEqual => compare(one, other(), Ordering::is_ne),
    }
}

fn calculate(one: Option<Value>, other: Option<Value>, result: fn(f64, f64) -> f64) -> Option<Value> {
    finite(result(number(one)?, number(other)?))
}

fn compare(one: Option<Value>, other: Option<Value>, is: fn(Ordering) -> bool) -> Option<Value> {
    let ordering = match (one?, other?) {
        (Value::Number(one), Value::Number(other)) => one.partial_cmp(&other)?,
        (Value::Truth(one), Value::Truth(other)) => one.cmp(&other),
        (Value::Text(one), Value::Text(other)) => one.cmp(&other),
        _ => return None,
    };
    Some(Value::Truth(is(ordering)))
}

/// Infinity and NaN are unknown.
fn finite(value: f64) -> Option<Value> {
    value.is_finite().then_some(Value::Number(value))
}

fn is_valid(value: &Value) -> bool {
    !matches!(value, Value::Number(number) if !number.is_finite())
}

fn number(value: Option<Value>) -> Option<f64> {
    if let Some(Value::Number(number)) = value { Some(number) } else { None }
}

fn truth(value: Option<Value>) -> Option<bool> {
    if let Some(Value::Truth(truth)) = value { Some(truth) } else { None }
}
