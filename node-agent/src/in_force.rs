//! The sampling of a metric in force: that of the plan, or the refresh interval of the hardware where that is
//! longer. Pure.

use polymeter_proto::ledger::Cause;
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::series::Identifier;

/// Most sources that a reason names.
const NAMED_SOURCES: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    pub sampling: Sampling,
    /// Layer that determines the requested period.
    pub cause: Cause,
    /// User of the lease that determines the period.
    pub by: Option<Identifier>,
    /// End of that lease, in microseconds since the epoch.
    pub until_us: Option<i64>,
    /// Requested sampling, if a longer period is in force, at least of some source.
    pub requested: Option<Sampling>,
    /// Sources whose hardware updates the metric less often than requested.
    pub slow_sources: Vec<SlowSource>,
    /// Derived metrics for which it is sampled, beside those who named it itself.
    pub input_of: Vec<&'static str>,
}

/// A source whose hardware updates its values less often than requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowSource {
    pub name: String,
    /// Interval between two updates.
    pub refresh_interval: Period,
}

impl InForce {
    /// Sampling in force of a metric whose sources have these refresh intervals: the shortest of all sources.
    #[must_use]
    pub fn of_sources(mut self, sources: &[(&str, Option<Period>)]) -> Self {
        let planned = self.sampling;
        self.sampling = sources
            .iter()
            .map(|(_, interval)| planned.not_shorter(interval.unwrap_or(planned.period)))
            .min_by_key(|sampling| sampling.period)
            .unwrap_or(planned);
        let slow = sources.iter().filter_map(|(name, interval)| {
            let refresh_interval = interval.filter(|interval| *interval > planned.period)?;
            Some(SlowSource { name: (*name).to_owned(), refresh_interval })
        });
        self.slow_sources = slow.collect();
        if !self.slow_sources.is_empty() {
            self.requested.get_or_insert(planned);
        }
        self
    }

    /// Cause of the period: the layer, or the hardware where every source is updated less often.
    pub fn recorded_cause(&self) -> Cause {
        if self.slow_sources.iter().any(|slow| slow.refresh_interval == self.sampling.period) {
            Cause::RefreshInterval
        } else {
            self.cause
        }
    }

    /// Reason why the requested period is not in force; none if it is.
    pub fn reason(&self) -> Option<String> {
        let (requested, granted) = (self.requested?, self.sampling);
        let Some(first) = self.slow_sources.first() else {
            return Some(format!("the governor lengthens it: granted {granted} instead of {requested}"));
        };
        if self.slow_sources.iter().all(|slow| slow.refresh_interval == granted.period) {
            let interval = first.refresh_interval;
            return Some(format!("it changes every {interval}: granted {granted} instead of {requested}"));
        }
        let named: Vec<String> = self
            .slow_sources
            .iter()
            .take(NAMED_SOURCES)
            .map(|SlowSource { name, refresh_interval }| format!("{name} changes every {refresh_interval}"))
            .collect();
        let more = match self.slow_sources.len().saturating_sub(NAMED_SOURCES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!("{}{more}: granted these intervals instead of {requested}", named.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(text: &str) -> Sampling {
        text.parse().unwrap()
    }

    fn in_force(requested: Option<&str>, intervals: &[(&str, &str)]) -> InForce {
        let plan = InForce {
            sampling: sampling("10ms"),
            cause: Cause::Lease,
            by: None,
            until_us: None,
            requested: requested.map(sampling),
            slow_sources: Vec::new(),
            input_of: Vec::new(),
        };
        let sources: Vec<_> =
            intervals.iter().map(|(name, interval)| (*name, interval.parse().ok())).collect();
        plan.of_sources(&sources)
    }

    #[test]
    fn the_refresh_interval_of_the_hardware_limits_the_period() {
        for sources in [&[("a", "10ms")][..], &[("a", "1ms"), ("b", "-")], &[]] {
            let unlimited = in_force(None, sources);
            assert_eq!((unlimited.sampling, unlimited.requested), (sampling("10ms"), None), "{sources:?}");
            assert_eq!((unlimited.reason(), unlimited.recorded_cause()), (None, Cause::Lease));
        }
        let limited = in_force(None, &[("a", "100ms")]);
        assert_eq!((limited.sampling, limited.requested), (sampling("100ms"), Some(sampling("10ms"))));
        assert_eq!(limited.recorded_cause(), Cause::RefreshInterval);
        assert_eq!(
            limited.reason().as_deref(),
            Some("it changes every 100ms: granted 100ms instead of 10ms")
        );
    }

    #[test]
    fn sources_with_several_intervals_are_named() {
        let mixed = in_force(None, &[("a", "-"), ("b", "1s")]);
        assert_eq!((mixed.sampling, mixed.recorded_cause()), (sampling("10ms"), Cause::Lease));
        assert_eq!(
            mixed.reason().as_deref(),
            Some("b changes every 1s: granted these intervals instead of 10ms")
        );
        let slow = in_force(None, &[("a", "1s"), ("b", "2s"), ("c", "3s"), ("d", "4s")]);
        assert_eq!((slow.sampling, slow.recorded_cause()), (sampling("1s"), Cause::RefreshInterval));
        assert_eq!(
            slow.reason().as_deref(),
            Some(
                "a changes every 1s, b changes every 2s, c changes every 3s and 1 more: granted these intervals instead of 10ms"
            )
        );
    }

    #[test]
    fn the_governor_is_a_reason_where_it_determines_the_period() {
        let stretched = in_force(Some("5ms"), &[("a", "-")]);
        assert_eq!(
            stretched.reason().as_deref(),
            Some("the governor lengthens it: granted 10ms instead of 5ms")
        );
        let limited = in_force(Some("5ms"), &[("a", "20ms")]);
        assert_eq!(limited.reason().as_deref(), Some("it changes every 20ms: granted 20ms instead of 5ms"));
    }
}
