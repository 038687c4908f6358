//! Approximate memory of dictionary entries.

use polymeter_proto::series::{Identifier, JobDescriptor, Labels};
use polymeter_proto::stacks::FunctionName;
use polymeter_proto::wire::dictionary::Entry;

/// Excludes the text.
pub(super) const ENTRY_BYTES: usize = 256;

pub(super) const STACK_BYTES: usize = 64;

pub(super) fn cost(entry: &Entry) -> usize {
    match entry {
        Entry::Session(session) => {
            ENTRY_BYTES + session.node.as_str().len() + session.agent_version.as_str().len()
        }
        Entry::Metric(_, metric) => ENTRY_BYTES + metric.name.as_str().len(),
        Entry::Job(_, job) => job_cost(job),
        Entry::Series(_, series) => series_cost(&series.labels),
        Entry::Shape(_, shape) => shape_cost(shape.series.len()),
        Entry::Function(_, function) => {
            let name = function.name.as_ref().map(FunctionName::as_str);
            function_cost([name, function.module.as_ref().map(Identifier::as_str)])
        }
        Entry::Stack(..) => STACK_BYTES,
    }
}

pub(super) fn function_cost(texts: [Option<&str>; 2]) -> usize {
    ENTRY_BYTES + texts.into_iter().flatten().map(str::len).sum::<usize>()
}

pub(super) fn job_cost(job: &JobDescriptor) -> usize {
    let names = [Some(&job.job_id), job.cluster.as_ref(), job.owner.as_ref()];
    ENTRY_BYTES + names.into_iter().flatten().map(|name| name.as_str().len()).sum::<usize>()
}

pub(super) fn series_cost(labels: &Labels) -> usize {
    ENTRY_BYTES + labels.role().map_or(0, |role| role.as_str().len()) + labels.identity().len()
}

pub(super) const fn shape_cost(columns: usize) -> usize {
    ENTRY_BYTES + columns * size_of::<usize>()
}
