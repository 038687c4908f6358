//! Whose clock is far off: the log says so, and what to do.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::ingest::{OutOfRangePolicy, TimeRange};
use crate::log;
use crate::quiet::Quiet;
use polymeter_store::accepted::{Accepted, OutOfRange};

/// The nodes whose clocks were spoken of. All writers share it, for a node may have sessions with several.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clocks {
    quiet: Arc<Mutex<Quiet>>,
}

impl Clocks {
    /// Says in the log that samples of `accepted` lie outside of `range`, unless it said so of the node a moment ago.
    pub(crate) fn report(&self, accepted: &Accepted, range: TimeRange, now: Duration) {
        let Some(outside) = &accepted.out_of_range else { return };
        let node = accepted.session.descriptor.node.as_str();
        if self.quiet.lock().unwrap_or_else(PoisonError::into_inner).may_say(node, now) {
            log::warning(complaint(node, outside, accepted.received_us, range));
        }
    }
}

fn complaint(node: &str, outside: &OutOfRange, received_us: i64, range: TimeRange) -> String {
    let (first_us, last_us) = outside.span_us;
    let distances = [
        (received_us.saturating_sub(first_us), range.max_age, "in the past", "max_age"),
        (last_us.saturating_sub(received_us), range.max_skew, "in the future", "max_skew"),
    ];
    let distances: Vec<_> = distances
        .into_iter()
        .map(|(off_us, allowed, of, key)| {
            (Duration::from_micros(off_us.max(0).cast_unsigned()), allowed, of, key)
        })
        .filter(|(off, allowed, ..)| off > allowed)
        .collect();
    let off: Vec<_> = distances
        .iter()
        .map(|(off, allowed, of, _)| format!("{} {of} ({} at most)", Roughly(*off), Roughly(*allowed)))
        .collect();
    let keys: Vec<_> = distances.iter().map(|(.., key)| format!("`{key}`")).collect();
    let fate = match range.out_of_range {
        OutOfRangePolicy::Reject => "refused, and count as lost",
        OutOfRangePolicy::Quarantine => "quarantined, in samples_quarantine",
    };
    format!(
        "node {} dates samples {}: {} of them are {fate}; set the clock of that node, or of this machine if all \
         nodes seem to be off; if the times are right, raise {} in [clock]",
        log::printable(node),
        off.join(" and "),
        outside.samples,
        keys.join(" and ")
    )
}

/// A time in the largest unit of which it has two.
struct Roughly(Duration);

impl fmt::Display for Roughly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
        match units.into_iter().find(|(unit, _)| seconds >= 2 * unit) {
            Some((unit, name)) => write!(f, "{} {name}", seconds / unit),
            None => write!(f, "{seconds} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: i64 = 1_700_000_000_000_000;
    const DAY_US: i64 = 86_400 * 1_000_000;

    #[test]
    fn it_says_how_far_and_what_to_do() {
        let outside = OutOfRange { samples: 6, span_us: (NOW_US - 400 * DAY_US, NOW_US - 399 * DAY_US) };
        let said = complaint("n1", &outside, NOW_US, TimeRange::default());
        assert!(
            said.starts_with(
                "node n1 dates samples 400 d in the past (366 d at most): 6 of them are refused"
            ),
            "{said}"
        );
        assert!(said.contains("set the clock") && said.ends_with("raise `max_age` in [clock]"), "{said}");
        let range = TimeRange { out_of_range: OutOfRangePolicy::Quarantine, ..TimeRange::default() };
        let outside = OutOfRange { samples: 2, span_us: (i64::MIN, NOW_US + 30 * 3_600_000_000) };
        let said = complaint("n1", &outside, NOW_US, range);
        assert!(said.contains("30 h in the future (24 h at most): 2 of them are quarantined"), "{said}");
        assert!(said.ends_with("raise `max_age` and `max_skew` in [clock]"), "{said}");
        assert_eq!(Roughly(Duration::from_secs(119)).to_string(), "119 s");
    }
}
