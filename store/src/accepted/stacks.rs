//! Call stacks of jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polymeter_proto::series::MetricDescriptor;

use super::records::{JobRecord, LedgerLine};
use crate::digest::digest_id;

/// Functions of a stack at most. Agents cut longer ones. A stack holds its callers, which are released one
/// within the other.
pub const STACK_DEPTH: usize = 512;

/// True if a record is in the store. It may be stored again, and is not stored twice.
#[derive(Debug, Default)]
pub(crate) struct Stored(AtomicBool);

impl Stored {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub struct FunctionRecord {
    pub job: Arc<JobRecord>,
    /// None without a symbol.
    pub name: Option<String>,
    /// Base name of its file; none if it is unknown.
    pub module: Option<String>,
    /// Id within the job, the same on all of its nodes.
    pub(crate) id: i64,
}

impl FunctionRecord {
    pub fn new(job: Arc<JobRecord>, name: Option<String>, module: Option<String>) -> Self {
        let id = digest_id(&[name.as_deref(), module.as_deref()].map(|text| text.map(str::as_bytes)));
        Self { job, name, module, id }
    }
}

#[derive(Debug)]
pub struct StackRecord {
    /// Stack of the caller; none for an outermost function.
    pub parent: Option<Arc<StackRecord>>,
    pub function: Arc<FunctionRecord>,
    depth: usize,
    /// Id within the job, the same on all of its nodes.
    pub(crate) id: i64,
    pub(crate) stored: Stored,
}

impl StackRecord {
    /// Returns none if the stack would have more than [`STACK_DEPTH`] functions, or several jobs.
    pub fn new(parent: Option<Arc<StackRecord>>, function: Arc<FunctionRecord>) -> Option<Self> {
        let depth = parent.as_ref().map_or(0, |parent| parent.depth) + 1;
        let is_of_one_job =
            parent.as_ref().is_none_or(|parent| Arc::ptr_eq(&parent.function.job, &function.job));
        if depth > STACK_DEPTH || !is_of_one_job {
            return None;
        }
        let caller = parent.as_ref().map(|parent| parent.id.to_le_bytes());
        let id = digest_id(&[caller.as_ref().map(<[u8; 8]>::as_slice), Some(&function.id.to_le_bytes())]);
        Some(Self { parent, function, depth, id, stored: Stored::default() })
    }

    pub const fn id(&self) -> i64 {
        self.id
    }

    /// Returns true if both are of the same job, and have functions of the same names.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.function.job, &other.function.job) && self.id == other.id
    }
}

#[derive(Debug, Clone)]
pub struct StackSamples {
    /// Process id on the node.
    pub process: u32,
    pub stack: Arc<StackRecord>,
    pub count: u64,
}

#[derive(Debug)]
pub struct StackBlock {
    pub line: Arc<LedgerLine>,
    pub job: Arc<JobRecord>,
    pub metric: Arc<MetricDescriptor>,
    /// Begin and end, in microseconds since the epoch.
    pub span_us: (i64, i64),
    /// Time that a sample stands for.
    pub period_us: u64,
    /// Each process and stack once.
    pub samples: Vec<StackSamples>,
    /// Samples that did not arrive.
    pub lost: u64,
    /// How often the kernel slowed the sampling.
    pub throttled: u64,
    /// Samples without their outermost functions.
    pub cut: u64,
    /// Samples whose innermost function has no symbol.
    pub unresolved: u64,
}

impl StackBlock {
    pub fn count(&self) -> u64 {
        self.samples.iter().fold(0, |sum, samples| sum.saturating_add(samples.count))
    }

    /// Returns the middle of the interval, in microseconds since the epoch.
    pub const fn middle_us(&self) -> i64 {
        let (begin_us, end_us) = self.span_us;
        begin_us.saturating_add(end_us.saturating_sub(begin_us) / 2)
    }

    pub(crate) fn length_us(&self) -> u64 {
        u64::try_from(self.span_us.1.saturating_sub(self.span_us.0)).unwrap_or(0)
    }
}
