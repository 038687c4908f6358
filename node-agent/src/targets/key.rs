//! The key of a target, the rights to it, and the time of an event.

use polymeter_proto::series::Identifier;

/// The key of a target: a job's id, or none for the node, which comes first.
pub(crate) type TargetKey = Option<Identifier>;

/// Returns the name of a target in messages.
pub(crate) fn describe(key: &TargetKey) -> String {
    key.as_ref().map_or_else(|| "the node".to_owned(), |job_id| format!("job {job_id}"))
}

/// The time of an event on both clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Now {
    /// Monotonic time, which measures durations.
    pub(crate) monotonic_ns: u64,
    /// Wall-clock time since the epoch, which dates rows.
    pub(crate) realtime_us: i64,
}

/// The right that a request needs to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// See its plan, its metrics and its samples.
    See,
    /// Change its sampling, or add to its data.
    Change,
}
