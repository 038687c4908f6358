//! Waits of the processes of a job for a CPU, while they are ready to run: one program for all jobs, on each
//! switch of a CPU to another task.

mod program;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::Labels;

use super::cgroup::Attachment;
use super::fields::{KIND, WAIT_BUCKET, WAIT_COUNT, WAIT_TIME};
use super::loading::{TracingPlace, attach_tracing_program, load_tracing_program};
use super::map::{Sizes, create_cache};
use super::map_counters::Counters;
use super::possible_cpus::possible_cpus;
use super::reason::{EbpfError, Step};
use super::tracing::{
    BUCKETS, CgroupHierarchy, JobTable, Known, LIMITS_NS, Running, choose, read_types, up_to,
};
use crate::sources::custom_source::CustomSource;
use crate::sources::kind::{OpenRequest, metrics_of};
use crate::sources::outcome::Outcome;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;
use program::{FIRST_BUCKET, LINE_BYTES, TASK_KEY_BYTES, TIME, Types, count_waits};

/// Bound of the threads of jobs whose waits in the queues of several CPUs are added up. For further ones only
/// the wait in the last queue is counted.
const TASKS_MAX: u32 = 16_384;

const COUNTERS: usize = FIRST_BUCKET + BUCKETS;

/// Program for the jobs of one hierarchy. It ends with its link.
#[derive(Debug)]
struct WaitProgram {
    table: Arc<JobTable>,
    _link: OwnedFd,
}

static RUNNING: Running<WaitProgram> = Running::new();

static TYPES: Known<Types> = Known::new();

impl WaitProgram {
    fn start(hierarchy: CgroupHierarchy, root: &Path) -> Result<Self, EbpfError> {
        let fault = |error| Step::Trace.refused(error);
        let types = TYPES.get(hierarchy, || Types::of(&read_types(root)?, hierarchy))?;
        let table = JobTable::create(possible_cpus(root)?, LINE_BYTES).map_err(fault)?;
        let sizes = Sizes { key_bytes: TASK_KEY_BYTES, value_bytes: 8, entries: TASKS_MAX };
        let tasks = create_cache(c"polymeter_tasks", sizes).map_err(fault)?;
        let instructions = count_waits(&types, table.maps(), tasks.as_fd()).ok_or(EbpfError::TooLong)?;
        let program =
            load_tracing_program(c"polymeter_wait", TracingPlace::Tracepoint, types.switch, &instructions);
        let link = program.and_then(|program| attach_tracing_program(program.as_fd())).map_err(fault)?;
        Ok(Self { table, _link: link })
    }
}

/// Waits of one job. They begin at 0 when the source is opened.
#[derive(Debug)]
pub(super) struct RunqueueSource {
    slots: Vec<Slot>,
    quantities: Vec<Quantity>,
    counters: Counters,
    start: [u64; COUNTERS],
    attachment: Arc<Attachment>,
    _program: Arc<WaitProgram>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    Time,
    Count,
    /// Waits up to the limit of this number.
    Bucket(usize),
}

impl RunqueueSource {
    /// Counts the waits of the target's processes. The source has all metrics, so that it stays open when
    /// another one is wanted.
    pub(super) fn open(request: &OpenRequest<'_>) -> Result<Self, EbpfError> {
        let (hierarchy, cgroup) = choose(request.target)?;
        let program = RUNNING.get(hierarchy, || WaitProgram::start(hierarchy, &request.host.mounts.root))?;
        let registration = program.table.register(&cgroup)?;
        let counters = registration.counters()?;
        let start = std::array::from_fn(|counter| counters.sum(counter));
        let attachment = Attachment::new(&cgroup, Box::new(registration))?;
        let (slots, quantities) = slots().unzip();
        Ok(Self { slots, quantities, counters, start, attachment, _program: program })
    }

    fn increase(&self, counter: usize) -> u64 {
        let start = self.start.get(counter).copied().unwrap_or_default();
        self.counters.sum(counter).wrapping_sub(start)
    }
}

fn slots() -> impl Iterator<Item = (Slot, Quantity)> {
    metrics_of(KIND).flat_map(|metric| {
        let of = |field| metric.origins.iter().any(|origin| origin.field_of(KIND) == Some(field));
        let definition = Definition::of(metric);
        let quantities: Vec<(Labels, Quantity)> = if of(WAIT_TIME) {
            vec![(Labels::default(), Quantity::Time)]
        } else if of(WAIT_COUNT) {
            vec![(Labels::default(), Quantity::Count)]
        } else if of(WAIT_BUCKET) {
            (0..)
                .zip(LIMITS_NS)
                .filter_map(|(index, limit_ns)| Some((up_to(limit_ns, &[])?, Quantity::Bucket(index))))
                .collect()
        } else {
            Vec::new()
        };
        quantities
            .into_iter()
            .map(move |(labels, quantity)| (Slot { definition: definition.clone(), labels }, quantity))
    })
}

impl CustomSource for RunqueueSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        if self.attachment.is_lost() {
            return Outcome::Gone;
        }
        let buckets: [u64; COUNTERS - FIRST_BUCKET] =
            std::array::from_fn(|bucket| self.increase(FIRST_BUCKET + bucket));
        let sum_up_to =
            |bucket| buckets.iter().take(bucket).fold(0, |sum: u64, count| sum.wrapping_add(*count));
        for (slot, quantity) in (0..).zip(&self.quantities) {
            let value = match quantity {
                Quantity::Time => self.increase(TIME),
                Quantity::Count => sum_up_to(buckets.len()),
                Quantity::Bucket(bucket) => sum_up_to(bucket + 1),
            };
            reading.set(slot, value);
        }
        Outcome::Read
    }

    fn is_lasting(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_a_series() {
        assert_eq!(slots().count(), 2 + LIMITS_NS.len());
    }
}
