//! Agent's own counters, which all threads read without a lock.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex};

use crate::mutex::lock;

/// Totals since the agent began. The sampler and the sender each write their own; all threads read.
#[derive(Debug, Default)]
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
    pub jobs_left_out: AtomicU64,
    pub descriptors: AtomicU64,
    pub descriptor_limit: AtomicU64,
    pub unknown_lines: AtomicU64,
    pub collector: CollectorState,
}

/// CPU time of the agent for one job, which the sampler computes and the job's source `agent` reads.
#[derive(Debug, Default)]
pub struct CpuAccount {
    total_ns: AtomicU64,
}

impl CpuAccount {
    pub fn total_ns(&self) -> u64 {
        self.total_ns.load(Relaxed)
    }

    /// Adds CPU time. Only the sampler's thread does so.
    pub(crate) fn add(&self, cpu_ns: u64) {
        self.total_ns.store(self.total_ns().saturating_add(cpu_ns), Relaxed);
    }
}

/// State of the connection to the collector. Times are in microseconds since the epoch; 0 for never.
#[derive(Debug, Default)]
pub struct CollectorState {
    pub is_connected: AtomicBool,
    pub since_us: AtomicI64,
    pub acknowledged_us: AtomicI64,
    /// Endpoint of the collector that is used. Only a move and reports of the state lock it.
    endpoint: Mutex<Arc<str>>,
    /// Version that the collector has told.
    version: Mutex<Option<Arc<str>>>,
}

impl CollectorState {
    pub fn endpoint(&self) -> Arc<str> {
        Arc::clone(&lock(&self.endpoint))
    }

    pub(crate) fn moved(&self, endpoint: &str) {
        *lock(&self.endpoint) = Arc::from(endpoint);
        *lock(&self.version) = None;
    }

    pub fn version(&self) -> Option<Arc<str>> {
        lock(&self.version).clone()
    }

    pub(crate) fn set_version(&self, version: &str) {
        *lock(&self.version) = Some(Arc::from(version));
    }

    /// Records the state of the connection, and the time at which it changed.
    pub(crate) fn changed(&self, is_connected: bool, now_us: i64) {
        let before = self.is_connected.swap(is_connected, Relaxed);
        if before != is_connected || self.since_us.load(Relaxed) == 0 {
            self.since_us.store(now_us, Relaxed);
        }
    }
}

impl Counters {
    /// Number of samples that were read and dropped for lack of room: in the batch, or in the outbox.
    pub fn all_dropped(&self) -> u64 {
        self.dropped.load(Relaxed) + self.outbox_dropped.load(Relaxed)
    }
}
