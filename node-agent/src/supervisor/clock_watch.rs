//! Steps of the wall clock. An agent dates by the clock of its start, so that no time of a job goes back; it
//! follows a step between jobs and leases.

use polymeter_proto::units;
use tracing::warn;

use crate::clock::STEP_NS;

/// How much two looks at a clock that is no longer being set differ at most.
const SAME_NS: u64 = 100_000_000;

#[derive(Debug, Default)]
pub(super) struct ClockWatch {
    /// How far it was ahead at the last look.
    ahead_ns: i64,
    has_warned: bool,
}

impl ClockWatch {
    /// True if the agent must begin anew, because the wall clock was set, and is `ahead_ns` of the time by
    /// which the agent dates. It waits until it `is_free`: no job or lease runs, and no sample waits.
    pub(super) fn must_begin_anew(&mut self, ahead_ns: i64, is_free: bool) -> bool {
        let before_ns = std::mem::replace(&mut self.ahead_ns, ahead_ns);
        let was_set = |ahead_ns: i64| ahead_ns.unsigned_abs() >= STEP_NS;
        if !was_set(ahead_ns) {
            self.has_warned = false;
            return false;
        }
        if !was_set(before_ns) || ahead_ns.abs_diff(before_ns) > SAME_NS {
            return false;
        }
        if !is_free && !std::mem::replace(&mut self.has_warned, true) {
            warn!(
                "the clock of this node was set {} by {}: samples are dated by the clock before until no job \
                 and no lease runs",
                if ahead_ns < 0 { "back" } else { "forward" },
                units::duration(ahead_ns.unsigned_abs())
            );
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(ahead: &[(i64, bool)]) -> Vec<bool> {
        let mut watch = ClockWatch::default();
        ahead.iter().map(|(ahead_ns, is_free)| watch.must_begin_anew(*ahead_ns, *is_free)).collect()
    }

    #[test]
    fn a_step_is_followed_once_it_is_over_and_no_job_runs() {
        const S: i64 = 1_000_000_000;
        for step_ns in [3_600 * S, -3_600 * S, S, i64::MAX, i64::MIN] {
            let free = looks(&[(0, true), (step_ns, true), (step_ns, true)]);
            assert_eq!(free, [false, false, true], "{step_ns}");
            let busy = looks(&[(step_ns, false), (step_ns, false), (step_ns, false), (step_ns, true)]);
            assert_eq!(busy, [false, false, false, true], "{step_ns}");
        }
        assert_eq!(
            looks(&[(9 * S, true), (5 * S, true), (5 * S + 1, true)]),
            [false, false, true],
            "set twice"
        );
        assert_eq!(looks(&[(9 * S, true), (S / 2, true), (S / 2, true)]), [false; 3], "set back to right");
        assert_eq!(looks(&[(S - 1, true), (1 - S, true), (0, true)]), [false; 3], "less than a step");
    }
}
