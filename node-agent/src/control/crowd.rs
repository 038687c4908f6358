//! How much each person may ask: connections at once, and CPU time in the long run. An administrator's requests are not
//! held up; anybody else's wait for their turn, and hold up nobody but herself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::allowance::Allowance;
use crate::asker::Asker;
use crate::clock;

/// Connections of one ordinary user at once.
const OF_ONE: usize = 16;

/// Connections of all ordinary users at once: the agent's descriptors are wanted for the jobs.
const OF_USERS: usize = 256;

/// Connections of administrators at once, kept apart so that no user can shut them out.
const OF_ADMINISTRATORS: usize = 64;

/// CPU time that the requests of one user may take: per second in the long run, and at once, in seconds.
const CPU_S: (f64, f64) = (0.02, 0.5);

/// One person at the socket.
#[derive(Debug)]
struct Person {
    connections: usize,
    cpu: Allowance,
}

impl Default for Person {
    fn default() -> Self {
        Self { connections: 0, cpu: Allowance::new(CPU_S.0, CPU_S.1) }
    }
}

/// Everybody at the socket.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    users: Mutex<BTreeMap<u32, Person>>,
    administrators: Mutex<usize>,
}

/// A connection's place; dropping it makes room.
#[derive(Debug)]
pub(super) struct Place<'a> {
    crowd: &'a Crowd,
    asker: Asker,
}

impl Crowd {
    /// A place for one more connection, if there is one.
    pub(super) fn enter(&self, asker: Asker) -> Option<Place<'_>> {
        if asker.administrator {
            let mut administrators = lock(&self.administrators);
            if *administrators >= OF_ADMINISTRATORS {
                return None;
            }
            *administrators += 1;
        } else {
            let mut users = lock(&self.users);
            let all: usize = users.values().map(|person| person.connections).sum();
            let person = users.entry(asker.uid).or_default();
            if all >= OF_USERS || person.connections >= OF_ONE {
                return None;
            }
            person.connections += 1;
        }
        Some(Place { crowd: self, asker })
    }

    /// How long this person has to wait before the next request is looked at.
    pub(super) fn owed(&self, asker: Asker) -> Duration {
        let mut users = lock(&self.users);
        let person = users.get_mut(&asker.uid).filter(|_| !asker.administrator);
        Duration::from_nanos(person.map_or(0, |person| person.cpu.owed_ns(clock::monotonic_ns())))
    }

    /// A request of this person has taken so much CPU time, in nanoseconds.
    pub(super) fn charge(&self, asker: Asker, used_ns: u64) {
        if let Some(person) = lock(&self.users).get_mut(&asker.uid).filter(|_| !asker.administrator) {
            person.cpu.charge(Duration::from_nanos(used_ns).as_secs_f64(), clock::monotonic_ns());
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.asker.administrator {
            let mut administrators = lock(&self.crowd.administrators);
            *administrators = administrators.saturating_sub(1);
            return;
        }
        let now_ns = clock::monotonic_ns();
        let mut users = lock(&self.crowd.users);
        if let Some(person) = users.get_mut(&self.asker.uid) {
            person.connections = person.connections.saturating_sub(1);
        }
        // Who owes something is remembered beyond her last connection, so that to hang up is no way out.
        users.retain(|_, person| person.connections > 0 || !person.cpu.is_full(now_ns));
    }
}

/// What a panic left behind is still the best that is known.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Asker = Asker { uid: 1000, administrator: false };
    const BOB: Asker = Asker { uid: 1001, administrator: false };
    const ROOT: Asker = Asker { uid: 0, administrator: true };

    #[test]
    fn nobody_shuts_others_out() {
        let crowd = Crowd::default();
        let mut places: Vec<_> = std::iter::from_fn(|| crowd.enter(ALICE)).take(1000).collect();
        assert_eq!(places.len(), OF_ONE);
        assert!(crowd.enter(BOB).is_some());
        places.pop();
        assert!(crowd.enter(ALICE).is_some());
        let others = (2000..).map(|uid| Asker { uid, administrator: false });
        places.extend(others.map_while(|asker| crowd.enter(asker)).take(1000));
        assert_eq!(places.len(), OF_USERS);
        assert!(crowd.enter(BOB).is_none());
        assert!(crowd.enter(ROOT).is_some());
    }

    #[test]
    fn who_asks_too_much_waits_also_after_hanging_up() {
        let crowd = Crowd::default();
        let place = crowd.enter(ALICE);
        assert_eq!(crowd.owed(ALICE), Duration::ZERO);
        crowd.charge(ALICE, 2_000_000_000);
        assert!(crowd.owed(ALICE) > Duration::from_secs(60));
        drop(place);
        let _place = crowd.enter(ALICE);
        assert!(crowd.owed(ALICE) > Duration::from_secs(60));
        let _root = crowd.enter(ROOT);
        crowd.charge(ROOT, 2_000_000_000);
        assert_eq!(crowd.owed(ROOT), Duration::ZERO);
    }

    #[test]
    fn who_owes_nothing_is_forgotten() {
        let crowd = Crowd::default();
        drop(crowd.enter(ALICE));
        assert!(lock(&crowd.users).is_empty());
    }
}
