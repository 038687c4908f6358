//! Counters with the label `reason`.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// The label `reason`.
type Reason = [(&'static str, &'static str); 1];

/// Counters of one metric by reason.
#[derive(Debug, Clone, Default)]
pub(crate) struct ByReason(Family<Reason, Counter>);

impl ByReason {
    /// Creates the counters, so that they are exported before their first increment.
    pub(crate) fn create(&self, reasons: impl IntoIterator<Item = &'static str>) {
        reasons.into_iter().for_each(|reason| self.add(reason, 0));
    }

    /// Adds to the counter of `reason`.
    pub(crate) fn add(&self, reason: &'static str, count: u64) {
        self.0.get_or_create(&[("reason", reason)]).inc_by(count);
    }

    /// Returns the family, to be registered.
    pub(super) fn family(&self) -> Family<Reason, Counter> {
        self.0.clone()
    }
}
