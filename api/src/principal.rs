//! The authenticated identity of a requester.

/// The rights of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Reads only.
    Read,
    /// May also change the sampling of the own jobs.
    Control,
}

/// The user of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The numeric id.
    pub(crate) uid: u32,
    /// The rights.
    pub(crate) scope: Scope,
}
