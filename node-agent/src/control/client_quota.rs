//! How much each client may ask: connections and watchers at once, and CPU time in the long run. An administrator's
//! requests are not held up; anybody else's wait for their turn, and hold up nobody but herself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock;
use crate::principal::Principal;
use polymeter_service::token_bucket::TokenBucket;

/// How many connections there are.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuotaLimits {
    /// For one ordinary user at once.
    of_one: usize,
    /// For all ordinary users at once.
    of_users: usize,
    /// For administrators at once, kept apart so that no user can shut them out.
    of_administrators: usize,
}

/// Connections: the agent's descriptors are wanted for the jobs.
pub(super) const CONNECTIONS: QuotaLimits = QuotaLimits { of_one: 16, of_users: 256, of_administrators: 64 };

/// Those who watch: each may have a megabyte of samples waiting.
pub(super) const WATCHERS: QuotaLimits = QuotaLimits { of_one: 4, of_users: 16, of_administrators: 8 };

/// CPU time that the requests of one user may take: per second in the long run, and at once, in seconds.
const CPU_S: (f64, f64) = (0.02, 0.5);

/// One client at the socket.
#[derive(Debug)]
struct Client {
    connections: usize,
    cpu: TokenBucket,
}

impl Default for Client {
    fn default() -> Self {
        Self { connections: 0, cpu: TokenBucket::new(CPU_S.0, CPU_S.1) }
    }
}

/// Everybody who has a permit.
#[derive(Debug)]
pub(super) struct ClientQuota {
    limits: QuotaLimits,
    users: Mutex<BTreeMap<u32, Client>>,
    administrators: Mutex<usize>,
}

/// A client's permit; dropping it makes room.
#[derive(Debug)]
pub(super) struct QuotaPermit<'a> {
    quota: &'a ClientQuota,
    principal: Principal,
}

impl ClientQuota {
    /// Nobody yet, and so many connections.
    pub(super) fn new(limits: QuotaLimits) -> Self {
        Self { limits, users: Mutex::default(), administrators: Mutex::default() }
    }

    /// One more permit for a client, if there is one.
    pub(super) fn acquire(&self, principal: Principal) -> Option<QuotaPermit<'_>> {
        if principal.administrator {
            let mut administrators = lock(&self.administrators);
            if *administrators >= self.limits.of_administrators {
                return None;
            }
            *administrators += 1;
        } else {
            let mut users = lock(&self.users);
            let all: usize = users.values().map(|client| client.connections).sum();
            let client = users.entry(principal.uid).or_default();
            if all >= self.limits.of_users || client.connections >= self.limits.of_one {
                return None;
            }
            client.connections += 1;
        }
        Some(QuotaPermit { quota: self, principal })
    }

    /// How long this client has to wait before the next request is looked at.
    fn debt(&self, principal: Principal) -> Duration {
        let mut users = lock(&self.users);
        let client = users.get_mut(&principal.uid).filter(|_| !principal.administrator);
        Duration::from_nanos(client.map_or(0, |client| client.cpu.debt_ns(clock::monotonic_ns())))
    }

    /// A request of this client has taken so much CPU time, in nanoseconds.
    fn charge(&self, principal: Principal, used_ns: u64) {
        if let Some(client) = lock(&self.users).get_mut(&principal.uid).filter(|_| !principal.administrator) {
            client.cpu.charge(Duration::from_nanos(used_ns).as_secs_f64(), clock::monotonic_ns());
        }
    }
}

impl QuotaPermit<'_> {
    /// Waits until what this client asks may be looked at.
    pub(super) async fn throttle(&self) {
        // Not for nothing: the shortest sleep takes a millisecond.
        if let Some(debt) = Some(self.quota.debt(self.principal)).filter(|debt| !debt.is_zero()) {
            tokio::time::sleep(debt).await;
        }
    }

    /// What this client asked has taken so much CPU time, in nanoseconds.
    pub(super) fn charge(&self, used_ns: u64) {
        self.quota.charge(self.principal, used_ns);
    }
}

impl Drop for QuotaPermit<'_> {
    fn drop(&mut self) {
        if self.principal.administrator {
            let mut administrators = lock(&self.quota.administrators);
            *administrators = administrators.saturating_sub(1);
            return;
        }
        let now_ns = clock::monotonic_ns();
        let mut users = lock(&self.quota.users);
        if let Some(client) = users.get_mut(&self.principal.uid) {
            client.connections = client.connections.saturating_sub(1);
        }
        // Who owes something is remembered beyond her last connection, so that to hang up is no way out.
        users.retain(|_, client| client.connections > 0 || !client.cpu.is_full(now_ns));
    }
}

/// What a panic left behind is still the best that is known.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Principal = Principal { uid: 1000, administrator: false };
    const BOB: Principal = Principal { uid: 1001, administrator: false };
    const ROOT: Principal = Principal { uid: 0, administrator: true };

    #[test]
    fn nobody_shuts_others_out() {
        let quota = ClientQuota::new(CONNECTIONS);
        let mut connections: Vec<_> = std::iter::from_fn(|| quota.acquire(ALICE)).take(1000).collect();
        assert_eq!(connections.len(), CONNECTIONS.of_one);
        assert!(quota.acquire(BOB).is_some());
        connections.pop();
        assert!(quota.acquire(ALICE).is_some());
        let others = (2000..).map(|uid| Principal { uid, administrator: false });
        connections.extend(others.map_while(|principal| quota.acquire(principal)).take(1000));
        assert_eq!(connections.len(), CONNECTIONS.of_users);
        assert!(quota.acquire(BOB).is_none());
        assert!(quota.acquire(ROOT).is_some());
    }

    #[test]
    fn who_asks_too_much_waits_also_after_hanging_up() {
        let quota = ClientQuota::new(CONNECTIONS);
        let permit = quota.acquire(ALICE);
        assert_eq!(quota.debt(ALICE), Duration::ZERO);
        quota.charge(ALICE, 2_000_000_000);
        assert!(quota.debt(ALICE) > Duration::from_secs(60));
        drop(permit);
        let _place = quota.acquire(ALICE);
        assert!(quota.debt(ALICE) > Duration::from_secs(60));
        let _root = quota.acquire(ROOT);
        quota.charge(ROOT, 2_000_000_000);
        assert_eq!(quota.debt(ROOT), Duration::ZERO);
    }

    #[test]
    fn who_owes_nothing_is_forgotten() {
        let quota = ClientQuota::new(CONNECTIONS);
        drop(quota.acquire(ALICE));
        assert!(lock(&quota.users).is_empty());
    }
}
