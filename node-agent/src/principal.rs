//! Principals: the requesters, and their rights.

use polymeter_proto::series::Identifier;

/// The user that makes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Principal {
    /// The numeric id.
    pub uid: u32,
    /// True for root, the agent's own user and the configured administrators: all requests are allowed, and
    /// no limit applies.
    pub administrator: bool,
}

impl Principal {
    /// True if the principal may see and change an object of `owner`.
    pub fn can_access(self, owner: Option<u32>) -> bool {
        self.administrator || owner == Some(self.uid)
    }

    /// Returns the name of the user in the data: `uid 1000`.
    pub fn name(self) -> Option<Identifier> {
        Identifier::try_from(format!("uid {}", self.uid)).ok()
    }
}
