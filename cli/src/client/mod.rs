//! The client side of the control protocol: requests to this node's agent, and through the collector to all nodes of a job;
//! and reading through the collector.

pub(crate) mod agent;
pub(crate) mod collector;
pub(crate) mod completion;
pub(crate) mod configuration;
#[cfg(feature = "local")]
pub(crate) mod greeting;
pub(crate) mod job_choice;
pub(crate) mod level_choice;
pub(crate) mod munge;
#[cfg(feature = "local")]
pub(crate) mod read_source;
#[cfg(feature = "local")]
mod remote_reader;
mod stream;
pub(crate) mod target;
