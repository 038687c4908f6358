//! Operations of a job's processes on files: two programs for all jobs, at the beginning and at the end of
//! system calls.

mod devices;
mod program;
mod slots;
mod system_calls;
mod types;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use super::cgroup::Attachment;
use super::instruction::Instruction;
use super::loading::{TracingPlace, attach_tracing_program, load_tracing_program};
use super::map::{Sizes, create_array, create_cache, update};
use super::map_counters::Counters;
use super::reason::{EbpfError, Step};
use super::system_call::operand;
use super::tracing::{BUCKETS, CgroupHierarchy, JobTable, Known, Running, choose, read_types};
use crate::sources::custom_source::CustomSource;
use crate::sources::kernel_text::{self, FileError};
use crate::sources::kind::OpenRequest;
use crate::sources::mount_table::parse;
use crate::sources::outcome::Outcome;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;
use devices::{DEVICES_MAX, Devices};
use program::{
    BYTES, FIRST_BUCKET, LINE_BYTES, Maps, OPERATION_WORDS, RECORD_BYTES, STRIPES, TIME, count_end,
    note_begin,
};
use slots::{Quantity, Value, slots};
use system_calls::{NUMBERS, SYSTEM_CALLS};
use types::Types;

/// Bound of the threads with an operation on a file at a time. Beyond it the operations that last longest are
/// not counted.
const THREADS_MAX: u32 = 16_384;

/// Programs for the jobs of one hierarchy. They end with their links.
#[derive(Debug)]
struct FilePrograms {
    table: Arc<JobTable>,
    devices: Devices,
    _links: [OwnedFd; 2],
}

static RUNNING: Running<FilePrograms> = Running::new();

static TYPES: Known<Types> = Known::new();

impl FilePrograms {
    fn start(hierarchy: CgroupHierarchy, root: &Path) -> Result<Self, EbpfError> {
        let fault = |error| Step::Trace.refused(error);
        let types = TYPES.get(hierarchy, || Types::of(&read_types(root)?, hierarchy))?;
        let lines = u32::try_from(DEVICES_MAX).map_err(io::Error::other).map_err(fault)? * STRIPES;
        let table = JobTable::create(lines, LINE_BYTES).map_err(fault)?;
        let devices = Devices::create().map_err(fault)?;
        let calls = table_of_calls().map_err(fault)?;
        let sizes = Sizes { key_bytes: 8, value_bytes: RECORD_BYTES, entries: THREADS_MAX };
        let begun = create_cache(c"polymeter_calls", sizes).map_err(fault)?;
        let maps = Maps {
            calls: operand(calls.as_fd()),
            begun: operand(begun.as_fd()),
            devices: operand(devices.map()),
            jobs: table.maps(),
        };
        let end = count_end(&types, maps).ok_or(EbpfError::TooLong)?;
        let end = start(c"polymeter_leave", types.leave, &end).map_err(fault)?;
        let begin = note_begin(&types, maps).ok_or(EbpfError::TooLong)?;
        let begin = start(c"polymeter_enter", types.enter, &begin).map_err(fault)?;
        Ok(Self { table, devices, _links: [end, begin] })
    }
}

fn start(name: &CStr, tracepoint: u32, instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let program = load_tracing_program(name, TracingPlace::Tracepoint, tracepoint, instructions)?;
    attach_tracing_program(program.as_fd())
}

/// Maps the number of a system call to one more than its operation.
fn table_of_calls() -> io::Result<OwnedFd> {
    let map = create_array(c"polymeter_sys", 4, NUMBERS)?;
    for (call, operation) in SYSTEM_CALLS {
        let call = u32::try_from(*call).map_err(io::Error::other)?;
        update(map.as_fd(), &call, &(*operation as u32 + 1))?;
    }
    Ok(map)
}

const LINE_WORDS: usize = LINE_BYTES as usize / size_of::<u64>();

/// Operations of one job. They are counted from the time when the source is opened.
#[derive(Debug)]
pub(super) struct FilesSource {
    slots: Vec<Slot>,
    values: Vec<Value>,
    counters: Counters,
    /// Counters when the source was opened, and their increase until the last read: the words of one line for
    /// each file system.
    start: Vec<u64>,
    increase: Vec<u64>,
    attachment: Arc<Attachment>,
    _programs: Arc<FilePrograms>,
}

impl FilesSource {
    pub(super) fn open(request: &OpenRequest<'_>) -> Result<Self, EbpfError> {
        let (hierarchy, cgroup) = choose(request.target)?;
        let programs =
            RUNNING.get(hierarchy, || FilePrograms::start(hierarchy, &request.host.mounts.root))?;
        let path = request.host.mounts.root.join("proc/self/mountinfo");
        let text = kernel_text::text(&path).map_err(FileError::of(&path))?;
        let mounted = programs.devices.refresh(parse(&text)).map_err(|error| Step::Trace.refused(error))?;
        let registration = programs.table.register(&cgroup)?;
        let counters = registration.counters()?;
        let start: Vec<u64> = (0..DEVICES_MAX * LINE_WORDS).map(|word| sum(&counters, word)).collect();
        let attachment = Attachment::new(&cgroup, Box::new(registration))?;
        let (slots, values) = slots(&mounted).unzip();
        let increase = vec![0; start.len()];
        Ok(Self { slots, values, counters, start, increase, attachment, _programs: programs })
    }
}

/// Sums a word over the lines of its file system. The words of all file systems are numbered one after the
/// other.
fn sum(counters: &Counters, word: usize) -> u64 {
    let lines = STRIPES as usize;
    counters.sum_of(word / LINE_WORDS * lines, lines, word % LINE_WORDS)
}

/// Value from the increase of the words. It is absent if the job has not done the operation on the file
/// system.
fn value_of(increase: &[u64], value: &Value) -> Option<u64> {
    let first = value.device * LINE_WORDS + value.operation as usize * OPERATION_WORDS;
    let words = increase.get(first..)?.get(..OPERATION_WORDS)?;
    let up_to = |bucket: usize| {
        words.iter().skip(FIRST_BUCKET).take(bucket + 1).fold(0, |sum: u64, count| sum.wrapping_add(*count))
    };
    let count = up_to(BUCKETS - 1);
    let number = match value.quantity {
        Quantity::Bytes => *words.get(BYTES)?,
        Quantity::Time => *words.get(TIME)?,
        Quantity::Count => count,
        Quantity::Bucket(bucket) => up_to(bucket),
    };
    (count > 0).then_some(number)
}

impl CustomSource for FilesSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        if self.attachment.is_lost() {
            return Outcome::Gone;
        }
        for ((word, increase), start) in self.increase.iter_mut().enumerate().zip(&self.start) {
            *increase = sum(&self.counters, word).wrapping_sub(*start);
        }
        for (slot, value) in (0..).zip(&self.values) {
            if let Some(number) = value_of(&self.increase, value) {
                reading.set(slot, number);
            }
        }
        Outcome::Read
    }

    fn is_lasting(&self) -> bool {
        true
    }
}
