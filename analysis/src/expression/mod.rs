//! Expressions over named facts: the conditions of rules, and the figures in their texts. Pure.
//!
//! Every expression has a value for any facts: a number, a truth value or a text, or it is unknown. There are
//! no loops and no side effects. An operation on an unknown value is unknown, except `false and unknown`,
//! `true or unknown` and `known()`. A division by zero is unknown.

mod evaluate;
mod lexer;
mod parser;
mod syntax;
#[cfg(test)]
mod tests;

pub use lexer::{InvalidQuantity, QUANTITY_UNITS, quantity};
use syntax::Node;
pub use syntax::{EXPRESSION_BYTES_MAX, Expression, ExpressionError, Lookup, Scope, Statistic, Type, Value};

impl Expression {
    /// Returns the first error and its position.
    pub fn parse(text: &str, scope: &dyn Scope) -> Result<Self, ExpressionError> {
        parser::parse(text, scope)
    }

    pub const fn result(&self) -> Type {
        self.result
    }

    /// Names that the expression uses, each once, in the order of the text.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Name, if the expression consists of a name only.
    pub fn as_name(&self) -> Option<&str> {
        if let Node::Name(name) = &self.root { Some(name) } else { None }
    }

    /// None if the value is unknown.
    pub fn evaluate(&self, lookup: &dyn Lookup) -> Option<Value> {
        evaluate::evaluate(&self.root, lookup)
    }

    /// Tells whether the expression is a condition that is known to be true.
    pub fn is_true(&self, lookup: &dyn Lookup) -> bool {
        self.evaluate(lookup) == Some(Value::Truth(true))
    }
}
