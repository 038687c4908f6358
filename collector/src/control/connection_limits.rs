//! Limits of connections to one listener, in total and per user.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::process::geteuid;

use crate::limits;

/// Delay after an accept that failed for lack of descriptors.
const NO_DESCRIPTORS: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct ConnectionLimits {
    all: Arc<()>,
    users: HashMap<u32, Weak<()>>,
}

/// Permit for one connection, returned on drop.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    _all: Arc<()>,
    _user: Arc<()>,
}

impl ConnectionLimits {
    /// None if there are too many connections. Those of other users keep out neither root nor the collector's
    /// own user.
    pub(super) fn acquire(&mut self, uid: u32) -> Option<ConnectionPermit> {
        let is_root = uid == 0 || uid == geteuid().as_raw();
        if !is_root && Arc::strong_count(&self.all) > limits::CONTROL_CONNECTIONS {
            return None;
        }
        self.users.retain(|_, user| user.strong_count() > 0);
        let user = self.users.get(&uid).and_then(Weak::upgrade).unwrap_or_default();
        // One reference is `user` itself.
        if Arc::strong_count(&user) > limits::CONTROL_PER_USER {
            return None;
        }
        self.users.insert(uid, Arc::downgrade(&user));
        Some(ConnectionPermit { _all: Arc::clone(&self.all), _user: user })
    }
}

/// Waits for a short time after a failed accept, and returns none.
pub(super) async fn accept<T>(connection: io::Result<T>) -> Option<T> {
    if connection.is_err() {
        tokio::time::sleep(NO_DESCRIPTORS).await;
    }
    connection.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_use_up_the_connections_of_others() {
        let mut limits_by_user = ConnectionLimits::default();
        let permits: Vec<_> = (0..100).filter_map(|_| limits_by_user.acquire(1000)).collect();
        assert_eq!(permits.len(), limits::CONTROL_PER_USER);
        assert!(limits_by_user.acquire(1001).is_some());
        drop(permits);
        assert!(limits_by_user.acquire(1000).is_some());
        let users = (1..1000).map(|number| 100_000 + number);
        let many: Vec<_> = users.filter_map(|uid| limits_by_user.acquire(uid)).collect();
        assert_eq!(many.len(), limits::CONTROL_CONNECTIONS);
        assert!(limits_by_user.acquire(200_000).is_none());
        for own in [0, geteuid().as_raw()] {
            assert!(limits_by_user.acquire(own).is_some());
        }
        drop(many);
        assert!(limits_by_user.acquire(7).is_some());
    }
}
