//! Pace of what the supervisor does without an event. A wake-up costs more than what is done at it, since the
//! caches have forgotten the code: on a node where nothing happens there are fewer.

/// Rescans without an event between them after which a node is quiet.
const QUIET_AFTER: u32 = 10;

/// Factor by which the time between two rescans of a quiet node is longer.
pub(super) const QUIET: u32 = 5;

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Rescans since the last event.
    rescans: u32,
}

impl Pace {
    pub(super) const fn is_quiet(&self) -> bool {
        self.rescans >= QUIET_AFTER
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
}
