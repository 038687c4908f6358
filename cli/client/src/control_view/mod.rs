//! Answers to control requests as text.

pub mod nodes;
pub mod plan;
