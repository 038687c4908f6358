//! Detection of outages: the collector is away, or acknowledges nothing. Pure.

/// Time without a connection before an outage is logged: a restart of the collector takes less.
const GRACE_NS: u64 = 3_000_000_000;

/// Time without an acknowledgement, despite a connection and waiting data, before an outage is logged. It
/// exceeds the first resend delay.
const SILENCE_NS: u64 = 10_000_000_000;

const REPEAT_NS: u64 = 60_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeliveryState {
    pub(crate) connected: bool,
    pub(crate) acknowledged: u64,
    /// Bytes in memory and in the spool.
    pub(crate) waiting_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutageNotice {
    /// Nothing is delivered; repeated while the outage lasts.
    Began {
        connected: bool,
        for_ns: u64,
    },
    Ended {
        for_ns: u64,
    },
}

#[derive(Debug)]
pub(crate) struct Outage {
    last: DeliveryState,
    /// Time at which the connection was established or lost.
    changed_ns: u64,
    /// Time at which the last acknowledgement came, or since when data wait.
    progress_ns: u64,
    /// Begin of the logged outage, and when it was last logged.
    reported: Option<(u64, u64)>,
}

impl Outage {
    pub(crate) const fn new(now_ns: u64) -> Self {
        let last = DeliveryState { connected: false, acknowledged: 0, waiting_bytes: 0 };
        Self { last, changed_ns: now_ns, progress_ns: now_ns, reported: None }
    }

    /// Returns the notice to be logged, if any.
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
        match (away_since_ns, self.reported) {
            (None, None) => None,
            (Some(since_ns), None) => {
                self.reported = Some((since_ns, now_ns));
                Some(OutageNotice::Began {
                    connected: now.connected,
                    for_ns: now_ns.saturating_sub(since_ns),
                })
            }
            (Some(_), Some((since_ns, reported_ns))) if now_ns.saturating_sub(reported_ns) >= REPEAT_NS => {
                self.reported = Some((since_ns, now_ns));
                Some(OutageNotice::Began {
                    connected: now.connected,
                    for_ns: now_ns.saturating_sub(since_ns),
                })
            }
            (Some(_), Some(_)) => None,
            // The outage ends with an acknowledgement, or when nothing waits.
            (None, Some((since_ns, _))) if now.connected && progresses => {
                self.reported = None;
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

    fn notice(
        outage: &mut Outage,
        states: impl IntoIterator<Item = (u64, DeliveryState)>,
    ) -> Vec<(u64, OutageNotice)> {
        states
            .into_iter()
            .filter_map(|(second, state)| Some((second, outage.update(state, second * SECOND_NS)?)))
            .collect()
    }

    const AWAY: DeliveryState = DeliveryState { connected: false, acknowledged: 0, waiting_bytes: 100 };

    #[test]
    fn an_outage_is_reported_at_once_then_once_a_minute_until_its_end() {
        let mut outage = Outage::new(0);
        let away = |second: u64| OutageNotice::Began { connected: false, for_ns: second * SECOND_NS };
        let reported = notice(&mut outage, (0..130).map(|second| (second, AWAY)));
        assert_eq!(reported, [(3, away(3)), (63, away(63)), (123, away(123))]);
        let connected = DeliveryState { connected: true, ..AWAY };
        let back = DeliveryState { acknowledged: 1, ..connected };
        let reported = notice(&mut outage, [(130, connected), (131, connected), (132, back), (133, back)]);
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert_eq!(reported[0].1, OutageNotice::Ended { for_ns: reported[0].0 * SECOND_NS });
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
        let reported = notice(&mut outage, (0..20).map(|second| (second, state(5))));
        assert_eq!(reported, [(10, OutageNotice::Began { connected: true, for_ns: 10 * SECOND_NS })]);
        assert_eq!(
            notice(&mut outage, [(20, state(6))]),
            [(20, OutageNotice::Ended { for_ns: 20 * SECOND_NS })]
        );
    }
}
