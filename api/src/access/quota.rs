//! Use of the API by each principal: requests in progress, live streams, requests a second, bytes a
//! second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polymeter_service::clock;
use polymeter_service::token_bucket::TokenBucket;

use super::identity::{Activity, Busy, KnownAdministrators};
use crate::answer::Problem;
use crate::limits::{self, ApiLimits};
use crate::own_metrics::ApiMetrics;

#[derive(Debug)]
pub(crate) struct Quota {
    limits: ApiLimits,
    administrators: KnownAdministrators,
    metrics: ApiMetrics,
    uses: Mutex<Uses>,
}

#[derive(Debug, Default)]
struct Uses {
    by_user: HashMap<u32, Use>,
    streams: usize,
}

#[derive(Debug)]
struct Use {
    running: usize,
    streams: usize,
    requests: TokenBucket,
    bytes: TokenBucket,
}

/// Permit for one request or live stream, returned on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    quota: Arc<Quota>,
    uid: u32,
    began_ns: u64,
    is_stream: bool,
    /// Keeps the place of its connection.
    busy: Option<Busy>,
}

impl Quota {
    pub(crate) fn new(limits: ApiLimits, administrators: KnownAdministrators, metrics: ApiMetrics) -> Self {
        Self { limits, administrators, metrics, uses: Mutex::default() }
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        // It is consistent at every point where a panic could occur.
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unused(&self) -> Use {
        let requests = f64::from(self.limits.user_requests_per_second);
        let bytes = polymeter_proto::units::to_f64(self.limits.user_bytes_per_second);
        Use {
            running: 0,
            streams: 0,
            requests: TokenBucket::new(requests, requests * limits::BURST_S),
            bytes: TokenBucket::new(bytes, bytes * limits::BURST_S),
        }
    }

    pub(crate) fn acquire(self: &Arc<Self>, uid: u32, connection: &Activity) -> Result<Permit, Problem> {
        let mut permit = self.acquire_at(uid, clock::monotonic_ns())?;
        permit.busy = Some(connection.begin());
        Ok(permit)
    }

    fn acquire_at(self: &Arc<Self>, uid: u32, now_ns: u64) -> Result<Permit, Problem> {
        let mut uses = self.uses();
        let users = &mut uses.by_user;
        if users.len() >= limits::PRINCIPALS && !users.contains_key(&uid) {
            users.retain(|_, of| {
                of.running > 0 || of.streams > 0 || !of.requests.is_full(now_ns) || !of.bytes.is_full(now_ns)
            });
        }
        let of = users.entry(uid).or_insert_with(|| self.unused());
        if of.running >= self.limits.user_requests {
            let detail =
                format!("this user already has {} requests in progress; try again later", of.running);
            return Err(Problem::too_many(detail, 1));
        }
        let debt_ns = of.bytes.debt_ns(now_ns);
        if debt_ns > 0 {
            let seconds = debt_ns / 1_000_000_000 + 1;
            let detail = format!("this user has read too much; try again in {seconds} s");
            return Err(Problem::too_many(detail, seconds));
        }
        if !of.requests.try_take(1.0, now_ns) {
            let per_second = self.limits.user_requests_per_second;
            let detail = format!("more than {per_second} requests a second; try again later");
            return Err(Problem::too_many(detail, 1));
        }
        of.running += 1;
        Ok(Permit { quota: Arc::clone(self), uid, began_ns: now_ns, is_stream: false, busy: None })
    }

    pub(crate) fn streams(&self) -> usize {
        self.uses().streams
    }
}

impl Permit {
    /// Records bytes that were sent. Returns the time until the user may read more.
    pub(crate) fn charge(&self, bytes: usize) -> Duration {
        self.quota.metrics.sent_bytes.inc_by(bytes as u64);
        let mut uses = self.quota.uses();
        let Some(of) = uses.by_user.get_mut(&self.uid) else { return Duration::ZERO };
        let now_ns = clock::monotonic_ns();
        of.bytes.charge(polymeter_proto::units::to_f64(bytes as u64), now_ns);
        Duration::from_nanos(of.bytes.debt_ns(now_ns))
    }

    /// Exchanges a request's permit for a live stream's.
    pub(crate) fn into_stream(mut self) -> Result<Self, Problem> {
        let mut uses = self.quota.uses();
        let (allowed, all) = (self.quota.limits, uses.streams);
        let Some(of) = uses.by_user.get_mut(&self.uid) else {
            return Err(Problem::too_many("this user is unknown; try again later", 1));
        };
        if of.streams >= allowed.user_streams {
            let detail = format!("this user already has {} live streams; close one of them", of.streams);
            return Err(Problem::too_many(detail, 30));
        }
        let reserved =
            if self.quota.administrators.contains(self.uid) { limits::RESERVED_STREAMS } else { 0 };
        if all >= allowed.streams + reserved {
            let detail = format!("there are already {all} live streams; try again later");
            return Err(Problem::busy(detail, 30));
        }
        of.running = of.running.saturating_sub(1);
        of.streams += 1;
        uses.streams += 1;
        drop(uses);
        self.is_stream = true;
        Ok(self)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut uses = self.quota.uses();
        if self.is_stream {
            uses.streams = uses.streams.saturating_sub(1);
        } else {
            let elapsed_ns = clock::monotonic_ns().saturating_sub(self.began_ns);
            self.quota.metrics.duration.observe(Duration::from_nanos(elapsed_ns).as_secs_f64());
        }
        if let Some(of) = uses.by_user.get_mut(&self.uid) {
            let places = if self.is_stream { &mut of.streams } else { &mut of.running };
            *places = places.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn status(permit: Result<Permit, Problem>) -> Option<u16> {
        permit.err().map(|problem| problem.status().as_u16())
    }

    #[test]
    fn requests_in_progress_are_limited_by_user() {
        let quota = Arc::new(Quota::new(
            ApiLimits { user_requests: 2, ..ApiLimits::default() },
            KnownAdministrators::default(),
            ApiMetrics::default(),
        ));
        let held: Vec<Permit> = (0..2).map(|_| quota.acquire_at(1, 0).unwrap()).collect();
        assert_eq!(status(quota.acquire_at(1, 0)), Some(429));
        assert_eq!(status(quota.acquire_at(2, 0)), None, "another user");
        drop(held);
        assert_eq!(status(quota.acquire_at(1, 0)), None);
    }

    #[test]
    fn requests_a_second_are_limited_by_user() {
        let quota = Arc::new(Quota::new(
            ApiLimits { user_requests_per_second: 1, ..ApiLimits::default() },
            KnownAdministrators::default(),
            ApiMetrics::default(),
        ));
        let refused = (0..20).filter(|_| quota.acquire_at(1, SECOND_NS).is_err()).count();
        assert_eq!(refused, 10);
        assert_eq!(status(quota.acquire_at(2, SECOND_NS)), None);
        assert_eq!(status(quota.acquire_at(1, 2 * SECOND_NS)), None);
    }

    #[test]
    fn a_user_who_read_too_much_waits() {
        let quota = Arc::new(Quota::new(
            ApiLimits { user_bytes_per_second: 1000, ..ApiLimits::default() },
            KnownAdministrators::default(),
            ApiMetrics::default(),
        ));
        let permit = quota.acquire(1, &Activity::default()).unwrap();
        permit.charge(30_000);
        assert_eq!(status(quota.acquire(1, &Activity::default())), Some(429));
        assert_eq!(status(quota.acquire(2, &Activity::default())), None);
        let later_ns = clock::monotonic_ns() + 21 * SECOND_NS;
        assert_eq!(status(quota.acquire_at(1, later_ns)), None);
    }

    #[test]
    fn idle_principals_are_forgotten() {
        let quota =
            Arc::new(Quota::new(ApiLimits::default(), KnownAdministrators::default(), ApiMetrics::default()));
        for uid in 0..100_000 {
            quota.acquire_at(uid, u64::from(uid) * SECOND_NS).unwrap();
        }
        assert!(quota.uses().by_user.len() <= limits::PRINCIPALS);
    }

    #[test]
    fn streams_are_limited_by_user_and_in_total_apart_from_requests() {
        let limits = ApiLimits { user_requests: 1, streams: 3, user_streams: 2, ..ApiLimits::default() };
        let administrators = KnownAdministrators::new([7].into_iter());
        let quota = Arc::new(Quota::new(limits, administrators, ApiMetrics::default()));
        let stream = |uid| quota.acquire_at(uid, 0).and_then(Permit::into_stream);
        let held: Vec<Permit> = (0..2).map(|_| stream(1).unwrap()).collect();
        assert_eq!(status(stream(1)), Some(429));
        assert_eq!(status(quota.acquire_at(1, 0)), None, "requests are not affected");
        let other = stream(2).unwrap();
        assert_eq!((status(stream(2)), quota.streams()), (Some(503), 3));
        for administrator in [0, 7] {
            let kept = stream(administrator).unwrap();
            assert_eq!((status(stream(2)), quota.streams()), (Some(503), 4));
            drop(kept);
        }
        drop(held);
        assert_eq!((status(stream(2)), quota.streams()), (None, 1));
        drop(other);
        assert_eq!(quota.streams(), 0);
    }
}
