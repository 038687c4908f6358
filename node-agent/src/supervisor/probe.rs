//! Trial reads: sources that are not sampled are opened, read a few times, and closed.

use std::collections::BTreeMap;

use polymeter_proto::catalogue::Definition;
use polymeter_service::clock;

use crate::request::Availability;
use crate::sources::{Opened, ReadBuffer, Reading, Unavailable};

/// A first read, which locates the lines, does not count.
const READS: u32 = 5;

/// Availability of the metrics in `definitions` and their read time, by trial reads of the sources `opened`
/// for them. The metrics in `unavailable` could not be opened.
pub(super) fn try_out(
    definitions: &[Definition],
    opened: Vec<Opened>,
    unavailable: Vec<Unavailable>,
) -> BTreeMap<String, Availability> {
    // An opened source without a line of a metric may get one later.
    let mut found: BTreeMap<String, Availability> =
        definitions.iter().map(|definition| (definition.name(), Availability::NotNow)).collect();
    let mut text = ReadBuffer::default();
    for mut opened in opened {
        let mut reading = Reading::absent(opened.source.slots().len());
        opened.source.read(&mut text, &mut reading);
        let read_ns = typical_ns(|| {
            opened.source.read(&mut text, &mut reading);
        });
        for slot in opened.source.slots() {
            let refresh_interval = opened.source.refresh_interval().get();
            let from = Availability::From { source: opened.name.clone(), read_ns, refresh_interval };
            found.insert(slot.definition.name(), from);
        }
    }
    for Unavailable { definition, reason, .. } in unavailable {
        let known = found.entry(definition.name()).or_insert(Availability::NotNow);
        // A part of it may be available.
        if *known == Availability::NotNow {
            *known = Availability::No(reason);
        }
    }
    found
}

/// Time of a read: the lower median, so that a read during which the job had the CPU does not count.
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
