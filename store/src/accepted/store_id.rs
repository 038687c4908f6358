//! Id that the store assigns to a record.

use std::sync::atomic::{AtomicI64, Ordering};

/// Id of a record in the store, once it is committed. A collector keeps one for each series of each node, for
/// which the 16 bytes of a `OnceLock` are too many.
#[derive(Debug)]
pub struct StoreId(AtomicI64);

/// Value of a record without an id: no store assigns it.
const NONE: i64 = i64::MIN;

impl StoreId {
    pub const fn none() -> Self {
        Self(AtomicI64::new(NONE))
    }

    pub fn get(&self) -> Option<i64> {
        // The id itself is all that is exchanged between threads.
        Some(self.0.load(Ordering::Relaxed)).filter(|id| *id != NONE)
    }

    /// Assigns the id, unless there is one.
    pub fn assign(&self, id: i64) {
        // With another id the record keeps the first one.
        self.0.compare_exchange(NONE, id, Ordering::Relaxed, Ordering::Relaxed).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_assigned_once() {
        let id = StoreId::none();
        assert_eq!(id.get(), None);
        id.assign(0);
        id.assign(7);
        assert_eq!(id.get(), Some(0));
    }
}
