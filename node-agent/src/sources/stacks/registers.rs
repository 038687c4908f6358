//! Registers by which callers are found, as perf and DWARF number them.

use gimli::{Register, Vendor};

#[cfg(target_arch = "aarch64")]
mod numbers {
    pub(in super::super) const SAMPLED: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;
    pub(super) const FRAME_POINTER: u16 = 29;
    pub(super) const STACK_POINTER: u16 = 31;
    pub(super) const RETURN_ADDRESS: u16 = 30;
    pub(super) const VENDOR: gimli::Vendor = gimli::Vendor::AArch64;
}

#[cfg(not(target_arch = "aarch64"))]
mod numbers {
    pub(in super::super) const SAMPLED: u64 = 1 << 6 | 1 << 7 | 1 << 8;
    pub(super) const FRAME_POINTER: u16 = 6;
    pub(super) const STACK_POINTER: u16 = 7;
    pub(super) const RETURN_ADDRESS: u16 = 16;
    pub(super) const VENDOR: gimli::Vendor = gimli::Vendor::Default;
}

/// Registers that perf samples, a bit each (`sample_regs_user`).
pub(super) const SAMPLED: u64 = numbers::SAMPLED;

/// Numbers of DWARF.
pub(super) const FRAME_POINTER: Register = Register(numbers::FRAME_POINTER);
pub(super) const STACK_POINTER: Register = Register(numbers::STACK_POINTER);
pub(super) const RETURN_ADDRESS: Register = Register(numbers::RETURN_ADDRESS);
pub(super) const VENDOR: Vendor = numbers::VENDOR;

/// True where the registers are known. Elsewhere only frame pointers are followed.
pub(super) const ARE_KNOWN: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Bits of an address that are no signature of it (pointer authentication).
const ADDRESS_BITS: u64 = if cfg!(target_arch = "aarch64") { (1 << 48) - 1 } else { u64::MAX };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Registers {
    /// Address at which it continues.
    pub(super) address: u64,
    pub(super) stack_pointer: u64,
    pub(super) frame_pointer: u64,
    /// Link register, where there is one; else the address.
    pub(super) link: u64,
}

/// What a sample holds of a thread in user mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UserState {
    pub(super) registers: Registers,
    /// Memory from the stack pointer on.
    pub(super) stack: Vec<u8>,
}

impl Registers {
    /// Registers from the words of a sample, one for each bit of [`SAMPLED`].
    pub(super) fn sampled(words: &[u64]) -> Option<Self> {
        match *words {
            [frame_pointer, stack_pointer, address] => {
                Some(Self { address, stack_pointer, frame_pointer, link: address })
            }
            [frame_pointer, link, stack_pointer, address] => {
                Some(Self { address, stack_pointer, frame_pointer, link: link & ADDRESS_BITS })
            }
            _ => None,
        }
    }

    /// Register of a number of DWARF.
    pub(super) const fn get(&self, register: u16) -> Option<u64> {
        match register {
            numbers::FRAME_POINTER => Some(self.frame_pointer),
            numbers::STACK_POINTER => Some(self.stack_pointer),
            numbers::RETURN_ADDRESS => Some(self.link),
            _ => None,
        }
    }

    pub(super) const fn caller(return_address: u64, stack_pointer: u64, frame_pointer: u64) -> Self {
        let address = return_address & ADDRESS_BITS;
        Self { address, stack_pointer, frame_pointer, link: address }
    }
}
