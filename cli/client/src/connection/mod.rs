//! Client side of the control language: requests to this node's agent, and through the collector to all
//! nodes of a job.

pub mod agent;
pub mod collector;
pub mod configuration;
pub mod munge;
pub mod stream;
pub mod target;
