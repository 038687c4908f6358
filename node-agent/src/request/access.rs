//! Denial of access to a job or the node.

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    #[error("unknown job, or not yours")]
    Unknown,
    /// Not visible to the principal. The answer must not differ from that for an unknown job: otherwise it
    /// reveals ids.
    #[error("unknown job, or not yours")]
    Hidden,
    /// Visible to the principal, who may not do this.
    #[error("permission denied: only the job's owner and administrators may do this")]
    Forbidden,
}
