//! The denial of access to a job or the node.

/// The reason why access to a job or the node is denied to a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No such job is tracked.
    #[error("unknown job, or not yours")]
    Unknown,
    /// The principal may not see the job. The answer must not differ from that for an unknown job: otherwise
    /// it reveals ids.
    #[error("unknown job, or not yours")]
    Hidden,
    /// The principal may see the job, or asks for the node, but may not do this.
    #[error("permission denied: only the job's owner and administrators may do this")]
    Forbidden,
}
