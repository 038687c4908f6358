//! Places of connections: their number is bounded, and nobody keeps others out.
//!
//! Where no place is free, a new connection takes that of another one, in this order:
//!
//! 1. one without a request in progress, of the peer that has the most connections: one that never sent a
//!    complete request before others, then the oldest;
//! 2. the oldest one of a peer that has more connections than the new one's.
//!
//! Some places are for administrators and trusted proxies alone, and some of these for administrators alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;

use crate::access::{Client, Peer, Trust};
use crate::answer::Problem;
use crate::limits;

/// Places, and the connections on them in the order in which they were opened.
#[derive(Debug)]
pub(super) struct Places {
    connections: Mutex<Connections>,
    /// Connections that gave their place to others.
    displaced: Counter,
}

#[derive(Debug, Default)]
struct Connections {
    next: u64,
    open: BTreeMap<u64, (Client, Trust)>,
}

#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.connections().open.remove(&self.number);
    }
}

impl Places {
    pub(super) fn new(displaced: Counter) -> Arc<Self> {
        Arc::new(Self { connections: Mutex::default(), displaced })
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        // It is consistent at every point where a panic could occur.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a new connection, for which another connection may be closed.
    pub(super) fn take(self: &Arc<Self>, client: &Client, trust: Trust) -> Result<Place, Problem> {
        let mut connections = self.connections();
        let of_peer = connections.number_of(client.peer);
        let is_one_user = matches!(client.peer, Peer::Unix(_)) && trust != Trust::Proxy;
        if is_one_user && of_peer >= limits::CONNECTIONS_PER_USER {
            return Err(Problem::busy(
                format!(
                    "this user already has {of_peer} connections; close some of them, or try again later"
                ),
                1,
            ));
        }
        let limit = match trust {
            Trust::User => limits::CONNECTIONS - limits::RESERVED_CONNECTIONS,
            Trust::Proxy => limits::CONNECTIONS - limits::ADMINISTRATORS_CONNECTIONS,
            Trust::Administrator => limits::CONNECTIONS,
        };
        if connections.open.len() >= limit {
            let Some(victim) = connections.victim(of_peer) else {
                return Err(Problem::busy("all connections are in use; try again later", 1));
            };
            if let Some((displaced, _)) = connections.open.remove(&victim) {
                displaced.close.notify_one();
                self.displaced.inc();
            }
        }
        let number = connections.next;
        connections.next += 1;
        connections.open.insert(number, (client.clone(), trust));
        Ok(Place { places: Arc::clone(self), number })
    }
}

impl Connections {
    fn number_of(&self, peer: Peer) -> usize {
        self.open.values().filter(|(client, _)| client.peer == peer).count()
    }

    /// Returns the connection that gives its place to a peer that has `of_peer`; none if all keep theirs.
    fn victim(&self, of_peer: usize) -> Option<u64> {
        let mut by_peer: HashMap<Peer, usize> = HashMap::new();
        for (client, _) in self.open.values() {
            *by_peer.entry(client.peer).or_default() += 1;
        }
        let number_of = |client: &Client| by_peer.get(&client.peer).copied().unwrap_or(0);
        let idle = self.open.iter().filter(|(_, (client, _))| client.activity.is_idle());
        let idle = idle.min_by_key(|(number, (client, trust))| {
            let is_proxy = *trust == Trust::Proxy;
            (is_proxy, Reverse(number_of(client)), client.activity.has_served(), **number)
        });
        idle.or_else(|| {
            let others = self.open.iter().filter(|(_, (client, trust))| {
                *trust == Trust::User && number_of(client) > of_peer.saturating_add(1)
            });
            others.min_by_key(|(number, (client, _))| (Reverse(number_of(client)), **number))
        })
        .map(|(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS_MAX: usize = limits::CONNECTIONS - limits::RESERVED_CONNECTIONS;

    /// Takes places for a user of the Unix socket, and returns those that were granted.
    fn take(places: &Arc<Places>, uid: u32, number: usize, is_busy: bool) -> Vec<(Client, Place)> {
        let mut taken = Vec::new();
        for _ in 0..number {
            let client = Client::new(Peer::Unix(uid));
            let trust = if uid == 0 { Trust::Administrator } else { Trust::User };
            let Ok(place) = places.take(&client, trust) else { continue };
            if is_busy {
                // It lasts as long as the client.
                std::mem::forget(client.activity.begin());
            }
            taken.push((client, place));
        }
        taken
    }

    fn is_open(places: &Arc<Places>, taken: &(Client, Place)) -> bool {
        places.connections().open.contains_key(&taken.1.number)
    }

    fn open(places: &Arc<Places>, taken: &[(Client, Place)]) -> usize {
        taken.iter().filter(|taken| is_open(places, taken)).count()
    }

    #[test]
    fn many_users_with_idle_connections_keep_nobody_out() {
        let places = Places::new(Counter::default());
        let held: Vec<_> = (1..=100).map(|uid| take(&places, uid, 40, false)).collect();
        assert!(held.iter().all(|of_user| of_user.len() >= limits::CONNECTIONS_PER_USER));
        assert_eq!(places.connections().open.len(), USERS_MAX);
        for uid in [500, 0] {
            let mine = take(&places, uid, 3, false);
            assert_eq!(open(&places, &mine), 3, "user {uid}");
            // Further connections of the others do not push them out.
            let _more = take(&places, 600, 40, false);
            assert_eq!(open(&places, &mine), 3, "user {uid}");
        }
    }

    #[test]
    fn a_connection_without_a_request_gives_way_before_one_that_was_used() {
        let places = Places::new(Counter::default());
        let address = || Client::new(Peer::Tcp("127.0.0.1".parse().unwrap()));
        let used = address();
        used.activity.begin();
        let used_place = places.take(&used, Trust::User).unwrap();
        let silent: Vec<Place> =
            (0..2 * USERS_MAX).map(|_| places.take(&address(), Trust::User).unwrap()).collect();
        let connections = places.connections();
        assert!(connections.open.contains_key(&used_place.number));
        let newest = silent.last().unwrap().number;
        assert!(connections.open.contains_key(&newest));
        assert!(!connections.open.contains_key(&silent[0].number), "the oldest one is closed");
        drop(connections);
        assert_eq!(places.displaced.get(), (USERS_MAX + 1) as u64);
    }

    #[test]
    fn busy_connections_give_way_to_those_with_fewer() {
        let places = Places::new(Counter::default());
        let held: Vec<_> = (1..=31).map(|uid| take(&places, uid, 32, true)).collect();
        assert_eq!(held.iter().map(Vec::len).sum::<usize>(), USERS_MAX);
        let mine = take(&places, 500, 20, true);
        assert_eq!(open(&places, &mine), 20);
        assert_eq!(open(&places, &take(&places, 1, 5, true)), 0, "it has as many as others");
        assert_eq!(open(&places, &take(&places, 0, 32, true)), 32, "root has places of its own");
        assert_eq!(open(&places, &mine), 20);
    }

    #[test]
    fn a_proxy_leaves_places_to_administrators() {
        let places = Places::new(Counter::default());
        let mut of_proxy = Vec::new();
        for _ in 0..2 * limits::CONNECTIONS {
            let client = Client::new(Peer::Tcp("10.0.0.1".parse().unwrap()));
            std::mem::forget(client.activity.begin());
            if let Ok(place) = places.take(&client, Trust::Proxy) {
                of_proxy.push((client, place));
            }
        }
        assert_eq!(of_proxy.len(), limits::CONNECTIONS - limits::ADMINISTRATORS_CONNECTIONS);
        assert_eq!(take(&places, 500, 1, true).len(), 0);
        let mine = take(&places, 0, limits::ADMINISTRATORS_CONNECTIONS, true);
        assert_eq!(
            (mine.len(), open(&places, &of_proxy)),
            (limits::ADMINISTRATORS_CONNECTIONS, of_proxy.len())
        );
    }

    #[test]
    fn a_place_is_free_after_its_connection() {
        let places = Places::new(Counter::default());
        drop(take(&places, 7, 32, true));
        assert_eq!(places.connections().open.len(), 0);
        assert_eq!(take(&places, 7, 40, true).len(), 32);
    }
}
