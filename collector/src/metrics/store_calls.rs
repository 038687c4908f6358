//! Whether the store answers, as the writers' last operations found it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use polymeter_service::clock::monotonic_ns;

use crate::limits;

#[derive(Debug, Clone, Default)]
pub(crate) struct StoreCalls(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// 0 while no operation is in progress.
    began_ns: AtomicU64,
    failed: AtomicBool,
}

impl StoreCalls {
    pub(crate) fn begin(&self) {
        self.0.began_ns.store(monotonic_ns(), Relaxed);
    }

    pub(crate) fn end(&self, has_answered: bool) {
        self.0.failed.store(!has_answered, Relaxed);
        self.0.began_ns.store(0, Relaxed);
    }

    /// Returns false if the last operation failed, or one takes longer than any does whose store answers.
    fn answers(&self, now_ns: u64) -> bool {
        let began_ns = self.0.began_ns.load(Relaxed);
        let longest_ns = u64::try_from(limits::STORE_ANSWERS.as_nanos()).unwrap_or(u64::MAX);
        !self.0.failed.load(Relaxed) && (began_ns == 0 || now_ns.saturating_sub(began_ns) < longest_ns)
    }
}

#[derive(Debug, Default)]
pub(super) struct AllStoreCalls(Mutex<Vec<StoreCalls>>);

impl AllStoreCalls {
    pub(super) fn add(&self) -> StoreCalls {
        let calls = StoreCalls::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(calls.clone());
        calls
    }

    pub(super) fn answer(&self) -> bool {
        let now_ns = monotonic_ns();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().all(|calls| calls.answers(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_answers_unless_its_last_operation_failed_or_hangs() {
        let all = AllStoreCalls::default();
        let (first, second) = (all.add(), all.add());
        first.begin();
        assert!(all.answer());
        second.begin();
        second.end(false);
        assert!(!all.answer());
        second.begin();
        second.end(true);
        assert!(all.answer());
        let later_ns = monotonic_ns() + 2 * u64::try_from(limits::STORE_ANSWERS.as_nanos()).unwrap();
        assert!(!first.answers(later_ns) && second.answers(later_ns));
    }
}
