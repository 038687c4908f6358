//! Refresh intervals of a target's sources.

use std::collections::BTreeMap;

use polymeter_proto::catalogue;
use polymeter_proto::period::Period;
use polymeter_proto::series::Unit;
use polymeter_proto::step_level::StepLevel;

use super::SourceSet;
use crate::sources::runs;

impl SourceSet {
    pub(crate) fn sampled(&self) -> BTreeMap<String, Vec<(&str, Option<Period>)>> {
        self.sampled_at(None)
    }

    /// Sampled metrics, each with its sources and their refresh intervals.
    pub(crate) fn sampled_at(
        &self,
        level: Option<StepLevel>,
    ) -> BTreeMap<String, Vec<(&str, Option<Period>)>> {
        let mut sampled: BTreeMap<String, Vec<(&str, Option<Period>)>> = BTreeMap::new();
        for (name, source) in self.open() {
            if source.step.as_ref().map(|step| step.level) != level {
                continue;
            }
            for metric in source.metrics() {
                let sources = sampled.entry(metric).or_default();
                let entry = (name.as_str(), source.refresh_interval);
                // The series of a metric of one source follow one another.
                if sources.last() != Some(&entry) {
                    sources.push(entry);
                }
            }
        }
        sampled
    }

    /// Units of the metrics of open sources that measure in another unit than the catalogue's.
    pub(crate) fn measured_units(&self) -> BTreeMap<String, Unit> {
        let slots = self.open().values().flat_map(|source| runs(&source.slots));
        let scaled = slots.filter(|slot| {
            let of_catalogue = catalogue::find(&slot.definition.name());
            of_catalogue.is_some_and(|of| of.metric.unit != slot.definition.metric.unit)
        });
        scaled.map(|slot| (slot.definition.name(), slot.definition.metric.unit)).collect()
    }

    /// True if the hardware of a source has stated another refresh interval than that of its groups.
    pub(crate) fn has_new_intervals(&self) -> bool {
        self.open.values().any(|source| source.stated_interval.get() != source.refresh_interval)
    }
}
