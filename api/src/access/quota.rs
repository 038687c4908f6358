//! Use of the API by each principal: requests in progress, live streams, requests a second, bytes a
//! second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polymeter_service::clock;
use polymeter_service::token_bucket::TokenBucket;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

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
    /// Places of requests in progress.
    places: Arc<Semaphore>,
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
    /// None for a live stream.
    place: Option<OwnedSemaphorePermit>,
    /// Keeps the place of its connection.
    _busy: Busy,
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
            places: Arc::new(Semaphore::new(self.limits.user_requests)),
            streams: 0,
            requests: TokenBucket::new(requests, requests * limits::BURST_S),
            bytes: TokenBucket::new(bytes, bytes * limits::BURST_S),
        }
    }

    /// Takes a place for a request. Requests of one user beyond the limit wait, in their order. A refused
    /// request keeps its place for a moment: else a client that repeats it at once would take the CPU.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        uid: u32,
        connection: &Activity,
    ) -> Result<Permit, Problem> {
        let places = self.places(uid, clock::monotonic_ns());
        let Ok(Ok(place)) = timeout(limits::PLACE_TIMEOUT, places.acquire_owned()).await else {
            let (requests, seconds) = (self.limits.user_requests, limits::PLACE_TIMEOUT.as_secs());
            let detail =
                format!("this user had {requests} requests in progress for {seconds} s; try again later");
            return Err(Problem::too_many(detail, 1));
        };
        let began_ns = clock::monotonic_ns();
        if let Err(problem) = self.charge_request(uid, began_ns) {
            sleep(limits::REFUSAL_DELAY).await;
            return Err(problem);
        }
        let (quota, place) = (Arc::clone(self), Some(place));
        Ok(Permit { quota, uid, began_ns, place, _busy: connection.begin() })
    }

    fn places(&self, uid: u32, now_ns: u64) -> Arc<Semaphore> {
        let mut uses = self.uses();
        let users = &mut uses.by_user;
        if users.len() >= limits::PRINCIPALS && !users.contains_key(&uid) {
            users.retain(|_, of| {
                // Requests that wait or are in progress have the places, too.
                let is_used = Arc::strong_count(&of.places) > 1 || of.streams > 0;
                is_used || !of.requests.is_full(now_ns) || !of.bytes.is_full(now_ns)
            });
        }
        Arc::clone(&users.entry(uid).or_insert_with(|| self.unused()).places)
    }

    /// Counts a request of a user who has a place.
    fn charge_request(&self, uid: u32, now_ns: u64) -> Result<(), Problem> {
        let mut uses = self.uses();
        let Some(of) = uses.by_user.get_mut(&uid) else { return Ok(()) };
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
        Ok(())
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
        of.streams += 1;
        uses.streams += 1;
        drop(uses);
        self.place = None;
        Ok(self)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.place.is_some() {
            let elapsed_ns = clock::monotonic_ns().saturating_sub(self.began_ns);
            self.quota.metrics.duration.observe(Duration::from_nanos(elapsed_ns).as_secs_f64());
            return;
        }
        let mut uses = self.quota.uses();
        uses.streams = uses.streams.saturating_sub(1);
        if let Some(of) = uses.by_user.get_mut(&self.uid) {
            of.streams = of.streams.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn quota(limits: ApiLimits) -> Arc<Quota> {
        Arc::new(Quota::new(limits, KnownAdministrators::default(), ApiMetrics::default()))
    }

    async fn acquire(quota: &Arc<Quota>, uid: u32) -> Result<Permit, Problem> {
        quota.acquire(uid, &Activity::default()).await
    }

    fn status<T>(permit: Result<T, Problem>) -> Option<u16> {
        permit.err().map(|problem| problem.status().as_u16())
    }

    #[tokio::test]
    async fn requests_of_a_user_beyond_the_limit_wait_in_their_order() {
        let quota = quota(ApiLimits { user_requests: 2, ..ApiLimits::default() });
        let (first, second) = (acquire(&quota, 1).await.unwrap(), acquire(&quota, 1).await.unwrap());
        assert_eq!(status(acquire(&quota, 2).await), None, "another user");
        let mut third = Box::pin(acquire(&quota, 1));
        let mut fourth = Box::pin(acquire(&quota, 1));
        assert!((&mut third).now_or_never().is_none() && (&mut fourth).now_or_never().is_none());
        drop(first);
        let third = third.await.unwrap();
        assert!((&mut fourth).now_or_never().is_none());
        drop(second);
        assert_eq!(status(fourth.await), None);
        drop(third);
        let of = quota.uses().by_user.get(&1).map(|of| of.places.available_permits());
        assert_eq!(of, Some(2), "all places are free again");
    }

    #[tokio::test]
    async fn requests_that_wait_too_long_are_refused() {
        let quota = quota(ApiLimits { user_requests: 1, ..ApiLimits::default() });
        let _first = acquire(&quota, 1).await.unwrap();
        assert_eq!(status(acquire(&quota, 1).await), Some(429));
    }

    #[tokio::test]
    async fn requests_that_are_refused_keep_their_place_for_a_moment() {
        let quota =
            quota(ApiLimits { user_requests: 1, user_requests_per_second: 1, ..ApiLimits::default() });
        while acquire(&quota, 1).await.is_ok() {}
        let begin_ns = clock::monotonic_ns();
        let refused = futures_util::future::join_all((0..5).map(|_| acquire(&quota, 1))).await;
        assert!(refused.iter().filter(|refused| refused.is_err()).count() >= 4, "one a second is allowed");
        let delays = Duration::from_nanos(clock::monotonic_ns() - begin_ns);
        assert!(delays >= 4 * limits::REFUSAL_DELAY, "one after the other");
        assert_eq!(status(acquire(&quota, 2).await), None, "another user");
    }

    #[test]
    fn requests_a_second_are_limited_by_user() {
        let quota = quota(ApiLimits { user_requests_per_second: 1, ..ApiLimits::default() });
        let request = |uid, now_ns| {
            quota.places(uid, now_ns);
            status(quota.charge_request(uid, now_ns))
        };
        let refused = (0..20).filter(|_| request(1, SECOND_NS).is_some()).count();
        assert_eq!(refused, 10);
        assert_eq!(request(2, SECOND_NS), None);
        assert_eq!(request(1, 2 * SECOND_NS), None);
    }

    #[tokio::test]
    async fn a_user_who_read_too_much_waits() {
        let quota = quota(ApiLimits { user_bytes_per_second: 1000, ..ApiLimits::default() });
        let permit = acquire(&quota, 1).await.unwrap();
        permit.charge(30_000);
        assert_eq!(status(acquire(&quota, 1).await), Some(429));
        assert_eq!(status(acquire(&quota, 2).await), None);
        let later_ns = clock::monotonic_ns() + 21 * SECOND_NS;
        assert_eq!(status(quota.charge_request(1, later_ns)), None);
    }

    #[test]
    fn idle_principals_are_forgotten() {
        let quota = quota(ApiLimits::default());
        let kept = quota.places(0, 0);
        for uid in 1..100_000 {
            let now_ns = u64::from(uid) * SECOND_NS;
            quota.places(uid, now_ns);
            quota.charge_request(uid, now_ns).unwrap();
        }
        assert!(quota.uses().by_user.len() <= limits::PRINCIPALS);
        assert!(Arc::ptr_eq(&kept, &quota.places(0, 0)), "one with a request in progress is not");
    }

    #[tokio::test]
    async fn streams_are_limited_by_user_and_in_total_apart_from_requests() {
        let limits = ApiLimits { user_requests: 1, streams: 3, user_streams: 2, ..ApiLimits::default() };
        let administrators = KnownAdministrators::new([7].into_iter());
        let quota = Arc::new(Quota::new(limits, administrators, ApiMetrics::default()));
        let stream = async |uid| acquire(&quota, uid).await.and_then(Permit::into_stream);
        let held = (stream(1).await.unwrap(), stream(1).await.unwrap());
        assert_eq!(status(stream(1).await), Some(429));
        assert_eq!(status(acquire(&quota, 1).await), None, "requests are not affected");
        let other = stream(2).await.unwrap();
        assert_eq!((status(stream(2).await), quota.streams()), (Some(503), 3));
        for administrator in [0, 7] {
            let kept = stream(administrator).await.unwrap();
            assert_eq!((status(stream(2).await), quota.streams()), (Some(503), 4));
            drop(kept);
        }
        drop(held);
        assert_eq!((status(stream(2).await), quota.streams()), (None, 1));
        drop(other);
        assert_eq!(quota.streams(), 0);
    }
}
