//! Answers to control requests as text.

mod keeps;
pub mod nodes;
pub mod plan;

pub(crate) use self::keeps::keeps_text;
