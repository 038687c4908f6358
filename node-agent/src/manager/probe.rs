//! What a target could give that is not sampled now: found out by opening it, reading it a few times, and closing it.

use std::collections::BTreeMap;
use std::time::Duration;

use polymeter_proto::catalogue::{self, Definition, Scope};
use polymeter_proto::name::Selector;
use tokio::time::Instant;

use super::tracked_target::TrackedTarget;
use super::{Manager, TargetKey};
use crate::clock;
use crate::request::{Availability, MetricView};
use crate::sources::{ReadBuffer, Reading, Unavailable};

/// Reads of a source that was opened for trial. The first finds out where its lines are, and does not count.
const READS: u32 = 5;

/// How long is believed what was found out: devices and events come and go seldom.
const BELIEVED: Duration = Duration::from_secs(60);

/// What was found out of a target, by the names of metrics.
#[derive(Debug, Default)]
pub(super) struct Probe {
    since: Option<Instant>,
    pub(super) found: BTreeMap<String, Availability>,
}

impl Probe {
    /// Forgets everything: the target's files have changed.
    pub(super) fn forget(&mut self) {
        self.found.clear();
        self.since = None;
    }
}

impl Manager {
    /// Finds out what of `definitions` can be had, and what it costs, where that is not known. perf events that count
    /// already are left alone.
    pub(super) fn probe(&self, followed: &mut TrackedTarget, definitions: Vec<Definition>) {
        if followed.probe.since.is_some_and(|since| since.elapsed() > BELIEVED) {
            followed.probe.forget();
        }
        let unknown: Vec<Definition> = definitions
            .into_iter()
            .filter(|definition| {
                let name = definition.name();
                let counts = followed.perf.definitions.contains(definition);
                !counts && !followed.probe.found.contains_key(&name)
            })
            .collect();
        if unknown.is_empty() {
            return;
        }
        let (opened, unavailable) = self.source_factory(followed).open(&followed.target, &unknown);
        // What was opened and has no line of a metric may get one later.
        let mut found: BTreeMap<String, Availability> =
            unknown.iter().map(|definition| (definition.name(), Availability::NotNow)).collect();
        let mut text = ReadBuffer::default();
        for mut opened in opened {
            let mut reading = Reading::absent(opened.source.slots().len());
            opened.source.read(&mut text, &mut reading);
            let read_ns = typical_ns(|| {
                opened.source.read(&mut text, &mut reading);
            });
            for slot in opened.source.slots() {
                let from = Availability::From { source: opened.name.clone(), read_ns };
                found.insert(slot.definition.name(), from);
            }
        }
        for Unavailable { definition, reason } in unavailable {
            found.insert(definition.name(), Availability::No(reason));
        }
        followed.probe.since.get_or_insert_with(Instant::now);
        followed.probe.found.append(&mut found);
    }

    /// What of the catalogue a target has.
    fn metrics(&self, followed: &mut TrackedTarget) -> Vec<MetricView> {
        let Ok(everything) = "*".parse::<Selector>() else { return Vec::new() };
        self.probe(followed, followed.choose(&everything));
        let recent: BTreeMap<String, f64> = self.recent_ns(followed);
        let mut views = BTreeMap::new();
        let probed =
            followed.probe.found.iter().map(|(name, availability)| (name.clone(), availability.clone()));
        let missing = followed.unavailable.iter();
        let missing = missing.map(|(name, reason)| (name.clone(), Availability::No(reason.clone())));
        let sampled = followed.whole().flat_map(|(name, source)| {
            let read_ns = recent.get(name).copied().unwrap_or_default();
            let from = Availability::From { source: name.clone(), read_ns };
            source.slots.iter().map(move |slot| (slot.definition.name(), from.clone()))
        });
        for (name, availability) in probed.chain(missing).chain(sampled) {
            let period = followed.samples(&name).then(|| followed.plan.period(&name)).flatten();
            let period = period.map(|(period, _)| period);
            views.insert(name.clone(), MetricView { name, availability, period });
        }
        views.into_values().collect()
    }

    /// What of the catalogue a job or the node has; none where no such job is followed.
    pub(super) fn metrics_of(&mut self, key: &TargetKey) -> Option<Vec<MetricView>> {
        let mut followed = self.followed.remove(key)?;
        let metrics = self.metrics(&mut followed);
        self.followed.insert(key.clone(), followed);
        Some(metrics)
    }

    /// What a read of each open source took of late, in nanoseconds.
    pub(super) fn recent_ns(&self, followed: &TrackedTarget) -> BTreeMap<String, f64> {
        let pinned = self.stats_cache.of(followed.job.as_ref().map(|job| job.handle));
        let measured = pinned.into_iter().filter(|(_, pinned)| pinned.recent_ns > 0.0);
        measured.map(|(name, pinned)| (name, pinned.recent_ns)).collect()
    }
}

/// What a read takes, in nanoseconds: the lower median, so that one during which the job had the CPU counts for nothing.
fn typical_ns(mut read: impl FnMut()) -> f64 {
    let mut times_ns: Vec<u64> = (1..READS)
        .map(|_| {
            let began_ns = clock::monotonic_ns();
            read();
            clock::monotonic_ns().saturating_sub(began_ns)
        })
        .collect();
    times_ns.sort_unstable();
    let typical = times_ns.get(times_ns.len().saturating_sub(1) / 2).copied().unwrap_or_default();
    f64::from(u32::try_from(typical).unwrap_or(u32::MAX))
}

impl TrackedTarget {
    /// Whether a metric is sampled.
    pub(super) fn samples(&self, name: &str) -> bool {
        let mut slots = self.whole().flat_map(|(_, source)| &source.slots);
        slots.any(|slot| slot.definition.name() == name)
    }

    /// The metrics of this target that a selector chooses.
    pub(super) fn choose(&self, selector: &Selector) -> Vec<Definition> {
        let of_job = self.job.is_some();
        let mut chosen = catalogue::select(selector);
        chosen.retain(|definition| (definition.metric.scope == Scope::Job) == of_job);
        chosen
    }
}
