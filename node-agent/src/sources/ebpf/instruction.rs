//! Instructions of BPF programs. Source: `Documentation/bpf/standardization/instruction-set.rst` of Linux.

/// R0 has results, R1 to R5 arguments (lost in calls), R6 to R9 stay, R10 is the end of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Register {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
}

impl Register {
    const fn number(self) -> u8 {
        self as u8
    }
}

/// A kernel function that programs may call, by its number in `enum bpf_func_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Helper {
    /// `bpf_map_lookup_elem`: the address of an element of a map (R1), whose key is at an address (R2).
    MapLookup = 1,
    /// `bpf_map_update_elem`: stores a value (R3) under a key (R2) of a map (R1), with flags (R4).
    MapUpdate = 2,
    /// `bpf_ktime_get_ns`: the monotonic time.
    Time = 5,
    /// `bpf_get_smp_processor_id`: the number of the CPU.
    ProcessorId = 8,
    /// `bpf_get_current_pid_tgid`: the ids of the process and of the thread.
    CurrentThread = 14,
    /// `bpf_probe_read_kernel`: copies bytes (as many as R2) from an address of the kernel (R3) to one of the
    /// program (R1), or zeros where there is no memory.
    ReadKernel = 113,
    /// `bpf_get_current_task_btf`: the task that runs. Since Linux 5.11.
    CurrentTask = 158,
}

/// One instruction, as the kernel reads it.
pub(super) type Instruction = [u8; 8];

const fn encode(code: u8, target: Register, source: Register, offset: i16, value: i32) -> Instruction {
    // The two registers are bit fields, whose order is that of the bytes.
    let registers = if cfg!(target_endian = "little") {
        target.number() | source.number() << 4
    } else {
        target.number() << 4 | source.number()
    };
    let [offset_0, offset_1] = offset.to_ne_bytes();
    let [value_0, value_1, value_2, value_3] = value.to_ne_bytes();
    [code, registers, offset_0, offset_1, value_0, value_1, value_2, value_3]
}

/// `target = *(u64 *)(base + offset)`
pub(super) const fn load_u64(target: Register, base: Register, offset: i16) -> Instruction {
    encode(0x79, target, base, offset, 0)
}

/// `*(u64 *)(base + offset) = source`
pub(super) const fn store_u64(base: Register, offset: i16, source: Register) -> Instruction {
    encode(0x7b, base, source, offset, 0)
}

/// `target = *(u32 *)(base + offset)`
pub(super) const fn load_u32(target: Register, base: Register, offset: i16) -> Instruction {
    encode(0x61, target, base, offset, 0)
}

/// `target = *(u16 *)(base + offset)`
pub(super) const fn load_u16(target: Register, base: Register, offset: i16) -> Instruction {
    encode(0x69, target, base, offset, 0)
}

/// `*(u32 *)(base + offset) = source`
pub(super) const fn store_u32(base: Register, offset: i16, source: Register) -> Instruction {
    encode(0x63, base, source, offset, 0)
}

/// `*(u64 *)(base + offset) += source`, atomically.
pub(super) const fn atomic_add_u64(base: Register, offset: i16, source: Register) -> Instruction {
    encode(0xdb, base, source, offset, 0)
}

/// `target = source`
pub(super) const fn copy(target: Register, source: Register) -> Instruction {
    encode(0xbf, target, source, 0, 0)
}

/// `target = value`
pub(super) const fn set(target: Register, value: i32) -> Instruction {
    encode(0xb7, target, Register::R0, 0, value)
}

/// `target += value`
pub(super) const fn add(target: Register, value: i32) -> Instruction {
    encode(0x07, target, Register::R0, 0, value)
}

/// `target += source`
pub(super) const fn add_register(target: Register, source: Register) -> Instruction {
    encode(0x0f, target, source, 0, 0)
}

/// `target -= source`
pub(super) const fn subtract_register(target: Register, source: Register) -> Instruction {
    encode(0x1f, target, source, 0, 0)
}

/// `target &= value`
pub(super) const fn and(target: Register, value: i32) -> Instruction {
    encode(0x57, target, Register::R0, 0, value)
}

/// `target <<= value`
pub(super) const fn shift_left(target: Register, value: i32) -> Instruction {
    encode(0x67, target, Register::R0, 0, value)
}

/// Passes over the next `skipped` instructions if `register` is 0.
pub(super) const fn skip_if_zero(register: Register, skipped: i16) -> Instruction {
    encode(0x15, register, Register::R0, skipped, 0)
}

/// Passes over the next `skipped` instructions if `register` is not 0.
pub(super) const fn skip_unless_zero(register: Register, skipped: i16) -> Instruction {
    encode(0x55, register, Register::R0, skipped, 0)
}

/// `R0 = helper(R1, R2, ...)`
pub(super) const fn call(helper: Helper) -> Instruction {
    encode(0x85, Register::R0, Register::R0, 0, helper as i32)
}

/// Ends the program with the result R0.
pub(super) const fn exit() -> Instruction {
    encode(0x95, Register::R0, Register::R0, 0, 0)
}

/// A condition under which a jump is made. Numbers are unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Always,
    Zero(Register),
    NotZero(Register),
    AtMost(Register, i32),
    Equal(Register, i32),
    /// Register is not this.
    Differs(Register, i32),
    /// First register is at least the second.
    AtLeast(Register, Register),
    /// First register is greater than the second.
    Greater(Register, Register),
    /// Register is less than 0, as a signed number.
    Negative(Register),
}

/// Passes over the next `skipped` instructions under a condition.
pub(super) const fn jump(condition: Condition, skipped: i16) -> Instruction {
    match condition {
        Condition::Always => encode(0x05, Register::R0, Register::R0, skipped, 0),
        Condition::Zero(register) => skip_if_zero(register, skipped),
        Condition::NotZero(register) => skip_unless_zero(register, skipped),
        Condition::AtMost(register, limit) => encode(0xb5, register, Register::R0, skipped, limit),
        Condition::Equal(register, value) => encode(0x15, register, Register::R0, skipped, value),
        Condition::Differs(register, value) => encode(0x55, register, Register::R0, skipped, value),
        Condition::AtLeast(one, other) => encode(0x3d, one, other, skipped, 0),
        Condition::Greater(one, other) => encode(0x2d, one, other, skipped, 0),
        Condition::Negative(register) => encode(0xc5, register, Register::R0, skipped, 0),
    }
}

/// `target = map`, where the map is given by its descriptor: one instruction of two parts.
pub(super) const fn load_map(target: Register, descriptor: i32) -> [Instruction; 2] {
    // The mark of a descriptor, `BPF_PSEUDO_MAP_FD`, is in the place of the source register.
    load_wide(target, Register::R1, descriptor)
}

/// `target = &map[0]`, the address of the first value of an array.
pub(super) const fn load_map_value(target: Register, descriptor: i32) -> [Instruction; 2] {
    // `BPF_PSEUDO_MAP_VALUE`.
    load_wide(target, Register::R2, descriptor)
}

const fn load_wide(target: Register, mark: Register, value: i32) -> [Instruction; 2] {
    [encode(0x18, target, mark, 0, value), encode(0, Register::R0, Register::R0, 0, 0)]
}

#[cfg(all(test, target_endian = "little"))]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_encoded_as_clang_does() {
        // From `llvm-objdump` of the same operations in C.
        assert_eq!(load_u32(Register::R1, Register::R6, 164), [0x61, 0x61, 0xa4, 0, 0, 0, 0, 0]);
        assert_eq!(store_u32(Register::R10, -4, Register::R0), [0x63, 0x0a, 0xfc, 0xff, 0, 0, 0, 0]);
        assert_eq!(atomic_add_u64(Register::R0, 8, Register::R1), [0xdb, 0x10, 8, 0, 0, 0, 0, 0]);
        assert_eq!(copy(Register::R6, Register::R1), [0xbf, 0x16, 0, 0, 0, 0, 0, 0]);
        assert_eq!(set(Register::R0, 1), [0xb7, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(add(Register::R2, -4), [0x07, 2, 0, 0, 0xfc, 0xff, 0xff, 0xff]);
        assert_eq!(skip_if_zero(Register::R0, 6), [0x15, 0, 6, 0, 0, 0, 0, 0]);
        assert_eq!(skip_unless_zero(Register::R1, 1), [0x55, 1, 1, 0, 0, 0, 0, 0]);
        assert_eq!(call(Helper::ProcessorId), [0x85, 0, 0, 0, 8, 0, 0, 0]);
        assert_eq!(exit(), [0x95, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(load_map(Register::R1, 7), [[0x18, 0x11, 0, 0, 7, 0, 0, 0], [0; 8]]);
        assert_eq!(load_map_value(Register::R9, 7), [[0x18, 0x29, 0, 0, 7, 0, 0, 0], [0; 8]]);
        assert_eq!(load_u64(Register::R6, Register::R1, 16), [0x79, 0x16, 16, 0, 0, 0, 0, 0]);
        assert_eq!(store_u64(Register::R10, -8, Register::R7), [0x7b, 0x7a, 0xf8, 0xff, 0, 0, 0, 0]);
        assert_eq!(add_register(Register::R3, Register::R8), [0x0f, 0x83, 0, 0, 0, 0, 0, 0]);
        assert_eq!(subtract_register(Register::R0, Register::R7), [0x1f, 0x70, 0, 0, 0, 0, 0, 0]);
        assert_eq!(shift_left(Register::R1, 3), [0x67, 1, 0, 0, 3, 0, 0, 0]);
        assert_eq!(load_u16(Register::R1, Register::R6, 136), [0x69, 0x61, 0x88, 0, 0, 0, 0, 0]);
        assert_eq!(and(Register::R0, 7), [0x57, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(jump(Condition::Equal(Register::R1, 3), 1), [0x15, 1, 1, 0, 3, 0, 0, 0]);
        assert_eq!(jump(Condition::Differs(Register::R9, 3), 1), [0x55, 9, 1, 0, 3, 0, 0, 0]);
        assert_eq!(jump(Condition::AtLeast(Register::R8, Register::R2), 1), [0x3d, 0x28, 1, 0, 0, 0, 0, 0]);
        assert_eq!(call(Helper::ReadKernel), [0x85, 0, 0, 0, 113, 0, 0, 0]);
        assert_eq!(jump(Condition::Always, 2), [0x05, 0, 2, 0, 0, 0, 0, 0]);
        assert_eq!(jump(Condition::Zero(Register::R0), 6), skip_if_zero(Register::R0, 6));
        assert_eq!(jump(Condition::AtMost(Register::R7, 9), 1), [0xb5, 7, 1, 0, 9, 0, 0, 0]);
        assert_eq!(jump(Condition::Greater(Register::R1, Register::R2), 1), [0x2d, 0x21, 1, 0, 0, 0, 0, 0]);
        assert_eq!(jump(Condition::Negative(Register::R0), 1), [0xc5, 0, 1, 0, 0, 0, 0, 0]);
    }
}
