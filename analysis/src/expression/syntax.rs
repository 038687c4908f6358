//! Types of expressions. Pure.

use std::fmt;

pub const EXPRESSION_BYTES_MAX: usize = 2000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Number,
    Truth,
    Text,
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number => "a number",
            Self::Truth => "a condition",
            Self::Text => "a text",
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Finite.
    Number(f64),
    Truth(bool),
    Text(String),
}

/// Statistic of a metric over all series of a job that belong to no step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    Mean,
    /// Smallest value, or rate of a counter.
    Lowest,
    /// Largest value, or rate of a counter.
    Highest,
    /// Increase of a counter, summed over all series.
    Growth,
    /// Increase of a counter per second, summed over all series.
    Rate,
}

impl Statistic {
    pub const ALL: [Self; 5] = [Self::Mean, Self::Lowest, Self::Highest, Self::Growth, Self::Rate];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Lowest => "lowest",
            Self::Highest => "highest",
            Self::Growth => "growth",
            Self::Rate => "rate",
        }
    }
}

pub trait Scope {
    /// None if the name is not known.
    fn type_of(&self, name: &str) -> Option<Type>;
    /// Names for suggestions.
    fn names(&self) -> Vec<&str>;
}

pub trait Lookup {
    /// None if the value is unknown.
    fn value(&self, name: &str) -> Option<Value>;
    /// None if the statistic is unknown.
    fn metric(&self, statistic: Statistic, metric: &str) -> Option<f64>;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExpressionError {
    /// Offset in the text, in bytes.
    pub position: usize,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    Plus,
    Minus,
    Times,
    Divide,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Min,
    Max,
    Ceil,
    Floor,
}

/// Node of the syntax tree. Its depth is bounded by the length of the text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Constant(Value),
    Name(String),
    Metric(Statistic, String),
    Known(Box<Node>),
    Not(Box<Node>),
    Negate(Box<Node>),
    Call(Function, Vec<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
}

/// Parsed, with checked types.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    pub(super) root: Node,
    pub(super) result: Type,
    pub(super) names: Vec<String>,
}
