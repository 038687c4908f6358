//! Jobs: where they are found, and which sources they have.

pub mod discovery;
pub mod ends;
pub mod hierarchy;
pub mod ids;
pub mod lookout;
pub mod parts;
pub mod pattern;
pub(crate) mod share;
