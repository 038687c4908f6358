//! Functions and stacks of the dictionary of one session.

use std::sync::Arc;

use polymeter_proto::stacks::{FunctionDescriptor, StackCount, StackDescriptor};
use polymeter_store::accepted::{FunctionRecord, JobRecord, StackRecord};

use super::cost::{STACK_BYTES, function_cost};
use super::fault::{Fault, learn};
use super::id_table::IdTable;

#[derive(Debug, Default)]
pub(super) struct StackTable {
    functions: IdTable<Arc<FunctionRecord>>,
    stacks: IdTable<Arc<StackRecord>>,
}

impl StackTable {
    /// Returns true if it was unknown before.
    pub(super) fn add_function(
        &mut self,
        id: u32,
        job: Arc<JobRecord>,
        descriptor: FunctionDescriptor,
    ) -> Result<bool, Fault> {
        let name = descriptor.name.map(|name| name.as_str().to_owned());
        let module = descriptor.module.map(|module| module.as_str().to_owned());
        let function = FunctionRecord::new(job, name, module);
        learn(&mut self.functions, id, function, is_same_function, Arc::new)
    }

    /// Returns true if it was unknown before.
    pub(super) fn add_stack(&mut self, id: u32, descriptor: StackDescriptor) -> Result<bool, Fault> {
        let function =
            self.functions.get(descriptor.function.0).cloned().ok_or(Fault::Unknown("function"))?;
        let parent = descriptor.parent.map(|parent| self.stacks.get(parent.0).cloned());
        let parent = parent.map(|known| known.ok_or(Fault::Unknown("stack"))).transpose()?;
        let stack = StackRecord::new(parent, function).ok_or(Fault::Contradiction(
            "inconsistent dictionary: a call stack has functions of several jobs, or too many",
        ))?;
        learn(&mut self.stacks, id, stack, |known, new| known.is_same(new), Arc::new)
    }

    /// Returns the approximate memory of what is removed.
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

    /// The stack must be of `job`.
    pub(super) fn of(&self, count: &StackCount, job: &Arc<JobRecord>) -> Result<&Arc<StackRecord>, Fault> {
        let stack = self.stacks.get(count.stack.0).ok_or(Fault::Unknown("stack"))?;
        if Arc::ptr_eq(&stack.function.job, job) {
            return Ok(stack);
        }
        Err(Fault::Contradiction("inconsistent frame: an interval has call stacks of another job"))
    }
}

fn is_same_function(known: &Arc<FunctionRecord>, new: &FunctionRecord) -> bool {
    Arc::ptr_eq(&known.job, &new.job) && known.name == new.name && known.module == new.module
}
