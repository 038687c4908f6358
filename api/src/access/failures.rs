//! Failed authentications: their limit, by client and altogether.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use polymeter_service::clock;
use polymeter_service::token_bucket::TokenBucket;
use prometheus_client::metrics::counter::Counter;

use super::identity::Peer;
use crate::answer::Problem;
use crate::limits;

#[derive(Debug)]
pub(crate) struct Failures {
    state: Mutex<State>,
    count: Counter,
}

#[derive(Debug)]
struct State {
    all: TokenBucket,
    by_peer: HashMap<Peer, TokenBucket>,
}

const fn bucket(per_second: f64) -> TokenBucket {
    TokenBucket::new(per_second, per_second * limits::BURST_S)
}

impl Failures {
    /// `count` is increased with each failure.
    pub(crate) fn new(count: Counter) -> Self {
        let state = State { all: bucket(limits::FAILURES_PER_S), by_peer: HashMap::new() };
        Self { state: Mutex::new(state), count }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failure. Returns its problem, or another one if there are too many of them.
    pub(crate) fn failed(&self, peer: Peer, problem: Problem) -> Problem {
        self.count.inc();
        let now_ns = clock::monotonic_ns();
        let mut state = self.state();
        if state.by_peer.len() >= limits::FAILING_PEERS {
            state.by_peer.retain(|_, failures| !failures.is_full(now_ns));
            if state.by_peer.len() >= limits::FAILING_PEERS {
                state.by_peer.clear();
            }
        }
        let of_peer = state.by_peer.entry(peer).or_insert_with(|| bucket(limits::PEER_FAILURES_PER_S));
        of_peer.drain(1.0, now_ns);
        if state.all.try_take(1.0, now_ns) { problem } else { many() }
    }

    /// Tells whether the client has had few failures, so that its unknown tokens are looked up at once.
    pub(crate) fn are_few(&self, peer: Peer) -> bool {
        let now_ns = clock::monotonic_ns();
        self.state().by_peer.get(&peer).is_none_or(|failures| failures.tokens(now_ns) >= 1.0)
    }
}

fn many() -> Problem {
    let detail = "too many requests without valid authentication; try again later";
    Problem::too_many(detail, 1)
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    fn problem() -> Problem {
        Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", "x")
    }

    #[test]
    fn failures_are_limited() {
        let failures = Failures::new(Counter::default());
        let (one, other) = (Peer::Unix(1), Peer::Unix(2));
        assert!(failures.are_few(one));
        let statuses: Vec<u16> =
            (0..1000).map(|_| failures.failed(one, problem()).status().as_u16()).collect();
        assert_eq!((statuses.first(), statuses.contains(&429)), (Some(&401), true));
        assert!(!failures.are_few(one) && failures.are_few(other), "clients do not affect one another");
    }

    #[test]
    fn the_memory_for_clients_is_bounded() {
        let failures = Failures::new(Counter::default());
        for uid in 0..100_000 {
            failures.failed(Peer::Unix(uid), problem());
        }
        assert!(failures.state().by_peer.len() <= limits::FAILING_PEERS);
    }
}
