//! The last answer of the store about its state.

use tokio::sync::Mutex;

/// The last answer of the store, and its time. Requests wait for one that asks the store.
#[derive(Debug, Default)]
pub(crate) struct Readiness(pub(crate) Mutex<Option<(bool, u64)>>);
