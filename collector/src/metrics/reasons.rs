//! Counters with the label `reason`.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

type Reason = [(&'static str, &'static str); 1];

#[derive(Debug, Clone, Default)]
pub(crate) struct ByReason(Family<Reason, Counter>);

impl ByReason {
    /// Exports the counters before their first increment.
    pub(crate) fn create(&self, reasons: impl IntoIterator<Item = &'static str>) {
        reasons.into_iter().for_each(|reason| self.add(reason, 0));
    }

    pub(crate) fn add(&self, reason: &'static str, count: u64) {
        self.0.get_or_create(&[("reason", reason)]).inc_by(count);
    }

    pub(super) fn family(&self) -> Family<Reason, Counter> {
        self.0.clone()
    }
}
