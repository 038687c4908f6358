//! Triggers: evaluates rules on the samples of jobs and on their ends. The supervisor acts on what fires.
//!
//! The sender passes the samples of each batch, before these go into a frame; the sampler is not involved.

mod evaluator;
mod gpu_errors;
mod job_triggers;
mod rule_state;

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use polymeter_proto::ledger::{Event, JobOwner};
use tokio::sync::Notify;

pub use self::evaluator::{AddError, Listed};
pub(crate) use self::evaluator::{Evaluator, Fired};
use self::job_triggers::Voice;
use crate::lanes::SampleBatch;
use crate::mutex::lock;

/// Shared by the sender, which passes samples, and the supervisor, which has the rules.
#[derive(Debug)]
pub(crate) struct Triggers {
    evaluator: Mutex<Evaluator>,
    has_rules: AtomicBool,
    fired: Notify,
}

impl Triggers {
    /// `started_us` is the start of the agent, in microseconds since the epoch.
    pub(crate) fn new(started_us: i64) -> Self {
        Self {
            evaluator: Mutex::new(Evaluator::new(started_us)),
            has_rules: AtomicBool::new(false),
            fired: Notify::new(),
        }
    }

    /// Evaluates the rules on a batch. Costs nothing without rules.
    pub(crate) fn take(&self, flushed: &SampleBatch, now_us: i64) {
        if !self.has_rules.load(Acquire) {
            return;
        }
        self.change(|evaluator| {
            evaluator.samples(&flushed.ring, Voice::Ring);
            evaluator.samples(&flushed.batch, Voice::Plan);
            for record in &flushed.events {
                if let Event::JobEnded { job, at_us } = record.event {
                    evaluator.ended(job, at_us, now_us);
                } else if let Event::JobOwner(JobOwner { job, uid: Some(uid), .. }) = record.event {
                    evaluator.learn_owner(job, uid);
                }
            }
            evaluator.gpu_errors(&flushed.batch);
            evaluator.forget_ended(now_us);
        });
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Evaluator) -> T) -> T {
        let mut evaluator = lock(&self.evaluator);
        let changed = change(&mut evaluator);
        self.has_rules.store(evaluator.has_rules(), Release);
        if evaluator.has_fired() {
            self.fired.notify_one();
        }
        changed
    }

    /// Waits until a rule has fired.
    pub(crate) async fn wait(&self) {
        self.fired.notified().await;
    }
}
