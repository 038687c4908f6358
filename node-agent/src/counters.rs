//! What the agent counts of itself, for everybody to read without a lock.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Totals since the agent began. The sampler and the sender write, each its own; everybody reads.
#[derive(Debug, Default)]
#[expect(
    missing_docs,
    reason = "the catalogue describes each under the same name: agent.samples.due and so on"
)]
pub struct Counters {
    pub due: AtomicU64,
    pub taken: AtomicU64,
    pub late: AtomicU64,
    pub missed: AtomicU64,
    pub absent: AtomicU64,
    pub dropped: AtomicU64,
    pub frames_sent: AtomicU64,
    pub bytes_sent: AtomicU64,
    pub frames_acknowledged: AtomicU64,
    pub outbox_bytes: AtomicU64,
    pub outbox_dropped: AtomicU64,
    pub spool_bytes: AtomicU64,
    pub refused: AtomicU64,
    pub jobs: AtomicU64,
    pub sources: AtomicU64,
}

impl Counters {
    /// Samples that were read and found no room on the way to the collector: in the batch, or in the outbox.
    pub fn all_dropped(&self) -> u64 {
        self.dropped.load(Relaxed) + self.outbox_dropped.load(Relaxed)
    }
}
