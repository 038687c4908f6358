//! Values by compact ids.

use std::collections::HashMap;

/// Ids that a vector may have unused, besides as many as it has in use.
const UNUSED_MIN: usize = 16;

/// Values of ids. An agent assigns its ids in order from 0, so most are positions in a vector: that takes
/// half the memory of a hash table. Ids that would leave most of the vector unused, as those of a later job
/// of a long session, are in a hash table.
#[derive(Debug)]
pub(super) struct IdTable<V> {
    low: Vec<Option<V>>,
    /// Values in `low`.
    low_used: usize,
    high: HashMap<u32, V>,
}

impl<V> Default for IdTable<V> {
    fn default() -> Self {
        Self { low: Vec::new(), low_used: 0, high: HashMap::new() }
    }
}

impl<V> IdTable<V> {
    pub(super) fn get(&self, id: u32) -> Option<&V> {
        match self.low.get(position(id)) {
            Some(Some(value)) => Some(value),
            // It may have been added while the vector was shorter.
            Some(None) | None if self.high.is_empty() => None,
            Some(None) | None => self.high.get(&id),
        }
    }

    /// The id must have none.
    pub(super) fn insert(&mut self, id: u32, value: V) {
        let position = position(id);
        if position >= 2 * self.low_used + UNUSED_MIN {
            self.high.insert(id, value);
            return;
        }
        if position >= self.low.len() {
            self.low.resize_with(position + 1, || None);
        }
        if let Some(place) = self.low.get_mut(position) {
            self.low_used += usize::from(place.is_none());
            *place = Some(value);
        }
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) {
        for place in &mut self.low {
            if place.as_ref().is_some_and(|value| !keep(value)) {
                *place = None;
                self.low_used -= 1;
            }
        }
        self.high.retain(|_, value| keep(value));
        while self.low.len() > 2 * self.low_used + UNUSED_MIN
            && let Some(last) = self.low.pop()
        {
            if let (Some(value), Ok(id)) = (last, u32::try_from(self.low.len())) {
                self.low_used -= 1;
                self.high.insert(id, value);
            }
        }
        self.low.shrink_to(2 * self.low.len());
        self.high.shrink_to(2 * self.high.len());
    }
}

fn position(id: u32) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::hash_map::Entry;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_high_id_takes_no_more_memory_than_a_low_one() {
        let mut table = IdTable::default();
        (0..50).for_each(|id| table.insert(id, id));
        table.insert(u32::MAX, 7);
        assert_eq!((table.low.len(), table.high.len()), (50, 1));
        assert_eq!((table.get(u32::MAX), table.get(49), table.get(50)), (Some(&7), Some(&49), None));
        table.retain(|value| *value < 10);
        assert_eq!((table.low.len(), table.low_used, table.high.len()), (2 * 10 + UNUSED_MIN, 10, 1));
        table.retain(|value| *value == 9);
        assert_eq!((table.low.len(), table.low_used, table.high.len()), (2 + UNUSED_MIN, 1, 0));
    }

    proptest! {
        #[test]
        fn a_table_has_what_a_map_has(steps in prop::collection::vec((any::<bool>(), 0_u32..200), 0..300)) {
            let (mut table, mut map) = (IdTable::default(), HashMap::new());
            for (is_insertion, number) in steps {
                if is_insertion {
                    if let Entry::Vacant(free) = map.entry(number) {
                        table.insert(number, number);
                        free.insert(number);
                    }
                } else {
                    table.retain(|value| value % 7 != number % 7);
                    map.retain(|_, value| *value % 7 != number % 7);
                }
                prop_assert!(table.low.len() <= 2 * table.low_used + UNUSED_MIN);
            }
            for id in 0..220 {
                prop_assert_eq!(table.get(id), map.get(&id));
            }
            prop_assert_eq!(table.low.iter().flatten().count(), table.low_used);
        }
    }
}
