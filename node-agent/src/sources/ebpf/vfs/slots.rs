//! Values of a source.

use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::Labels;

use super::super::fields::{KIND, VFS};
use super::super::tracing::{LIMITS_NS, up_to};
use super::system_calls::Operation;
use crate::sources::kind::metrics_of;
use crate::sources::slot::Slot;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    Bytes,
    Time,
    Count,
    /// Operations up to the limit of this number.
    Bucket(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) operation: Operation,
    pub(super) device: usize,
    pub(super) quantity: Quantity,
}

pub(super) fn slots(mounted: &[(usize, String)]) -> impl Iterator<Item = (Slot, Value)> {
    metrics_of(KIND)
        .filter_map(|metric| {
            let definition = Definition::of(metric);
            let field = metric.field_of(KIND);
            let (operation, quantity) = field.filter(|field| VFS.contains(field)).and_then(meaning)?;
            Some((definition, operation, quantity))
        })
        .flat_map(move |(definition, operation, quantity)| {
            mounted.iter().flat_map(move |(device, point)| {
                let definition = definition.clone();
                labels(quantity, point).into_iter().map(move |(labels, quantity)| {
                    let value = Value { operation, device: *device, quantity };
                    (Slot { definition: definition.clone(), labels }, value)
                })
            })
        })
}

/// Operation and quantity of a field: `read_bytes`. The quantity of a histogram is its first bucket.
fn meaning(field: &str) -> Option<(Operation, Quantity)> {
    let (operation, quantity) = field.split_once('_')?;
    let operation = match operation {
        "read" => Operation::Read,
        "write" => Operation::Write,
        "open" => Operation::Open,
        "sync" => Operation::Sync,
        _ => return None,
    };
    let quantity = match quantity {
        "bytes" => Quantity::Bytes,
        "time" => Quantity::Time,
        "count" => Quantity::Count,
        "bucket" => Quantity::Bucket(0),
        _ => return None,
    };
    Some((operation, quantity))
}

fn labels(quantity: Quantity, point: &str) -> Vec<(Labels, Quantity)> {
    let mount = [("mount".to_owned(), point.to_owned())];
    match quantity {
        Quantity::Bucket(_) => (0..)
            .zip(LIMITS_NS)
            .filter_map(|(index, limit_ns)| Some((up_to(limit_ns, &mount)?, Quantity::Bucket(index))))
            .collect(),
        Quantity::Bytes | Quantity::Time | Quantity::Count => {
            Labels::escaped(mount.to_vec()).ok().map(|labels| (labels, quantity)).into_iter().collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_system_has_series_of_its_own() {
        let mounted = [(0, "/".to_owned()), (3, "/scratch".to_owned())];
        let slots: Vec<(Slot, Value)> = slots(&mounted).collect();
        // Bytes of two operations; time, count and histogram of four; each on two file systems.
        assert_eq!(slots.len(), 2 * (2 + 4 * (2 + LIMITS_NS.len())));
        assert_eq!(VFS.len(), 2 + 4 * 3);
        let written = slots.iter().find(|(slot, _)| slot.labels.to_string() == "mount=/scratch").unwrap();
        assert_eq!(written.1.device, 3);
        assert!(slots.iter().any(|(slot, _)| slot.labels.to_string() == "le=0.001,mount=/scratch"));
    }
}
