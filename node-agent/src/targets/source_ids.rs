//! Ids of sources in the sampler. An id is reused only after the sampler has returned its source.

use std::collections::{BTreeMap, BTreeSet};

use super::key::TargetKey;
use crate::lanes::SourceId;

#[derive(Debug, Default)]
pub(crate) struct SourceIds {
    targets: BTreeMap<SourceId, TargetKey>,
    free: BTreeSet<SourceId>,
    next: u32,
}

impl SourceIds {
    pub(crate) fn assign(&mut self, target: &TargetKey) -> SourceId {
        let id = self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            SourceId(self.next - 1)
        });
        self.targets.insert(id, target.clone());
        id
    }

    pub(crate) fn release(&mut self, id: SourceId) {
        if self.targets.remove(&id).is_some() {
            self.free.insert(id);
        }
    }

    pub(crate) fn target(&self, id: SourceId) -> Option<&TargetKey> {
        self.targets.get(&id)
    }

    /// Sources in the sampler, including those about to be returned.
    pub(crate) fn len(&self) -> usize {
        self.targets.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_in_flight_is_not_assigned_again() {
        let mut ids = SourceIds::default();
        let first = ids.assign(&None);
        let second = ids.assign(&None);
        assert_ne!(first, second);
        assert_eq!(ids.len(), 2);
        ids.release(first);
        ids.release(first);
        assert_eq!(ids.assign(&None), first, "an id that was given back is used again");
        assert_eq!(ids.assign(&None), SourceId(2), "an id released twice is assigned once");
        assert!(ids.target(second).is_some() && ids.target(SourceId(9)).is_none());
    }
}
