//! Life cycle: when jobs begin and end.

pub(crate) mod discovery;
pub(crate) mod exit_events;
pub(crate) mod exit_watcher;
