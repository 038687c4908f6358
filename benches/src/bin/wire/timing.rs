//! The CPU time of repeated work.

use rustix::time::{ClockId, clock_gettime};

/// The number of rounds, enough for a measurable time.
const ROUNDS: u32 = 20;

/// The CPU seconds of one round.
pub(crate) fn cpu_s(mut round: impl FnMut()) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        std::time::Duration::try_from(time).map_or(0.0, |time| time.as_secs_f64())
    };
    round();
    let begin = now();
    (0..ROUNDS).for_each(|_| round());
    (now() - begin) / f64::from(ROUNDS)
}
