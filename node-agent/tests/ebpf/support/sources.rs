//! Sources of jobs.

use std::path::Path;

use polymeter_agent::cgroups::Mounts;
use polymeter_agent::sources::{Opened, ReadBuffer, Reading, SourceFactory, Target};
use polymeter_proto::catalogue;
use polymeter_test_harness::skip;

use super::cgroup::target_of;

/// Opens the source of the metrics that a pattern selects, as `network.*`. Returns the reason if they are
/// unavailable.
pub(crate) fn open_target(metrics: &str, target: &Target) -> Result<Opened, String> {
    let mounts = Mounts::read(Path::new("/")).unwrap();
    let factory = SourceFactory { ebpf: true, ..SourceFactory::of(&mounts) };
    let wanted = catalogue::select(&metrics.parse().unwrap());
    assert!(!wanted.is_empty());
    let (mut opened, unavailable) = factory.open(target, &wanted);
    match opened.pop() {
        Some(one) => {
            assert!(opened.is_empty() && unavailable.is_empty());
            Ok(one)
        }
        None => {
            assert_eq!(unavailable.len(), wanted.len());
            Err(unavailable[0].reason.clone())
        }
    }
}

pub(crate) fn open(metrics: &str, cgroup: &Path) -> Result<Opened, String> {
    open_target(metrics, &target_of(cgroup))
}

/// Skips the test if the source is unavailable.
pub(crate) fn counted(metrics: &str, cgroup: &Path) -> Opened {
    counted_target(metrics, &target_of(cgroup))
}

/// Skips the test if the source is unavailable.
pub(crate) fn counted_target(metrics: &str, target: &Target) -> Opened {
    open_target(metrics, target).unwrap_or_else(|reason| skip("ebpf", &reason))
}

/// Reads the source: the value of each slot, by `METRIC` or `METRIC{LABELS}`.
pub(crate) fn values(opened: &mut Opened) -> Vec<(String, u64)> {
    let mut reading = Reading::absent(opened.source.slots().len());
    assert!(opened.source.read(&mut ReadBuffer::default(), &mut reading).has_values());
    let slots = opened.source.slots().iter().zip(reading.iter());
    let named = slots.filter_map(|(slot, value)| {
        let labels = if slot.labels.is_empty() { String::new() } else { format!("{{{}}}", slot.labels) };
        Some((slot.definition.name() + &labels, value?))
    });
    named.collect()
}

pub(crate) fn value(values: &[(String, u64)], name: &str) -> u64 {
    values.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("no {name} in {values:?}")).1
}

/// Reads the network's source: received bytes and packets, transmitted bytes and packets.
pub(crate) fn read_network(opened: &mut Opened) -> [u64; 4] {
    let values = values(opened);
    let quantities = ["receive.bytes", "receive.packets", "transmit.bytes", "transmit.packets"];
    quantities.map(|quantity| value(&values, &format!("network.{quantity}")))
}
