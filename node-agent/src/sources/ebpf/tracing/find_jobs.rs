//! Part of programs that finds the jobs of a task: the cgroups above its own that are counted.

use super::super::assembler::Assembler;
use super::super::instruction::{
    Condition, Helper, Instruction, Register, add, add_register, call, copy, load_map, load_map_value,
    load_u32, load_u64, set, shift_left, store_u32, store_u64,
};
use super::cgroup_types::{Ancestors, CgroupTypes};
use super::job_table::{LEVELS, TableMaps};

/// Offset of the found jobs from the end of the stack: [`LEVELS`] words of 32 bits, each 0 or one more than
/// the number of the job's first line of counters.
pub(in super::super) const FOUND: i16 = -32;

/// First byte of the stack below those that [`find_jobs`] uses.
pub(in super::super) const STACK_USED: i16 = -32;

/// Word of the stack that is changed: an id, or an address of the kernel.
pub(in super::super) const SCRATCH: i16 = -8;

const _: () = assert!(LEVELS == 4 && FOUND + 16 <= SCRATCH);

/// Searches for the jobs of the task in R6, which may be part of a job, a step and a scheduler's task at the
/// same time. R7 is 0 afterwards if there is none. Changes R8 and R9, not R6.
pub(in super::super) fn find_jobs(assembler: &mut Assembler, types: &CgroupTypes, maps: TableMaps) {
    use Register::{R0, R1, R2, R3, R6, R7, R8, R9, R10};
    assembler.push(&[set(R7, 0), store_u64(R10, FOUND, R7), store_u64(R10, FOUND + 8, R7)]);
    assembler.push(&[load_u64(R8, R6, types.task_cgroups), load_u64(R8, R8, types.set_member)]);
    if let Some(cgroup) = types.state_cgroup {
        assembler.push(&[load_u64(R8, R8, cgroup)]);
    }
    assembler.push(&load_map_value(R9, maps.levels));
    let end = assembler.label();
    for index in (0..).take(LEVELS) {
        let next = assembler.label();
        assembler.push(&[load_u32(R1, R9, 4 * index)]);
        assembler.jump(Condition::Zero(R1), end);
        assembler.push(&[load_u32(R2, R8, types.level)]);
        assembler.jump(Condition::Greater(R1, R2), next);
        let (form, ancestors) = types.ancestors;
        // The address of the ancestor at that level in the list.
        assembler.push(&[
            shift_left(R1, 3),
            copy(R3, R8),
            add(R3, i32::from(ancestors)),
            add_register(R3, R1),
        ]);
        assembler.push(&read_word());
        if form == Ancestors::Pointers {
            for member in [types.node, types.node_id] {
                assembler.push(&[load_u64(R3, R10, SCRATCH), add(R3, i32::from(member))]);
                assembler.push(&read_word());
            }
        }
        assembler.push(&load_map(R1, maps.jobs));
        assembler.push(&[copy(R2, R10), add(R2, i32::from(SCRATCH)), call(Helper::MapLookup)]);
        assembler.jump(Condition::Zero(R0), next);
        assembler.push(&[load_u32(R1, R0, 0), store_u32(R10, FOUND + 4 * index, R1), set(R7, 1)]);
        assembler.place(next);
    }
    assembler.place(end);
}

/// Copies the word at the kernel's address in R3 to the scratch word of the stack.
pub(in super::super) const fn read_word() -> [Instruction; 4] {
    use Register::{R1, R2, R10};
    [copy(R1, R10), add(R1, SCRATCH as i32), set(R2, 8), call(Helper::ReadKernel)]
}

/// For each job that was found, searches the line of its counters with the number in `line`. Then come the
/// instructions of `count`, with the line's address in R0. R6 to R9 keep their values.
pub(in super::super) fn for_each_job(
    assembler: &mut Assembler,
    maps: TableMaps,
    line: Register,
    count: &[Instruction],
) {
    use Register::{R0, R1, R2, R10};
    for index in (0..).take(LEVELS) {
        let next = assembler.label();
        assembler.push(&[load_u32(R1, R10, FOUND + 4 * index)]);
        assembler.jump(Condition::Zero(R1), next);
        assembler.push(&[add(R1, -1), add_register(R1, line), store_u32(R10, SCRATCH, R1)]);
        assembler.push(&load_map(R1, maps.counters));
        assembler.push(&[copy(R2, R10), add(R2, i32::from(SCRATCH)), call(Helper::MapLookup)]);
        assembler.jump(Condition::Zero(R0), next);
        assembler.push(count);
        assembler.place(next);
    }
}
