//! The system call `bpf`, and the memory of maps. Source: bpf(2), `union bpf_attr` of `include/uapi/linux/bpf.h`.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::direction::Direction;
use super::instruction::Instruction;

/// The licence that the kernel is told. No function that it reserves for the GPL is called.
const LICENCE: &CStr = c"Apache-2.0";

/// A name in the kernel: up to 15 bytes, and a zero.
type Name = [u8; 16];

/// The fields of `BPF_MAP_CREATE`.
#[repr(C)]
#[derive(Debug, Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: Name,
}

/// The fields of `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Debug, Default)]
struct ProgramLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: Name,
    interface: u32,
    attach_type: u32,
}

/// The fields of `BPF_LINK_CREATE`.
#[repr(C)]
#[derive(Debug, Default)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
}

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;

const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_PROG_TYPE_CGROUP_SKB: u32 = 8;

/// Makes the memory of an array mappable. Since Linux 5.5.
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// Issues a command that returns a new descriptor, which is closed in other programs.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads the structure of the stated size; all that it points to outlives the call.
    #[expect(unsafe_code, reason = "no safe crate has bpf")]
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size_of::<T>()) };
    let descriptor = libc::c_int::try_from(result).map_err(io::Error::other)?;
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    #[expect(unsafe_code, reason = "the descriptor is new, and nobody else knows its number")]
    // SAFETY: as the reason says.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Returns the number of a descriptor as the kernel's structures have it.
fn number(descriptor: BorrowedFd<'_>) -> u32 {
    descriptor.as_raw_fd().cast_unsigned()
}

fn name(text: &CStr) -> Name {
    let mut name = Name::default();
    let text = text.to_bytes().iter().take(size_of::<Name>() - 1);
    name.iter_mut().zip(text).for_each(|(place, byte)| *place = *byte);
    name
}

/// Creates an array of `entries` values of zeros, whose memory can be mapped.
pub(super) fn create_array(title: &CStr, value_size: u32, entries: u32) -> io::Result<OwnedFd> {
    let attributes = MapCreate {
        map_type: BPF_MAP_TYPE_ARRAY,
        key_size: 4,
        value_size,
        max_entries: entries,
        map_flags: BPF_F_MMAPABLE,
        name: name(title),
        ..MapCreate::default()
    };
    bpf(BPF_MAP_CREATE, &attributes)
}

/// Loads a program for the packets of cgroups, which the kernel verifies.
pub(super) fn load_program(
    title: &CStr,
    direction: Direction,
    program: &[Instruction],
) -> io::Result<OwnedFd> {
    let attributes = ProgramLoad {
        program_type: BPF_PROG_TYPE_CGROUP_SKB,
        instruction_count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: program.as_ptr().addr() as u64,
        licence: LICENCE.as_ptr().addr() as u64,
        name: name(title),
        attach_type: direction as u32,
        ..ProgramLoad::default()
    };
    bpf(BPF_PROG_LOAD, &attributes)
}

/// Attaches a program to a cgroup, beside those of others. It is detached when the returned link is closed. Since Linux
/// 5.7.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    direction: Direction,
) -> io::Result<OwnedFd> {
    let attributes = LinkCreate {
        program: number(program),
        target: number(cgroup),
        attach_type: direction as u32,
        flags: 0,
    };
    bpf(BPF_LINK_CREATE, &attributes)
}

/// The memory of an array, for reads.
#[derive(Debug)]
pub(super) struct Mapping {
    words: NonNull<AtomicU64>,
    count: usize,
}

#[expect(unsafe_code, reason = "a pointer is not Send by itself")]
// SAFETY: the memory belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `count` words of an array. The kernel maps all pages at once, so that no read waits for one.
    pub(super) fn of_array(array: BorrowedFd<'_>, count: usize) -> io::Result<Self> {
        // SAFETY: a new mapping, at an address that the kernel chooses.
        #[expect(unsafe_code, reason = "no safe crate maps a descriptor's memory")]
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count.saturating_mul(size_of::<u64>()),
                libc::PROT_READ,
                libc::MAP_SHARED,
                array.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { words, count })
    }

    /// Returns the current values, one after the other.
    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        // SAFETY: the mapping has `count` words, begins at a page, and lives as long as `self`. The kernel changes the words by
        // atomic additions only, and aligned words are read in one access, also from read-only memory.
        #[expect(unsafe_code, reason = "memory of the kernel")]
        let words = unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) };
        words.iter().map(|word| word.load(Relaxed))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "no safe crate unmaps memory")]
        // SAFETY: the mapping was made with this length, and no reference to it outlives `self`.
        unsafe {
            libc::munmap(self.words.as_ptr().cast(), self.count.saturating_mul(size_of::<u64>()));
        }
    }
}
