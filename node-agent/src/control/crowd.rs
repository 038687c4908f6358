//! How much each person may ask: connections and watchers at once, and CPU time in the long run. An administrator's
//! requests are not held up; anybody else's wait for their turn, and hold up nobody but herself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::allowance::Allowance;
use crate::asker::Asker;
use crate::clock;

/// How many places there are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// For one ordinary user at once.
    of_one: usize,
    /// For all ordinary users at once.
    of_users: usize,
    /// For administrators at once, kept apart so that no user can shut them out.
    of_administrators: usize,
}

/// Connections: the agent's descriptors are wanted for the jobs.
pub(super) const CONNECTIONS: Places = Places { of_one: 16, of_users: 256, of_administrators: 64 };

/// Those who watch: each may have a megabyte of samples waiting.
pub(super) const WATCHERS: Places = Places { of_one: 4, of_users: 16, of_administrators: 8 };

/// CPU time that the requests of one user may take: per second in the long run, and at once, in seconds.
const CPU_S: (f64, f64) = (0.02, 0.5);

/// One person at the socket.
#[derive(Debug)]
struct Person {
    places: usize,
    cpu: Allowance,
}

impl Default for Person {
    fn default() -> Self {
        Self { places: 0, cpu: Allowance::new(CPU_S.0, CPU_S.1) }
    }
}

/// Everybody who has a place.
#[derive(Debug)]
pub(super) struct Crowd {
    limits: Places,
    users: Mutex<BTreeMap<u32, Person>>,
    administrators: Mutex<usize>,
}

/// A person's place; dropping it makes room.
#[derive(Debug)]
pub(super) struct Place<'a> {
    crowd: &'a Crowd,
    asker: Asker,
}

impl Crowd {
    /// Nobody yet, and so many places.
    pub(super) fn new(limits: Places) -> Self {
        Self { limits, users: Mutex::default(), administrators: Mutex::default() }
    }

    /// One more place for a person, if there is one.
    pub(super) fn enter(&self, asker: Asker) -> Option<Place<'_>> {
        if asker.administrator {
            let mut administrators = lock(&self.administrators);
            if *administrators >= self.limits.of_administrators {
                return None;
            }
            *administrators += 1;
        } else {
            let mut users = lock(&self.users);
            let all: usize = users.values().map(|person| person.places).sum();
            let person = users.entry(asker.uid).or_default();
            if all >= self.limits.of_users || person.places >= self.limits.of_one {
                return None;
            }
            person.places += 1;
        }
        Some(Place { crowd: self, asker })
    }

    /// How long this person has to wait before the next request is looked at.
    fn owed(&self, asker: Asker) -> Duration {
        let mut users = lock(&self.users);
        let person = users.get_mut(&asker.uid).filter(|_| !asker.administrator);
        Duration::from_nanos(person.map_or(0, |person| person.cpu.owed_ns(clock::monotonic_ns())))
    }

    /// A request of this person has taken so much CPU time, in nanoseconds.
    fn charge(&self, asker: Asker, used_ns: u64) {
        if let Some(person) = lock(&self.users).get_mut(&asker.uid).filter(|_| !asker.administrator) {
            person.cpu.charge(Duration::from_nanos(used_ns).as_secs_f64(), clock::monotonic_ns());
        }
    }
}

impl Place<'_> {
    /// Waits until what this person asks may be looked at.
    pub(super) async fn turn(&self) {
        // Not for nothing: the shortest sleep takes a millisecond.
        if let Some(owed) = Some(self.crowd.owed(self.asker)).filter(|owed| !owed.is_zero()) {
            tokio::time::sleep(owed).await;
        }
    }

    /// What this person asked has taken so much CPU time, in nanoseconds.
    pub(super) fn charge(&self, used_ns: u64) {
        self.crowd.charge(self.asker, used_ns);
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
            person.places = person.places.saturating_sub(1);
        }
        // Who owes something is remembered beyond her last connection, so that to hang up is no way out.
        users.retain(|_, person| person.places > 0 || !person.cpu.is_full(now_ns));
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
        let crowd = Crowd::new(CONNECTIONS);
        let mut places: Vec<_> = std::iter::from_fn(|| crowd.enter(ALICE)).take(1000).collect();
        assert_eq!(places.len(), CONNECTIONS.of_one);
        assert!(crowd.enter(BOB).is_some());
        places.pop();
        assert!(crowd.enter(ALICE).is_some());
        let others = (2000..).map(|uid| Asker { uid, administrator: false });
        places.extend(others.map_while(|asker| crowd.enter(asker)).take(1000));
        assert_eq!(places.len(), CONNECTIONS.of_users);
        assert!(crowd.enter(BOB).is_none());
        assert!(crowd.enter(ROOT).is_some());
    }

    #[test]
    fn who_asks_too_much_waits_also_after_hanging_up() {
        let crowd = Crowd::new(CONNECTIONS);
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
        let crowd = Crowd::new(CONNECTIONS);
        drop(crowd.enter(ALICE));
        assert!(lock(&crowd.users).is_empty());
    }
}
