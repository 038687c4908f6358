//! Who asks something of the agent, and what that person may.

use polymeter_proto::series::Identifier;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Principal {
    /// The numeric id.
    pub uid: u32,
    /// Whether root, the agent's own user, or one whom the configuration names: all may be asked, and no limit binds.
    pub administrator: bool,
}

impl Principal {
    /// Whether this is somebody who may look at and change what belongs to `owner`.
    pub fn can_access(self, owner: Option<u32>) -> bool {
        self.administrator || owner == Some(self.uid)
    }

    /// As whom the data name this person.
    pub fn name(self) -> Option<Identifier> {
        Identifier::try_from(format!("uid {}", self.uid)).ok()
    }
}
