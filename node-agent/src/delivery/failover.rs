//! The choice among several collectors: when to leave one that does not serve, and when to return to the
//! first. Pure.
//!
//! A collector serves while it acknowledges frames, or while there is a connection and nothing waits. Each
//! agent waits for a different time, so that the agents of a dead collector do not all move at once. After
//! each round without a collector that serves, the waits are twice as long.

use super::mix::mix;
use super::outage::DeliveryState;

/// Shortest wait without a connection before the agent moves: a restart of a collector takes less.
const DISCONNECTED_NS: u64 = 5_000_000_000;

/// Shortest wait for an acknowledgement before the agent moves. It exceeds the first resend delay.
const SILENT_NS: u64 = 10_000_000_000;

/// How often the waits are doubled at most.
const DOUBLINGS_MAX: u32 = 4;

/// Choice among the collectors of one agent, which are numbered in the order in which it tries them.
#[derive(Debug)]
pub(crate) struct Failover {
    collectors: usize,
    current: usize,
    random: u64,
    /// Current collector's part of the longest wait, from 0 to [`WHOLE`].
    jitter: u64,
    last: DeliveryState,
    /// Time at which the current collector last served, or was chosen.
    served_ns: u64,
    /// Moves since a collector served.
    moves: usize,
    /// None for never.
    return_after_ns: Option<u64>,
    failed_returns: u32,
    return_at_ns: Option<u64>,
    left: Option<usize>,
}

/// Denominator of [`Failover::jitter`].
const WHOLE: u64 = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) to: usize,
    /// True if the collector that is left serves: the agent returns to the first one.
    pub(crate) is_return: bool,
}

impl Failover {
    /// Begins with the first of `collectors`. `seed` differs among agents.
    pub(crate) const fn new(collectors: usize, return_after_ns: Option<u64>, seed: u64, now_ns: u64) -> Self {
        let random = mix(seed);
        Self {
            collectors,
            current: 0,
            random,
            jitter: random % WHOLE,
            last: DeliveryState { connected: false, acknowledged: 0, waiting_bytes: 0 },
            served_ns: now_ns,
            moves: 0,
            return_after_ns,
            failed_returns: 0,
            return_at_ns: None,
            left: None,
        }
    }

    /// `current` is the number of the current collector in the list; if it is not there any more, the agent
    /// begins the list anew.
    pub(crate) fn replace(&mut self, collectors: usize, current: Option<usize>, now_ns: u64) -> Option<Move> {
        self.collectors = collectors;
        (self.left, self.return_at_ns) = (None, None);
        match current {
            Some(current) => {
                self.current = current;
                None
            }
            None => Some(self.move_to(0, false, now_ns)),
        }
    }

    /// Returns the collector to be used from now on, if it is another one.
    pub(crate) fn update(&mut self, now: DeliveryState, now_ns: u64) -> Option<Move> {
        let before = std::mem::replace(&mut self.last, now);
        if now.acknowledged != before.acknowledged || (now.connected && now.waiting_bytes == 0) {
            self.served(now_ns);
        } else if now.connected && !before.connected {
            // It has the whole time for its first acknowledgement.
            self.served_ns = now_ns;
        }
        if self.collectors < 2 {
            return None;
        }
        if now_ns.saturating_sub(self.served_ns) >= self.wait_ns(now.connected) {
            self.moves += 1;
            if let Some(left) = self.left.take() {
                self.failed_returns = (self.failed_returns + 1).min(DOUBLINGS_MAX);
                return Some(self.move_to(left, false, now_ns));
            }
            return Some(self.move_to((self.current + 1) % self.collectors, false, now_ns));
        }
        if self.return_at_ns.is_some_and(|at_ns| now_ns >= at_ns) {
            let left = self.current;
            let to_first = self.move_to(0, true, now_ns);
            self.left = Some(left);
            return Some(to_first);
        }
        None
    }

    fn served(&mut self, now_ns: u64) {
        (self.served_ns, self.moves, self.left) = (now_ns, 0, None);
        if self.current == 0 {
            self.failed_returns = 0;
        } else if self.return_at_ns.is_none() {
            let after_ns =
                self.return_after_ns.map(|after_ns| self.lengthened(after_ns, self.failed_returns));
            self.return_at_ns = after_ns.map(|after_ns| now_ns.saturating_add(after_ns));
        }
    }

    fn move_to(&mut self, to: usize, is_return: bool, now_ns: u64) -> Move {
        self.random = mix(self.random);
        self.jitter = self.random % WHOLE;
        (self.current, self.served_ns) = (to, now_ns);
        (self.left, self.return_at_ns) = (None, None);
        Move { to, is_return }
    }

    /// How long the agent stays with a collector that does not serve.
    fn wait_ns(&self, is_connected: bool) -> u64 {
        let shortest_ns = if is_connected { SILENT_NS } else { DISCONNECTED_NS };
        let rounds = u32::try_from(self.moves / self.collectors.max(1)).unwrap_or(u32::MAX);
        self.lengthened(shortest_ns, rounds)
    }

    /// Doubles a time `times` times and lengthens it by up to half of it, differently for each agent.
    fn lengthened(&self, shortest_ns: u64, times: u32) -> u64 {
        let doubled_ns = shortest_ns.saturating_mul(1 << times.min(DOUBLINGS_MAX));
        doubled_ns.saturating_add(doubled_ns / 2 / WHOLE * self.jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const SERVES: DeliveryState = DeliveryState { connected: true, acknowledged: 1, waiting_bytes: 0 };
    const SILENT: DeliveryState = DeliveryState { connected: true, acknowledged: 1, waiting_bytes: 9 };
    const AWAY: DeliveryState = DeliveryState { connected: false, acknowledged: 1, waiting_bytes: 9 };

    /// Lists the moves, each with its second, while `state` tells the state of each collector at each second.
    fn moves(
        failover: &mut Failover,
        seconds: std::ops::Range<u64>,
        state: impl Fn(usize, u64) -> DeliveryState,
    ) -> Vec<(u64, usize)> {
        let mut moves = Vec::new();
        for second in seconds {
            let now = state(failover.current, second);
            moves.extend(failover.update(now, second * SECOND_NS).map(|to| (second, to.to)));
        }
        moves
    }

    fn failover(collectors: usize) -> Failover {
        Failover::new(collectors, Some(600 * SECOND_NS), 7, 0)
    }

    #[test]
    fn an_agent_stays_while_its_collector_serves() {
        let mut failover = failover(3);
        assert_eq!(moves(&mut failover, 0..100_000, |_, _| SERVES), []);
        let acknowledging =
            |_, second| DeliveryState { connected: true, acknowledged: second / 9, waiting_bytes: 9 };
        assert_eq!(moves(&mut failover, 100_000..200_000, acknowledging), []);
    }

    #[test]
    fn an_only_collector_is_never_left() {
        assert_eq!(moves(&mut failover(1), 0..100_000, |_, _| AWAY), []);
    }

    #[test]
    fn a_restart_of_the_collector_moves_no_agent() {
        let restarts = |_, second| if second % 100 < 5 { AWAY } else { SERVES };
        assert_eq!(moves(&mut failover(2), 10..10_000, restarts), []);
    }

    #[test]
    fn a_dead_collector_is_left_sooner_than_a_silent_one() {
        let of = |first: DeliveryState| move |collector, _| if collector == 0 { first } else { SERVES };
        let first_move = |state| moves(&mut failover(2), 0..60, of(state));
        let (dead, silent) = (first_move(AWAY), first_move(SILENT));
        assert_eq!((dead.len(), silent.len()), (1, 1), "{dead:?} {silent:?}");
        assert!((5..=8).contains(&dead[0].0) && (10..=15).contains(&silent[0].0), "{dead:?} {silent:?}");
    }

    #[test]
    fn agents_do_not_move_at_once() {
        let tenths: std::collections::BTreeSet<u64> = (0..1000)
            .map(|seed| {
                let mut failover = Failover::new(2, None, seed, 0);
                (0..).find(|ms| failover.update(AWAY, ms * 1_000_000).is_some()).unwrap() / 100
            })
            .collect();
        assert!(tenths.len() >= 24, "{tenths:?}");
    }

    #[test]
    fn waits_are_longer_after_each_round_without_service_until_one_serves() {
        let mut failover = failover(2);
        let away = moves(&mut failover, 0..3600, |_, _| AWAY);
        let alternates = away.iter().map(|(_, to)| *to).eq((1..=away.len()).map(|number| number % 2));
        assert!(alternates, "{away:?}");
        let waits: Vec<u64> = away.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(waits[0] <= 8 && waits.iter().all(|wait| *wait <= 121), "{waits:?}");
        assert!(*waits.last().unwrap() >= 80, "{waits:?}");
        moves(&mut failover, 3600..3610, |_, _| SERVES);
        let away = moves(&mut failover, 3610..3620, |_, _| AWAY);
        assert_eq!(away.len(), 1, "{away:?}");
    }

    #[test]
    fn an_agent_returns_to_the_first_collector_that_serves_again() {
        let mut failover = failover(3);
        let state = |collector, second| if collector == 0 && second < 1000 { AWAY } else { SERVES };
        let moved = moves(&mut failover, 0..10_000, state);
        let to: Vec<usize> = moved.iter().map(|(_, to)| *to).collect();
        // Away; an attempt that fails; back at the second one; the attempt that succeeds.
        assert_eq!(to, [1, 0, 1, 0], "{moved:?}");
        assert!((600..=920).contains(&(moved[1].0 - moved[0].0)), "{moved:?}");
        assert!(moved[2].0 - moved[1].0 <= 8, "{moved:?}");
        assert!((1200..=1810).contains(&(moved[3].0 - moved[2].0)), "{moved:?}");
    }

    #[test]
    fn attempts_to_return_become_rare() {
        let mut failover = failover(2);
        let day = 86_400;
        let moved = moves(&mut failover, 0..day, |collector, _| if collector == 0 { SILENT } else { SERVES });
        assert!((6..30).contains(&moved.len()), "{moved:?}");
    }

    #[test]
    fn an_agent_that_shall_not_return_stays() {
        let mut failover = Failover::new(2, None, 7, 0);
        let state = |collector, second| if collector == 0 && second < 10 { AWAY } else { SERVES };
        assert_eq!(moves(&mut failover, 0..100_000, state).len(), 1);
    }

    #[test]
    fn a_new_list_moves_only_agents_whose_collector_is_not_in_it() {
        let mut failover = failover(2);
        assert_eq!(failover.replace(3, Some(2), 0), None);
        assert_eq!(failover.current, 2);
        assert_eq!(failover.replace(3, None, 0), Some(Move { to: 0, is_return: false }));
    }
}
