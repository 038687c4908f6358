//! Key of a target, the rights to it, and the time of an event.

use polymeter_proto::series::Identifier;

/// A job's id, or none for the node, which comes first.
pub(crate) type TargetKey = Option<Identifier>;

pub(crate) fn describe(key: &TargetKey) -> String {
    key.as_ref().map_or_else(|| "the node".to_owned(), |job_id| format!("job {job_id}"))
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Now {
    pub(crate) monotonic_ns: u64,
    pub(crate) realtime_us: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// See its plan, its metrics and its samples.
    See,
    /// Change its sampling, or add to its data.
    Change,
}
