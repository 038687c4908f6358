//! The other end of a connection, and the user of a request.

use std::net::IpAddr;
use std::sync::Arc;

pub(crate) use polymeter_proto::control::Scope;
use polymeter_store::reader::Access;
use tokio::sync::Notify;

/// Returns the access of a user to stored jobs. The lookup of groups may take long.
pub type AccessOf = dyn Fn(u32) -> Access + Send + Sync;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// A process of this user, by the kernel.
    Unix(u32),
    /// A machine.
    Tcp(IpAddr),
}

/// The client of a connection, for the requests on it.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) peer: Peer,
    /// Closes the connection.
    pub(crate) close: Arc<Notify>,
}

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
