//! Programs that count operations on files: at the beginning and at the end of system calls.
//!
//! The program at the beginning notes the time for tasks of jobs. That at the end finds the file by its
//! descriptor, and its file system. Other tasks and other system calls leave both after a look into a table.

use super::super::assembler::{Assembler, Label};
use super::super::instruction::{
    Condition, Helper, Instruction, Register, add, add_register, and, atomic_add_u64, call, copy, exit,
    load_map, load_u16, load_u32, load_u64, set, shift_left, store_u32, store_u64, subtract_register,
};
use super::super::tracing::{
    BUCKETS, FOUND, SCRATCH, STACK_USED, TableMaps, choose_bucket, find_jobs, for_each_job, read_word,
};
use super::system_calls::{OPERATIONS, Operation};
use super::types::Types;

/// Counters of one operation: the bytes, the time, and the buckets.
pub(super) const OPERATION_WORDS: usize = 16;

pub(super) const BYTES: usize = 0;
pub(super) const TIME: usize = 1;
pub(super) const FIRST_BUCKET: usize = 2;

const _: () = assert!(FIRST_BUCKET + BUCKETS <= OPERATION_WORDS);

/// Size of the counters of one operation, as a power of two.
const OPERATION_BYTES_LOG2: i32 = 7;
const FIRST_BUCKET_BYTES: i32 = 16;

/// Counters of one line: all operations on one file system.
pub(super) const LINE_BYTES: u32 = 512;

const _: () =
    assert!(OPERATIONS * OPERATION_WORDS * 8 == LINE_BYTES as usize && 16 * 8 == 1 << OPERATION_BYTES_LOG2);

/// Lines of one file system, a power of two: CPUs with the same remainder share one.
pub(super) const STRIPES: u32 = 8;
const STRIPE_MASK: i32 = 7;
const OPERATION_MASK: i32 = 3;

const _: () = assert!(STRIPES == 8 && OPERATIONS == 4);

/// Record of an operation that has begun: the descriptor, the operation, the time and the jobs.
const RECORD: i16 = STACK_USED - 40;
pub(super) const RECORD_BYTES: u32 = 40;
const RECORD_OPERATION: i16 = 8;
const RECORD_TIME: i16 = 16;
const RECORD_JOBS: i16 = 24;

const THREAD: i16 = RECORD - 8;
const DURATION: i16 = STACK_USED - 8;
const BUCKET: i16 = STACK_USED - 16;

/// Code segment of processes of 32 bits on x86-64.
const SEGMENT_OF_32_BITS: i32 = 0x23;

#[derive(Debug, Clone, Copy)]
pub(super) struct Maps {
    /// Map from the number of a system call to one more than its operation.
    pub(super) calls: i32,
    /// Map from a thread to its operation that has begun.
    pub(super) begun: i32,
    /// Map from a device to the first line of its counters.
    pub(super) devices: i32,
    pub(super) jobs: TableMaps,
}

/// Searches a map for the key on the stack. The address of the value is in R0 afterwards, or 0.
fn look_up(assembler: &mut Assembler, map: i32, key: i16) {
    use Register::{R1, R2, R10};
    assembler.push(&load_map(R1, map));
    assembler.push(&[copy(R2, R10), add(R2, i32::from(key)), call(Helper::MapLookup)]);
}

/// Program for the tracepoint `sys_enter` with the arguments registers and number; `None` if it is too long.
pub(super) fn note_begin(types: &Types, maps: Maps) -> Option<Vec<Instruction>> {
    use Register::{R0, R1, R2, R3, R4, R6, R7, R10};
    let mut assembler = Assembler::default();
    let end = assembler.label();
    assembler.push(&[copy(R6, R1), load_u64(R1, R6, 8), store_u32(R10, SCRATCH, R1)]);
    look_up(&mut assembler, maps.calls, SCRATCH);
    assembler.jump(Condition::Zero(R0), end);
    assembler.push(&[load_u32(R7, R0, 0)]);
    assembler.jump(Condition::Zero(R7), end);
    assembler.push(&[store_u64(R10, RECORD + RECORD_OPERATION, R7), load_u64(R6, R6, 0)]);
    leave_calls_of_32_bits(&mut assembler, types, R6, end);
    assembler.push(&[load_u64(R1, R6, types.first_argument), store_u64(R10, RECORD, R1)]);
    assembler.push(&[call(Helper::CurrentTask), copy(R6, R0)]);
    find_jobs(&mut assembler, &types.cgroups, maps.jobs);
    assembler.jump(Condition::Zero(R7), end);
    assembler.push(&[call(Helper::CurrentThread), store_u64(R10, THREAD, R0)]);
    assembler.push(&[call(Helper::Time), store_u64(R10, RECORD + RECORD_TIME, R0)]);
    for half in [0, 8] {
        assembler.push(&[load_u64(R1, R10, FOUND + half), store_u64(R10, RECORD + RECORD_JOBS + half, R1)]);
    }
    assembler.push(&load_map(R1, maps.begun));
    assembler.push(&[copy(R2, R10), add(R2, i32::from(THREAD)), copy(R3, R10), add(R3, i32::from(RECORD))]);
    assembler.push(&[set(R4, 0), call(Helper::MapUpdate)]);
    assembler.place(end);
    assembler.push(&[set(R0, 0), exit()]);
    assembler.finish()
}

/// Ends the program for calls of 32 bits, whose registers are in `registers`.
fn leave_calls_of_32_bits(assembler: &mut Assembler, types: &Types, registers: Register, end: Label) {
    if let Some(segment) = types.code_segment {
        assembler.push(&[load_u16(Register::R1, registers, segment)]);
        assembler.jump(Condition::Equal(Register::R1, SEGMENT_OF_32_BITS), end);
    }
}

/// Program for the tracepoint `sys_exit` with the arguments registers and result; `None` if it is too long.
pub(super) fn count_end(types: &Types, maps: Maps) -> Option<Vec<Instruction>> {
    use Register::{R0, R1, R6, R7, R8, R9, R10};
    let mut assembler = Assembler::default();
    let end = assembler.label();
    assembler.push(&[copy(R6, R1), load_u64(R1, R6, 0), load_u64(R1, R1, types.call_number)]);
    assembler.push(&[store_u32(R10, SCRATCH, R1)]);
    look_up(&mut assembler, maps.calls, SCRATCH);
    assembler.jump(Condition::Zero(R0), end);
    assembler.push(&[load_u32(R9, R0, 0)]);
    assembler.jump(Condition::Zero(R9), end);
    assembler.push(&[call(Helper::CurrentThread), store_u64(R10, SCRATCH, R0)]);
    look_up(&mut assembler, maps.begun, SCRATCH);
    assembler.jump(Condition::Zero(R0), end);
    // R7: the record. A time of 0 is one that has ended.
    assembler.push(&[copy(R7, R0), load_u64(R8, R7, RECORD_TIME)]);
    assembler.jump(Condition::Zero(R8), end);
    assembler.push(&[set(R1, 0), store_u64(R7, RECORD_TIME, R1)]);
    for half in [0, 8] {
        assembler.push(&[load_u64(R1, R7, RECORD_JOBS + half), store_u64(R10, FOUND + half, R1)]);
    }
    assembler.push(&[call(Helper::Time), subtract_register(R0, R8), store_u64(R10, DURATION, R0)]);
    // R6: the result, which is an error where it is negative. R8: the descriptor. R9: one more than the
    // operation.
    assembler.push(&[load_u64(R6, R6, 8)]);
    assembler.jump(Condition::Negative(R6), end);
    assembler.push(&[load_u64(R8, R7, 0)]);
    choose_descriptor_and_bytes(&mut assembler);
    find_device(&mut assembler, types, end);
    look_up(&mut assembler, maps.devices, SCRATCH);
    assembler.jump(Condition::Zero(R0), end);
    // R7: the number of the line. R9: the offset of the operation in it.
    assembler.push(&[load_u32(R7, R0, 0), call(Helper::ProcessorId), and(R0, STRIPE_MASK)]);
    assembler.push(&[add_register(R7, R0), add(R9, -1), and(R9, OPERATION_MASK)]);
    assembler.push(&[shift_left(R9, OPERATION_BYTES_LOG2), load_u64(R8, R10, DURATION)]);
    choose_bucket(&mut assembler, R8, R1, FIRST_BUCKET_BYTES);
    assembler.push(&[store_u64(R10, BUCKET, R1)]);
    // CPUs share lines, and a call can be preempted.
    let count = [
        add_register(R0, R9),
        atomic_add_u64(R0, 0, R6),
        atomic_add_u64(R0, 8, R8),
        load_u64(R1, R10, BUCKET),
        add_register(R0, R1),
        set(R1, 1),
        atomic_add_u64(R0, 0, R1),
    ];
    for_each_job(&mut assembler, maps.jobs, R7, &count);
    assembler.place(end);
    assembler.push(&[set(R0, 0), exit()]);
    assembler.finish()
}

/// Corrects calls whose result in R6 is no number of bytes: it is the descriptor of an opened file, for R8,
/// or nothing.
fn choose_descriptor_and_bytes(assembler: &mut Assembler) {
    use Register::{R6, R8, R9};
    let (no_open, no_sync) = (assembler.label(), assembler.label());
    assembler.jump(Condition::Differs(R9, Operation::Open as i32 + 1), no_open);
    assembler.push(&[copy(R8, R6), set(R6, 0)]);
    assembler.place(no_open);
    assembler.jump(Condition::Differs(R9, Operation::Sync as i32 + 1), no_sync);
    assembler.push(&[set(R6, 0)]);
    assembler.place(no_sync);
}

/// Searches for the device of the file with the descriptor in R8, and puts it into the scratch word.
fn find_device(assembler: &mut Assembler, types: &Types, end: Label) {
    use Register::{R0, R1, R2, R3, R8, R10};
    assembler.push(&[
        call(Helper::CurrentTask),
        load_u64(R1, R0, types.files),
        load_u64(R1, R1, types.table),
    ]);
    assembler.push(&[load_u32(R2, R1, types.table_size)]);
    assembler.jump(Condition::AtLeast(R8, R2), end);
    assembler.push(&[load_u64(R3, R1, types.table_files), shift_left(R8, 3), add_register(R3, R8)]);
    // The memory of a file that another thread closes meanwhile is no file any more, but reads of it do no
    // harm.
    for (index, member) in [types.inode, types.super_block, types.device].into_iter().enumerate() {
        if index == 0 {
            assembler.push(&read_word());
        }
        assembler.push(&[load_u64(R3, R10, SCRATCH), add(R3, i32::from(member))]);
        assembler.push(&read_word());
    }
}
