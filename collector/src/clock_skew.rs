//! Log messages about nodes with skewed clocks.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polymeter_proto::units::counted;
use polymeter_service::log_throttle::LogThrottle;
use polymeter_store::accepted::{Accepted, OutOfRange};
use tracing::warn;

use crate::ingest::{OutOfRangePolicy, TimeRange};
use crate::limits;

/// Shared by all writers, since a node may have sessions with several.
#[derive(Debug, Clone)]
pub(crate) struct ClockSkewLog {
    throttle: Arc<Mutex<LogThrottle>>,
}

impl Default for ClockSkewLog {
    fn default() -> Self {
        let throttle = LogThrottle::new(limits::LOG_INTERVAL, limits::LOG_MESSAGES);
        Self { throttle: Arc::new(Mutex::new(throttle)) }
    }
}

impl ClockSkewLog {
    /// Logs at most once in [`limits::LOG_INTERVAL`] for a node.
    pub(crate) fn report(&self, accepted: &Accepted, range: TimeRange, now: Duration) {
        let Some(out_of_range) = &accepted.out_of_range else { return };
        let node = accepted.session.descriptor.node.as_str();
        if self.throttle.lock().unwrap_or_else(PoisonError::into_inner).allows(node, now) {
            let Report { error, remedy } = report(out_of_range, accepted.received_us, range);
            warn!(error, remedy, node, "cannot trust the times of samples");
        }
    }
}

struct Report {
    error: String,
    remedy: String,
}

fn report(out_of_range: &OutOfRange, received_us: i64, range: TimeRange) -> Report {
    let (first_us, last_us) = out_of_range.span_us;
    let distances = [
        (received_us.saturating_sub(first_us), range.max_age, "in the past", "max_age"),
        (last_us.saturating_sub(received_us), range.max_skew, "in the future", "max_skew"),
    ];
    let distances: Vec<_> = distances
        .into_iter()
        .map(|(off_us, allowed, direction, key)| {
            (Duration::from_micros(off_us.max(0).cast_unsigned()), allowed, direction, key)
        })
        .filter(|(off, allowed, ..)| off > allowed)
        .collect();
    let off: Vec<_> = distances
        .iter()
        .map(|(off, allowed, direction, _)| {
            format!("{} {direction} (at most {})", Rounded(*off), Rounded(*allowed))
        })
        .collect();
    let keys: Vec<_> = distances.iter().map(|(.., key)| format!("`{key}`")).collect();
    let treatment = match range.out_of_range {
        OutOfRangePolicy::Reject => "rejected and counted as lost",
        OutOfRangePolicy::Quarantine => "stored in samples_quarantine",
    };
    Report {
        error: format!(
            "they are {}; {treatment}: {}",
            off.join(" and "),
            counted(out_of_range.samples, "sample")
        ),
        remedy: format!(
            "correct the clock of the node and restart its polymeter-agent, or correct that of this machine if all \
             nodes are affected; if the times are right, raise {} in [clock]",
            keys.join(" and ")
        ),
    }
}

/// Displayed in the largest unit of which it has at least two.
struct Rounded(Duration);

impl fmt::Display for Rounded {
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
    fn states_the_distance_and_the_remedy() {
        let samples = OutOfRange { samples: 6, span_us: (NOW_US - 400 * DAY_US, NOW_US - 399 * DAY_US) };
        let Report { error, remedy } = report(&samples, NOW_US, TimeRange::default());
        assert_eq!(
            error,
            "they are 400 d in the past (at most 366 d); rejected and counted as lost: 6 samples"
        );
        assert!(
            remedy.starts_with("correct the clock") && remedy.ends_with("raise `max_age` in [clock]"),
            "{remedy}"
        );
        let range = TimeRange { out_of_range: OutOfRangePolicy::Quarantine, ..TimeRange::default() };
        let samples = OutOfRange { samples: 2, span_us: (i64::MIN, NOW_US + 30 * 3_600_000_000) };
        let Report { error, remedy } = report(&samples, NOW_US, range);
        assert!(
            error.contains("30 h in the future (at most 24 h); stored in samples_quarantine: 2 samples"),
            "{error}"
        );
        assert!(remedy.ends_with("raise `max_age` and `max_skew` in [clock]"), "{remedy}");
        assert_eq!(Rounded(Duration::from_secs(119)).to_string(), "119 s");
    }
}
