//! Whether the collector takes what is sent: what the log and `status` say of it. Pure.

/// How long there may be no connection before the log says so: a restart of the collector takes less.
const GRACE_NS: u64 = 3_000_000_000;

/// How long a collector that is connected may acknowledge nothing of what waits: longer than the first repetition.
const SILENCE_NS: u64 = 10_000_000_000;

/// How often it is said again.
const REPEAT_NS: u64 = 60_000_000_000;

/// The state of the delivery at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeliveryState {
    /// Whether there is a connection.
    pub(crate) connected: bool,
    /// Frames that were acknowledged so far.
    pub(crate) acknowledged: u64,
    /// Bytes that wait, in memory and in the spool.
    pub(crate) waiting_bytes: u64,
}

/// What the administrator should hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutageNotice {
    /// Nothing is delivered since so many nanoseconds.
    Began {
        /// Whether there is a connection all the same.
        connected: bool,
        /// Since when.
        for_ns: u64,
    },
    /// What was said to be away for so long is back.
    Ended {
        /// How long it was away.
        for_ns: u64,
    },
}

/// Watches over the delivery.
#[derive(Debug)]
pub(crate) struct Outage {
    last: DeliveryState,
    /// When the connection came or went.
    changed_ns: u64,
    /// When something was acknowledged last, or began to wait.
    progress_ns: u64,
    /// Since when nothing is delivered, and when that was said last.
    told: Option<(u64, u64)>,
}

impl Outage {
    /// Without a connection yet.
    pub(crate) const fn new(now_ns: u64) -> Self {
        let last = DeliveryState { connected: false, acknowledged: 0, waiting_bytes: 0 };
        Self { last, changed_ns: now_ns, progress_ns: now_ns, told: None }
    }

    /// Takes in the state of now, and says what is notice.
    pub(crate) fn update(&mut self, now: DeliveryState, now_ns: u64) -> Option<OutageNotice> {
        let before = std::mem::replace(&mut self.last, now);
        if now.connected != before.connected {
            self.changed_ns = now_ns;
        }
        let progresses = now.acknowledged != before.acknowledged || now.waiting_bytes == 0;
        if progresses || (now.connected && !before.connected) {
            self.progress_ns = now_ns;
        }
        let away_since_ns = if now.connected {
            let is_silent = now_ns.saturating_sub(self.progress_ns) >= SILENCE_NS;
            is_silent.then_some(self.progress_ns)
        } else {
            (now_ns.saturating_sub(self.changed_ns) >= GRACE_NS).then_some(self.changed_ns)
        };
        match (away_since_ns, self.told) {
            (None, None) => None,
            (Some(since_ns), None) => {
                self.told = Some((since_ns, now_ns));
                Some(OutageNotice::Began {
                    connected: now.connected,
                    for_ns: now_ns.saturating_sub(since_ns),
                })
            }
            (Some(_), Some((since_ns, told_ns))) if now_ns.saturating_sub(told_ns) >= REPEAT_NS => {
                self.told = Some((since_ns, now_ns));
                Some(OutageNotice::Began {
                    connected: now.connected,
                    for_ns: now_ns.saturating_sub(since_ns),
                })
            }
            (Some(_), Some(_)) => None,
            // Ended is what acknowledges, or has nothing to.
            (None, Some((since_ns, _))) if now.connected && progresses => {
                self.told = None;
                Some(OutageNotice::Ended { for_ns: now_ns.saturating_sub(since_ns) })
            }
            (None, Some(_)) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// What is notice, second by second.
    fn notice(
        outage: &mut Outage,
        states: impl IntoIterator<Item = (u64, DeliveryState)>,
    ) -> Vec<(u64, OutageNotice)> {
        let look = |(second, state)| Some((second, outage.update(state, second * SECOND_NS)?));
        states.into_iter().filter_map(look).collect()
    }

    const AWAY: DeliveryState = DeliveryState { connected: false, acknowledged: 0, waiting_bytes: 100 };

    #[test]
    fn it_is_said_at_once_and_then_once_a_minute_until_it_is_back() {
        let mut outage = Outage::new(0);
        let away = |second: u64| OutageNotice::Began { connected: false, for_ns: second * SECOND_NS };
        let told = notice(&mut outage, (0..130).map(|second| (second, AWAY)));
        assert_eq!(told, [(3, away(3)), (63, away(63)), (123, away(123))]);
        let connected = DeliveryState { connected: true, ..AWAY };
        let back = DeliveryState { acknowledged: 1, ..connected };
        let told = notice(&mut outage, [(130, connected), (131, connected), (132, back), (133, back)]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].1, OutageNotice::Ended { for_ns: told[0].0 * SECOND_NS });
    }

    #[test]
    fn a_restart_of_the_collector_is_no_news() {
        let mut outage = Outage::new(0);
        let connected = |acknowledged| DeliveryState { connected: true, acknowledged, waiting_bytes: 0 };
        let states = [(0, connected(1)), (1, connected(2)), (2, AWAY), (3, AWAY), (4, connected(3))];
        assert_eq!(notice(&mut outage, states), []);
        let later = (5..100).map(|second| (second, connected(3)));
        assert_eq!(notice(&mut outage, later), [], "nothing waits");
    }

    #[test]
    fn a_collector_that_acknowledges_nothing_is_away_though_it_is_connected() {
        let mut outage = Outage::new(0);
        let state = |acknowledged| DeliveryState { connected: true, acknowledged, waiting_bytes: 100 };
        let told = notice(&mut outage, (0..20).map(|second| (second, state(5))));
        assert_eq!(told, [(10, OutageNotice::Began { connected: true, for_ns: 10 * SECOND_NS })]);
        assert_eq!(
            notice(&mut outage, [(20, state(6))]),
            [(20, OutageNotice::Ended { for_ns: 20 * SECOND_NS })]
        );
    }
}
