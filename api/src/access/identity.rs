//! Other end of a connection, and the user of a request.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

pub(crate) use polymeter_proto::control::Scope;
use polymeter_store::reader::Access;
use tokio::sync::Notify;

use crate::limits;

/// May take long: it looks up groups.
pub type AccessOf = dyn Fn(u32) -> Access + Send + Sync;

/// Users that are known to be administrators without a lookup: root, the user of this process, those of the
/// configuration, and those that were found later. Copies share them.
#[derive(Debug, Clone, Default)]
pub struct KnownAdministrators(Arc<RwLock<BTreeSet<u32>>>);

impl KnownAdministrators {
    pub fn new(users: impl Iterator<Item = u32>) -> Self {
        Self(Arc::new(RwLock::new(users.collect())))
    }

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// Process of this user, by the kernel.
    Unix(u32),
    Tcp(IpAddr),
}

/// Trust in a peer, which decides on its places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Has a bounded number of places.
    User,
    /// Has some places that neither users nor proxies have: root, the collector's user and the
    /// administrators.
    Administrator,
    /// Stands for many users.
    Proxy,
}

#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) peer: Peer,
    pub(crate) close: Arc<Notify>,
    pub(crate) activity: Activity,
}

impl Client {
    pub(crate) fn new(peer: Peer) -> Self {
        Self { peer, close: Arc::new(Notify::new()), activity: Activity::default() }
    }
}

/// Authenticated requests of a connection. Copies share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activity(Arc<Requests>);

#[derive(Debug, Default)]
struct Requests {
    running: AtomicUsize,
    served: AtomicBool,
}

/// Request in progress, until it is dropped.
#[derive(Debug)]
pub(crate) struct Busy(Activity);

impl Activity {
    pub(crate) fn begin(&self) -> Busy {
        self.0.served.store(true, Ordering::Relaxed);
        self.0.running.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.0.running.load(Ordering::Relaxed) == 0
    }

    /// Tells whether there was a request.
    pub(crate) fn has_served(&self) -> bool {
        self.0.served.load(Ordering::Relaxed)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Principal {
    pub(crate) uid: u32,
    pub(crate) scope: Scope,
}

impl Principal {
    pub(crate) const fn with_all_rights(uid: u32) -> Self {
        Self { uid, scope: Scope::Admin }
    }

    /// `of_user` returns the access of a user with all rights, and may take long.
    pub(crate) fn access(self, of_user: &AccessOf) -> Access {
        match self.scope {
            Scope::Read | Scope::Control => Access::owner(self.uid),
            Scope::ReadAll | Scope::Admin => of_user(self.uid),
        }
    }
}
