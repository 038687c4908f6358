//! The client side of the control protocol: requests to this node's agent, and through the collector to all nodes of a job.

pub(crate) mod agent;
pub(crate) mod collector;
pub(crate) mod configuration;
pub(crate) mod job_choice;
pub(crate) mod munge;
pub(crate) mod target;
