//! The types of expressions. Pure.

use std::fmt;

/// The maximum length of an expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 2000;

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Number,
    /// True or false.
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

/// A known value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A finite number.
    Number(f64),
    /// True or false.
    Truth(bool),
    Text(String),
}

/// A statistic of a metric over all series of a job that belong to no step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// The mean over all series.
    Mean,
    /// The smallest value, or rate of a counter.
    Lowest,
    /// The largest value, or rate of a counter.
    Highest,
    /// The increase of a counter, summed over all series.
    Growth,
    /// The increase of a counter per second, summed over all series.
    Rate,
}

impl Statistic {
    pub const ALL: [Self; 5] = [Self::Mean, Self::Lowest, Self::Highest, Self::Growth, Self::Rate];

    /// Returns the name of the function.
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

/// The names that an expression may use.
pub trait Scope {
    /// Returns the type of a name; none if it is not known.
    fn type_of(&self, name: &str) -> Option<Type>;
    /// Returns all names, for suggestions.
    fn names(&self) -> Vec<&str>;
}

/// The values of names.
pub trait Lookup {
    /// Returns the value of a name; none if it is unknown.
    fn value(&self, name: &str) -> Option<Value>;
    /// Returns a statistic of a metric; none if it is unknown.
    fn metric(&self, statistic: Statistic, metric: &str) -> Option<f64>;
}

/// The reason for which a text is not an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExpressionError {
    /// The position in the text, in bytes.
    pub position: usize,
    /// The reason.
    pub message: String,
}

/// An operator with two operands.
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

/// A function of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Min,
    Max,
    Ceil,
    Floor,
}

/// A node of the syntax tree. Its depth is bounded by the length of the text.
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

/// A parsed expression, whose types are checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    pub(super) root: Node,
    pub(super) result: Type,
    pub(super) names: Vec<String>,
}
