//! Targets: what is tracked, which is the node and the jobs on it.

pub(crate) mod ids;
