//! Instructions of BPF programs. Source: `Documentation/bpf/standardization/instruction-set.rst` of Linux.

/// A register: R0 has results, R1 to R5 arguments (lost in calls), R6 to R9 stay, R10 is the end of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Register {
    R0,
    R1,
    R2,
    R6,
    R10,
}

impl Register {
    const fn number(self) -> u8 {
        match self {
            Self::R0 => 0,
            Self::R1 => 1,
            Self::R2 => 2,
            Self::R6 => 6,
            Self::R10 => 10,
        }
    }
}

/// A function of the kernel that programs may call, by its number in `enum bpf_func_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Helper {
    /// `bpf_map_lookup_elem`: the address of an element of a map (R1), whose key is at an address (R2).
    MapLookup,
    /// `bpf_get_smp_processor_id`: the number of the CPU.
    ProcessorId,
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

/// `target = *(u32 *)(base + offset)`
pub(super) const fn load_u32(target: Register, base: Register, offset: i16) -> Instruction {
    encode(0x61, target, base, offset, 0)
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
    let number = match helper {
        Helper::MapLookup => 1,
        Helper::ProcessorId => 8,
    };
    encode(0x85, Register::R0, Register::R0, 0, number)
}

/// Ends the program with the result R0.
pub(super) const fn exit() -> Instruction {
    encode(0x95, Register::R0, Register::R0, 0, 0)
}

/// `target = map`, where the map is given by its descriptor: one instruction of two parts.
pub(super) const fn load_map(target: Register, descriptor: i32) -> [Instruction; 2] {
    // The source register 1 is the mark of a descriptor, `BPF_PSEUDO_MAP_FD`.
    let first = encode(0x18, target, Register::R1, 0, descriptor);
    [first, encode(0, Register::R0, Register::R0, 0, 0)]
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
    }
}
