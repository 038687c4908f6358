//! Call stacks: the functions and stacks of a dictionary, and the samples of frames.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::series::{Identifier, JobHandle};
use polymeter_proto::stacks::{FunctionDescriptor, StackCount, StackDescriptor, StackInterval};
use polymeter_proto::wire::frame::Frame;
use polymeter_store::accepted::{
    FunctionRecord, JobRecord, LedgerLine, LossReason, LossRecord, STACKS_SOURCE, StackBlock, StackRecord,
    StackSamples,
};

use super::cost::{STACK_BYTES, function_cost};
use super::dictionary::{Dictionary, Fault, learn};
use super::id_table::IdTable;

/// The functions and stacks of a session.
#[derive(Debug, Default)]
pub(super) struct StackTable {
    functions: IdTable<Arc<FunctionRecord>>,
    stacks: IdTable<Arc<StackRecord>>,
}

impl StackTable {
    /// Adds a function of `job`. Returns true if it was unknown before.
    pub(super) fn add_function(
        &mut self,
        id: u32,
        job: Arc<JobRecord>,
        descriptor: FunctionDescriptor,
    ) -> Result<bool, Fault> {
        let name = descriptor.name.map(|name| name.as_str().to_owned());
        let module = descriptor.module.map(|module| module.as_str().to_owned());
        let function = FunctionRecord::new(job, name, module);
        let same = |known: &Arc<FunctionRecord>, new: &FunctionRecord| {
            Arc::ptr_eq(&known.job, &new.job) && known.name == new.name && known.module == new.module
        };
        learn(&mut self.functions, id, function, same, Arc::new)
    }

    /// Adds a stack. Returns true if it was unknown before.
    pub(super) fn add_stack(&mut self, id: u32, descriptor: StackDescriptor) -> Result<bool, Fault> {
        let function =
            self.functions.get(descriptor.function.0).cloned().ok_or(Fault::Unknown("function"))?;
        let known = |id: u32| self.stacks.get(id).cloned().ok_or(Fault::Unknown("stack"));
        let parent = descriptor.parent.map(|parent| known(parent.0)).transpose()?;
        let stack = StackRecord::new(parent, function).ok_or(Fault::Contradiction(
            "inconsistent dictionary: a call stack has functions of several jobs, or too many",
        ))?;
        learn(&mut self.stacks, id, stack, |known, new| known.is_same(new), Arc::new)
    }

    /// Removes what belongs to a job. Returns its approximate memory.
    pub(super) fn end_job(&mut self, job: &Arc<JobRecord>) -> usize {
        let mut freed = 0;
        self.stacks.retain(|stack| {
            let keep = !Arc::ptr_eq(&stack.function.job, job);
            freed += if keep { 0 } else { STACK_BYTES };
            keep
        });
        self.functions.retain(|function| {
            let keep = !Arc::ptr_eq(&function.job, job);
            let texts = [&function.name, &function.module];
            freed += if keep { 0 } else { function_cost(texts.map(|text| text.as_deref())) };
            keep
        });
        freed
    }

    /// Returns the stack of a count, which must be of `job`.
    fn of(&self, count: &StackCount, job: &Arc<JobRecord>) -> Result<&Arc<StackRecord>, Fault> {
        let stack = self.stacks.get(count.stack.0).ok_or(Fault::Unknown("stack"))?;
        if Arc::ptr_eq(&stack.function.job, job) {
            return Ok(stack);
        }
        Err(Fault::Contradiction("inconsistent frame: an interval has call stacks of another job"))
    }
}

impl Dictionary {
    /// Checks that all ids of the call stacks of a frame are known.
    pub(super) fn check_stacks(&self, frame: &Frame) -> Result<(), Fault> {
        for interval in &frame.stacks {
            self.metric(interval.metric)?;
            let job = self.job(interval.job)?;
            interval.counts.iter().try_for_each(|count| self.stacks.of(count, &job).map(drop))?;
        }
        Ok(())
    }

    /// Removes the counts with unknown ids from the call stacks of a frame, and returns them as losses.
    pub(super) fn reject_unknown_stacks(&mut self, frame: &mut Frame) -> Vec<LossRecord> {
        let mut losses = Vec::new();
        for mut interval in std::mem::take(&mut frame.stacks) {
            let job = self.metric(interval.metric).and_then(|_| self.job(interval.job));
            let counts = std::mem::take(&mut interval.counts);
            let is_known =
                |count: &StackCount| job.as_ref().is_ok_and(|job| self.stacks.of(count, job).is_ok());
            let (known, unknown): (Vec<_>, Vec<_>) = counts.into_iter().partition(is_known);
            let rejected = StackInterval { counts: unknown, ..interval.clone() };
            losses.push(self.loss_of_stacks(&rejected, LossReason::UnknownId));
            if job.is_ok() {
                interval.counts = known;
                frame.stacks.push(interval);
            }
        }
        losses
    }

    /// Returns the samples of an interval as a loss, of its job if that is known.
    pub(super) fn loss_of_stacks(&mut self, interval: &StackInterval, reason: LossReason) -> LossRecord {
        LossRecord {
            line: self.line_of_stacks(interval.job).ok(),
            samples: interval.samples(),
            reason,
            span_us: (interval.begin_us, interval.end_us),
        }
    }

    /// Returns an interval with its ids replaced by records.
    pub(super) fn resolve_stacks(&mut self, interval: StackInterval) -> Result<StackBlock, Fault> {
        let (line, job) = (self.line_of_stacks(interval.job)?, self.job(interval.job)?);
        let metric = Arc::clone(self.metric(interval.metric)?);
        // Different ids may stand for the same stack.
        let mut samples: BTreeMap<(u32, i64), StackSamples> = BTreeMap::new();
        for count in &interval.counts {
            let stack = self.stacks.of(count, &job)?;
            let new = || StackSamples { process: count.process, stack: Arc::clone(stack), count: 0 };
            let known = samples.entry((count.process, stack.id())).or_insert_with(new);
            known.count = known.count.saturating_add(count.count);
        }
        Ok(StackBlock {
            line,
            job,
            metric,
            span_us: (interval.begin_us, interval.end_us),
            period_us: interval.period.as_micros(),
            samples: samples.into_values().collect(),
            lost: interval.lost,
            throttled: interval.throttled,
            cut: interval.cut,
            unresolved: interval.unresolved,
        })
    }

    fn line_of_stacks(&mut self, job: JobHandle) -> Result<Arc<LedgerLine>, Fault> {
        let source = Identifier::escaped(STACKS_SOURCE.as_bytes()).ok_or(Fault::Unknown("source"))?;
        self.line(Some(job), source)
    }
}
