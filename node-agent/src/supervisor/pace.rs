//! Pace of what the supervisor does without an event. A wake-up of an idle CPU costs more than what is done at
//! it, since code and data are in no cache any more: on a node where nothing happens there are fewer.

use std::time::Duration;

/// Rescans without an event between them after which a node is quiet.
const QUIET_AFTER: u32 = 10;

/// Factor by which the time between two rescans of a quiet node is longer, and the longest that it makes.
const QUIET: (u32, Duration) = (5, Duration::from_secs(5));

/// Time between two measurements of the cost of sampling: long enough to average slow moments, and short
/// enough to limit the load on jobs.
const MEASURE_CPU: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Rescans since the last event.
    rescans: u32,
}

impl Pace {
    pub(super) const fn is_quiet(&self) -> bool {
        self.rescans >= QUIET_AFTER
    }

    /// Returns the time between two rescans, and that between two measurements of the cost of sampling, where
    /// rescans are configured to be `rescan` apart.
    pub(super) fn intervals(&self, rescan: Duration) -> (Duration, Duration) {
        if !self.is_quiet() {
            return (rescan, MEASURE_CPU);
        }
        let (factor, longest) = QUIET;
        let rescan = rescan.saturating_mul(factor).min(longest).max(rescan);
        (rescan, rescan.clamp(MEASURE_CPU, longest))
    }

    /// Notes an event, or that only rescans find what happens on this node. True if it was quiet.
    pub(super) const fn happened(&mut self) -> bool {
        std::mem::replace(&mut self.rescans, 0) >= QUIET_AFTER
    }

    /// Notes a rescan. True if the node is quiet from now on.
    pub(super) const fn rescanned(&mut self) -> bool {
        self.rescans = self.rescans.saturating_add(1);
        self.rescans == QUIET_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_quiet_after_rescans_without_an_event() {
        let mut pace = Pace::default();
        let rescans = |pace: &mut Pace, count: u32| (0..count).filter(|_| pace.rescanned()).count();
        assert_eq!((rescans(&mut pace, QUIET_AFTER - 1), pace.is_quiet()), (0, false));
        assert!(!pace.happened());
        assert_eq!((rescans(&mut pace, QUIET_AFTER - 1), pace.is_quiet()), (0, false));
        assert_eq!((rescans(&mut pace, 1), pace.is_quiet()), (1, true));
        assert_eq!((rescans(&mut pace, 100), pace.is_quiet()), (0, true), "told once");
        assert!(pace.happened());
        assert!(!pace.is_quiet());
    }

    #[test]
    fn the_times_of_a_quiet_node_are_longer_within_bounds() {
        let ms = Duration::from_millis;
        let (lively, quiet) = (Pace::default(), Pace { rescans: QUIET_AFTER });
        assert_eq!(lively.intervals(ms(1000)), (ms(1000), MEASURE_CPU));
        for (rescan, expected) in
            [(50, (250, 2000)), (1000, (5000, 5000)), (3000, (5000, 5000)), (60_000, (60_000, 5000))]
        {
            assert_eq!(quiet.intervals(ms(rescan)), (ms(expected.0), ms(expected.1)), "{rescan}");
        }
    }
}
