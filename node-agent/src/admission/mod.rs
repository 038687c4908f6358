//! Admission: what is sampled, and at what price.

pub(crate) mod cost;
pub(crate) mod governor;
pub(crate) mod share;
