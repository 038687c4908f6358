//! The authenticated identity of a requester.

pub(crate) use polymeter_proto::control::Scope;
use polymeter_store::reader::Access;

use crate::access::AccessOf;

/// The user of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The numeric id.
    pub(crate) uid: u32,
    /// The rights.
    pub(crate) scope: Scope,
}

impl Principal {
    /// Returns a user with all rights that the user has.
    pub(crate) const fn with_all_rights(uid: u32) -> Self {
        Self { uid, scope: Scope::Admin }
    }

    /// Returns the access to stored jobs. `of_user` returns that of a user with all rights, and may take
    /// long.
    pub(crate) fn access(self, of_user: &AccessOf) -> Access {
        match self.scope {
            Scope::Read | Scope::Control => Access::Owner(self.uid),
            Scope::Admin => of_user(self.uid),
        }
    }
}
