//! Program that counts the waits for a CPU.
//!
//! The kernel notes when a task becomes ready to run (`sched_info.last_queued`), and adds up its waits
//! (`run_delay`) when it begins to run or moves to the queue of another CPU. The program runs before the
//! kernel does so, when a CPU switches to the task. It needs no other event: a wait is what the sum will be,
//! less what it was when the task ran the last time.

use std::os::fd::BorrowedFd;

use super::super::assembler::Assembler;
use super::super::btf::{Btf, TypeKind};
use super::super::instruction::{
    Condition, Helper, Instruction, Register, add, add_register, call, copy, exit, load_map, load_u32,
    load_u64, set, store_u32, store_u64, subtract_register,
};
use super::super::reason::EbpfError;
use super::super::system_call::operand;
use super::super::tracing::{
    BUCKETS, CgroupHierarchy, CgroupTypes, STACK_USED, TableMaps, choose_bucket, find_jobs, for_each_job,
    offset, type_number,
};

/// Counter of the time; the buckets follow.
pub(super) const TIME: usize = 0;

pub(super) const FIRST_BUCKET: usize = 1;

/// Offset in the counters of one CPU.
const FIRST_BUCKET_BYTES: i32 = 8;

/// Counters of one CPU: two lines of the cache.
pub(super) const LINE_BYTES: u32 = 128;

const _: () = assert!((FIRST_BUCKET + BUCKETS) * size_of::<u64>() <= LINE_BYTES as usize);

/// A task in the cache is its number and the time of its start, so that a number may be used again.
pub(super) const TASK_KEY_BYTES: u32 = 8;

/// Offset of `next` in the arguments of the tracepoint, after `preempt` and `prev`.
const NEXT: i16 = 16;

const WAIT: i16 = STACK_USED - 8;
const CLOCK: i16 = STACK_USED - 16;
const TASK: i16 = STACK_USED - 24;
const TOTAL: i16 = STACK_USED - 32;

#[derive(Debug, Clone, Copy)]
pub(super) struct Types {
    cgroups: CgroupTypes,
    pid: i16,
    start_time: i16,
    run_delay: i16,
    last_arrival: i16,
    last_queued: i16,
    /// Offsets to the queue of the task's group on its CPU, from there to that of the CPU, and to its clock.
    group_queue: i16,
    queue: i16,
    queue_clock: i16,
    pub(super) switch: u32,
}

impl Types {
    pub(super) fn of(btf: &Btf, hierarchy: CgroupHierarchy) -> Result<Self, EbpfError> {
        let task = |path| offset(btf, "task_struct", path);
        Ok(Self {
            cgroups: CgroupTypes::of(btf, hierarchy)?,
            pid: task("pid")?,
            start_time: task("start_time")?,
            run_delay: task("sched_info.run_delay")?,
            last_arrival: task("sched_info.last_arrival")?,
            last_queued: task("sched_info.last_queued")?,
            group_queue: task("se.cfs_rq")?,
            queue: offset(btf, "cfs_rq", "rq")?,
            queue_clock: offset(btf, "rq", "clock")?,
            switch: type_number(btf, TypeKind::Alias, "btf_trace_sched_switch")?,
        })
    }
}

/// Program for the tracepoint `sched_switch`; `None` if it is too long. `tasks` maps each task of a job to
/// its sum of waits when it ran the last time.
pub(super) fn count_waits(types: &Types, maps: TableMaps, tasks: BorrowedFd<'_>) -> Option<Vec<Instruction>> {
    use Register::{R0, R1, R6, R7};
    let mut assembler = Assembler::default();
    let end = assembler.label();
    assembler.push(&[load_u64(R6, R1, NEXT), load_u64(R7, R6, types.last_queued)]);
    // The idle task never waits.
    assembler.jump(Condition::Zero(R7), end);
    assembler.push(&[load_u64(R0, R6, types.group_queue), load_u64(R0, R0, types.queue)]);
    assembler.push(&[load_u64(R0, R0, types.queue_clock)]);
    assembler.push(&[store_u64(Register::R10, CLOCK, R0), subtract_register(R0, R7)]);
    assembler.jump(Condition::Negative(R0), end);
    assembler.push(&[store_u64(Register::R10, WAIT, R0)]);
    find_jobs(&mut assembler, &types.cgroups, maps);
    assembler.jump(Condition::Zero(R7), end);
    add_waits_in_other_queues(&mut assembler, types, operand(tasks));
    choose_bucket(&mut assembler, R7, Register::R8, FIRST_BUCKET_BYTES);
    count(&mut assembler, maps);
    assembler.place(end);
    assembler.push(&[set(R0, 0), exit()]);
    assembler.finish()
}

/// Adds to the wait of the task in R6 what it waited in the queues of other CPUs since it ran.
fn add_waits_in_other_queues(assembler: &mut Assembler, types: &Types, tasks: i32) {
    use Register::{R0, R1, R2, R3, R4, R6, R7, R10};
    let (found, end) = (assembler.label(), assembler.label());
    assembler.push(&[load_u64(R7, R10, WAIT), load_u64(R1, R6, types.run_delay), add_register(R1, R7)]);
    assembler.push(&[store_u64(R10, TOTAL, R1)]);
    assembler.push(&[load_u32(R1, R6, types.pid), store_u32(R10, TASK, R1)]);
    assembler.push(&[load_u64(R1, R6, types.start_time), store_u32(R10, TASK + 4, R1)]);
    assembler.push(&load_map(R1, tasks));
    assembler.push(&[copy(R2, R10), add(R2, i32::from(TASK)), call(Helper::MapLookup)]);
    assembler.jump(Condition::NotZero(R0), found);
    assembler.push(&load_map(R1, tasks));
    assembler.push(&[copy(R2, R10), add(R2, i32::from(TASK)), copy(R3, R10), add(R3, i32::from(TOTAL))]);
    assembler.push(&[set(R4, 0), call(Helper::MapUpdate)]);
    assembler.jump(Condition::Always, end);
    assembler.place(found);
    // R2: the wait since the task ran.
    assembler.push(&[load_u64(R1, R0, 0), load_u64(R2, R10, TOTAL), store_u64(R0, 0, R2)]);
    assembler.push(&[subtract_register(R2, R1)]);
    assembler.jump(Condition::Negative(R2), end);
    assembler.jump(Condition::Greater(R7, R2), end);
    // R3: the time since it ran. A longer wait is of another time, when the task was in no job.
    assembler.push(&[load_u64(R1, R6, types.last_arrival), load_u64(R3, R10, CLOCK)]);
    assembler.push(&[subtract_register(R3, R1)]);
    assembler.jump(Condition::Greater(R2, R3), end);
    assembler.push(&[copy(R7, R2)]);
    assembler.place(end);
}

/// Adds the wait in R7, with the bucket in R8, to each job. A CPU that switches is not interrupted, so that
/// its counters need no atomic addition.
fn count(assembler: &mut Assembler, maps: TableMaps) {
    use Register::{R0, R1, R7, R8, R9};
    assembler.push(&[call(Helper::ProcessorId), copy(R9, R0)]);
    for_each_job(
        assembler,
        maps,
        R9,
        &[
            load_u64(R1, R0, 0),
            add_register(R1, R7),
            store_u64(R0, 0, R1),
            add_register(R0, R8),
            load_u64(R1, R0, 0),
            add(R1, 1),
            store_u64(R0, 0, R1),
        ],
    );
}
