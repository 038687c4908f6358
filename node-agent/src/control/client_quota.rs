//! The quotas of clients: connections and streams at once, and CPU time in the long run. Requests of
//! administrators are not throttled; those of a user wait until that user's quota allows them, and delay no
//! other user.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use polymeter_service::token_bucket::TokenBucket;

use crate::clock;
use crate::mutex::lock;
use crate::principal::Principal;

#[derive(Debug, Clone, Copy)]
pub(super) struct QuotaLimits {
    per_user: usize,
    users: usize,
    /// Kept apart, so that no user can lock administrators out.
    administrators: usize,
}

/// Connections: the agent's descriptors are needed for the jobs.
pub(super) const CONNECTIONS: QuotaLimits = QuotaLimits { per_user: 16, users: 256, administrators: 64 };

/// Streams: each may have a megabyte of samples waiting.
pub(super) const WATCHERS: QuotaLimits = QuotaLimits { per_user: 4, users: 16, administrators: 8 };

/// CPU time for the requests of one user, in seconds: per second in the long run, and in a burst.
const CPU_S: (f64, f64) = (0.02, 0.5);

#[derive(Debug)]
struct User {
    permits: usize,
    cpu: TokenBucket,
}

impl Default for User {
    fn default() -> Self {
        Self { permits: 0, cpu: TokenBucket::new(CPU_S.0, CPU_S.1) }
    }
}

#[derive(Debug)]
pub(super) struct ClientQuota {
    limits: QuotaLimits,
    users: Mutex<BTreeMap<u32, User>>,
    administrators: Mutex<usize>,
}

/// Returns the permit when it is dropped.
#[derive(Debug)]
pub(super) struct QuotaPermit<'a> {
    quota: &'a ClientQuota,
    principal: Principal,
}

impl ClientQuota {
    pub(super) fn new(limits: QuotaLimits) -> Self {
        Self { limits, users: Mutex::default(), administrators: Mutex::default() }
    }

    /// Returns none if the principal's quota is used up.
    pub(super) fn acquire(&self, principal: Principal) -> Option<QuotaPermit<'_>> {
        if principal.administrator {
            let mut administrators = lock(&self.administrators);
            if *administrators >= self.limits.administrators {
                return None;
            }
            *administrators += 1;
        } else {
            let mut users = lock(&self.users);
            let all: usize = users.values().map(|user| user.permits).sum();
            let user = users.entry(principal.uid).or_default();
            if all >= self.limits.users || user.permits >= self.limits.per_user {
                return None;
            }
            user.permits += 1;
        }
        Some(QuotaPermit { quota: self, principal })
    }

    fn debt(&self, principal: Principal) -> Duration {
        let mut users = lock(&self.users);
        let user = users.get_mut(&principal.uid).filter(|_| !principal.administrator);
        Duration::from_nanos(user.map_or(0, |user| user.cpu.debt_ns(clock::monotonic_ns())))
    }

    fn charge(&self, principal: Principal, used_ns: u64) {
        if let Some(user) = lock(&self.users).get_mut(&principal.uid).filter(|_| !principal.administrator) {
            user.cpu.charge(Duration::from_nanos(used_ns).as_secs_f64(), clock::monotonic_ns());
        }
    }
}

impl QuotaPermit<'_> {
    pub(super) async fn throttle(&self) {
        // Skipped without a debt: the shortest sleep takes a millisecond.
        if let Some(debt) = Some(self.quota.debt(self.principal)).filter(|debt| !debt.is_zero()) {
            tokio::time::sleep(debt).await;
        }
    }

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
        if let Some(user) = users.get_mut(&self.principal.uid) {
            user.permits = user.permits.saturating_sub(1);
        }
        // A debt outlives the last connection, so that it cannot be avoided by reconnecting.
        users.retain(|_, user| user.permits > 0 || !user.cpu.is_full(now_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Principal = Principal { uid: 1000, administrator: false };
    const BOB: Principal = Principal { uid: 1001, administrator: false };
    const ROOT: Principal = Principal { uid: 0, administrator: true };

    #[test]
    fn one_user_cannot_use_up_the_permits_of_others() {
        let quota = ClientQuota::new(CONNECTIONS);
        let mut permits: Vec<_> = std::iter::from_fn(|| quota.acquire(ALICE)).take(1000).collect();
        assert_eq!(permits.len(), CONNECTIONS.per_user);
        assert!(quota.acquire(BOB).is_some());
        permits.pop();
        assert!(quota.acquire(ALICE).is_some());
        let others = (2000..).map(|uid| Principal { uid, administrator: false });
        permits.extend(others.map_while(|principal| quota.acquire(principal)).take(1000));
        assert_eq!(permits.len(), CONNECTIONS.users);
        assert!(quota.acquire(BOB).is_none());
        assert!(quota.acquire(ROOT).is_some());
    }

    #[test]
    fn a_debt_outlives_the_connection() {
        let quota = ClientQuota::new(CONNECTIONS);
        let permit = quota.acquire(ALICE);
        assert_eq!(quota.debt(ALICE), Duration::ZERO);
        quota.charge(ALICE, 2_000_000_000);
        assert!(quota.debt(ALICE) > Duration::from_secs(60));
        drop(permit);
        let _permit = quota.acquire(ALICE);
        assert!(quota.debt(ALICE) > Duration::from_secs(60));
        let _root = quota.acquire(ROOT);
        quota.charge(ROOT, 2_000_000_000);
        assert_eq!(quota.debt(ROOT), Duration::ZERO);
    }

    #[test]
    fn forgets_users_without_permits_and_debt() {
        let quota = ClientQuota::new(CONNECTIONS);
        drop(quota.acquire(ALICE));
        assert!(lock(&quota.users).is_empty());
    }
}
