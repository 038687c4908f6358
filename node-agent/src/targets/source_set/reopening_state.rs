//! When a target's sources are opened anew, and what was missing when they were.

use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Reopening {
    pub(super) at_ns: Option<u64>,
    /// Attempts so far to open what is missing; each waits twice as long as the one before it.
    pub(super) attempts: u32,
    /// True if something exists that could not be opened or read at the last attempt.
    pub(super) may_recover: bool,
    /// Metrics that were sampled, and are unavailable since sources were opened anew.
    pub(super) lost: BTreeSet<String>,
    reported: BTreeSet<(String, String)>,
}

impl Reopening {
    /// Schedules a reopening, unless an earlier one is scheduled.
    pub(super) fn schedule(&mut self, at_ns: u64) {
        self.at_ns = Some(self.at_ns.map_or(at_ns, |scheduled_ns| scheduled_ns.min(at_ns)));
    }

    /// Notes the metrics that are unavailable after an opening. Returns those that were sampled before or are
    /// sampled in part, with reasons that were not reported before.
    pub(super) fn note_missing(
        &mut self,
        unavailable: &BTreeSet<(String, String)>,
        before: &BTreeSet<String>,
        now: &BTreeSet<String>,
    ) -> Vec<(String, String)> {
        let lost = unavailable.iter().filter(|(metric, _)| {
            (before.contains(metric) || self.lost.contains(metric)) && !now.contains(metric)
        });
        self.lost = lost.map(|(metric, _)| metric.clone()).collect();
        let missing = unavailable.iter();
        let missing = missing.filter(|(metric, _)| self.lost.contains(metric) || now.contains(metric));
        let missing: BTreeSet<(String, String)> = missing.cloned().collect();
        let new = missing.difference(&self.reported).cloned().collect();
        self.reported = missing;
        new
    }
}
