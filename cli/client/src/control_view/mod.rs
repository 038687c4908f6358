//! Answers to control requests as text.

pub(crate) mod nodes;
pub mod plan;
