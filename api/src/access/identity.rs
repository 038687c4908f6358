//! The other end of a connection, and the user of a request.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

pub(crate) use polymeter_proto::control::Scope;
use polymeter_store::reader::Access;
use tokio::sync::Notify;

use crate::limits;

/// Returns the access of a user to stored jobs. The lookup of groups may take long.
pub type AccessOf = dyn Fn(u32) -> Access + Send + Sync;

/// The users that are known to be administrators without a lookup: root, the user of this process, those of
/// the configuration, and those that were found later. Copies share them.
#[derive(Debug, Clone, Default)]
pub struct KnownAdministrators(Arc<RwLock<BTreeSet<u32>>>);

impl KnownAdministrators {
    /// Returns the administrators of the configuration.
    pub fn new(users: impl Iterator<Item = u32>) -> Self {
        Self(Arc::new(RwLock::new(users.collect())))
    }

    /// Adds a user that was found to be one.
    pub fn add(&self, uid: u32) {
        if !self.contains(uid) {
            let mut users = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if users.len() < limits::PRINCIPALS {
                users.insert(uid);
            }
        }
    }

    pub(crate) fn contains(&self, uid: u32) -> bool {
        let is_own = uid == 0 || uid == rustix::process::geteuid().as_raw();
        is_own || self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&uid)
    }
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// A process of this user, by the kernel.
    Unix(u32),
    /// A machine.
    Tcp(IpAddr),
}

/// The trust in a peer, which decides on its places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// It has a bounded number of places.
    User,
    /// It has some that neither users nor proxies have: root, the collector's user and the administrators.
    Administrator,
    /// It stands for many users.
    Proxy,
}

/// The client of a connection, for the requests on it.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) peer: Peer,
    /// Closes the connection.
    pub(crate) close: Arc<Notify>,
    pub(crate) activity: Activity,
}

impl Client {
    pub(crate) fn new(peer: Peer) -> Self {
        Self { peer, close: Arc::new(Notify::new()), activity: Activity::default() }
    }
}

/// The authenticated requests of a connection. Copies share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activity(Arc<Requests>);

#[derive(Debug, Default)]
struct Requests {
    running: AtomicUsize,
    served: AtomicBool,
}

/// A request in progress, until it is dropped.
#[derive(Debug)]
pub(crate) struct Busy(Activity);

impl Activity {
    /// Records a request.
    pub(crate) fn begin(&self) -> Busy {
        self.0.served.store(true, Ordering::Relaxed);
        self.0.running.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// Returns true if no request is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.running.load(Ordering::Relaxed) == 0
    }

    /// Returns true if there was a request.
    pub(crate) fn has_served(&self) -> bool {
        self.0.served.load(Ordering::Relaxed)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.running.fetch_sub(1, Ordering::Relaxed);
    }
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
            Scope::Read | Scope::Control => Access::owner(self.uid),
            Scope::ReadAll | Scope::Admin => of_user(self.uid),
        }
    }
}
