//! What the sessions of a writer share: copies of what thousands of them announce alike, metrics and the
//! labels of series.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use polymeter_proto::series::{Labels, MetricDescriptor};

const KEPT_MIN: usize = 1024;

/// Shared by the sessions of one writer.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) metrics: Copies<MetricDescriptor>,
    pub(super) labels: Copies<Labels>,
}

/// One copy of each value while it is in use.
#[derive(Debug)]
pub(super) struct Copies<T> {
    known: HashSet<Arc<T>>,
    /// Unused values are removed at this number.
    clean_at: usize,
}

impl<T> Default for Copies<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), clean_at: KEPT_MIN }
    }
}

impl<T: Hash + Eq> Copies<T> {
    pub(super) fn share(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.known.get(&value) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.clean_at {
            self.known.retain(|value| Arc::strong_count(value) > 1);
            self.known.shrink_to(KEPT_MIN);
            // Each value is examined once for each other one that is added.
            self.clean_at = KEPT_MIN.max(2 * self.known.len());
        }
        let value = Arc::new(value);
        self.known.insert(Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_one_copy_while_it_is_in_use() {
        let mut copies = Copies::default();
        let used: Vec<_> = (0..2 * KEPT_MIN).map(|number| copies.share(number)).collect();
        assert!(Arc::ptr_eq(&copies.share(5), &used[5]));
        assert_eq!(copies.known.len(), 2 * KEPT_MIN);
        drop(used);
        for number in 0..100 * KEPT_MIN {
            drop(copies.share(number));
            assert!(copies.known.len() <= 4 * KEPT_MIN);
        }
    }
}
