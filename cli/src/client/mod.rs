//! Reading of stored data, from a store or through a collector, and the greeting of a collector.

pub(crate) mod dead_runs;
pub(crate) mod greeting;
pub(crate) mod job_completion;
pub(crate) mod read_source;
mod remote_reader;
pub(crate) mod store_choice;
pub(crate) mod stored_firings;
