//! Values of a group of events, and their meaning.

use std::ops::Range;

use polymeter_proto::catalogue::derived::times_of;
use polymeter_proto::catalogue::{self, Definition, Scope};
use polymeter_proto::limits;
use polymeter_proto::series::Labels;

use super::event_config::Config;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;

/// Name of a group of hardware events: the names of all, or of the first if they are too long for a label;
/// `None` for software events.
fn group_name(definitions: &[Definition]) -> Option<String> {
    let mut hardware =
        definitions.iter().filter(|definition| definition.is_of_hardware()).map(Definition::name);
    let first = hardware.next()?;
    let all = hardware.fold(first.clone(), |names, name| format!("{names}+{name}"));
    Some(if all.len() <= limits::LABEL_VALUE_BYTES { all } else { first })
}

/// Words before the values of a group: their number, and the two times.
pub(super) const GROUP_WORDS: usize = 3;

/// Adds to a sum, if there is one at this place.
pub(super) fn add(sums: &mut [u64], place: usize, more: u64) {
    if let Some(sum) = sums.get_mut(place) {
        *sum = sum.wrapping_add(more);
    }
}

/// Slots of a source that counts these events: their values, and the times of a group of hardware events.
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
    let mut slots: Vec<_> = definitions
        .iter()
        .map(|definition| Slot { definition: definition.clone(), labels: labels(None) })
        .collect();
    // Software events are never multiplexed; the times of a hardware group give the time for which it
    // counted.
    if let Some(group) = group_name(definitions) {
        let scope = definitions.first().map_or(Scope::Job, |first| first.metric.scope);
        for name in times_of(scope) {
            let labels = labels(Some(("group".to_owned(), group.clone())));
            slots.extend(catalogue::find(name).map(|definition| Slot { definition, labels: labels.clone() }));
        }
    }
    slots
}

/// Sets the values of events, whose sums follow those of the group, and its times where they have slots. Does
/// not allocate.
pub(super) fn set(sums: &[u64], configs: &[Config], slots: Range<usize>, reading: &mut Reading) {
    let values = sums.iter().skip(GROUP_WORDS).zip(configs).map(|(sum, config)| config.bits(*sum));
    let times = sums.iter().skip(1).take(2).copied();
    for (slot, bits) in slots.zip(values.chain(times)) {
        reading.set(u32::try_from(slot).unwrap_or(u32::MAX), bits);
    }
}
