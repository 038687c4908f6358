//! The values of a group of events, and their meaning.

use polymeter_proto::catalogue::perf::PerfEvent;
use polymeter_proto::catalogue::{self, Definition};
use polymeter_proto::series::Labels;

use super::events::event;
use crate::sources::slot::Slot;

/// The number of words before the values of a group: their number, and the two times.
pub(super) const GROUP_WORDS: usize = 3;

/// Returns the slots of a source that counts these events: their values, and the times of a group of hardware
/// events.
pub(super) fn slots(
    definitions: &[Definition],
    user_only: bool,
    target_labels: &[(String, String)],
) -> Vec<Slot> {
    // Without the right to count the kernel, only user mode is counted, which is another series.
    let mode = user_only.then(|| ("mode".to_owned(), "user".to_owned()));
    let labels = |more: Option<(String, String)>| {
        Labels::escaped(target_labels.iter().chain(&mode).cloned().chain(more).collect()).unwrap_or_default()
    };
    let slot = |definition: &Definition| Slot { definition: definition.clone(), labels: labels(None) };
    let mut slots: Vec<_> = definitions.iter().map(slot).collect();
    let is_hardware = |definition: &&Definition| {
        !matches!(event(definition), Some(PerfEvent::Software(_) | PerfEvent::Tracepoint))
    };
    // Software events are never multiplexed; the times of a hardware group give the time for which it
    // counted.
    if let Some(first) = definitions.iter().find(is_hardware) {
        for name in ["perf.time_enabled", "perf.time_running"] {
            let labels = labels(Some(("group".to_owned(), first.name())));
            slots.extend(catalogue::find(name).map(|definition| Slot { definition, labels: labels.clone() }));
        }
    }
    slots
}
