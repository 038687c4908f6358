//! System call `bpf`. Source: bpf(2), `union bpf_attr` of `include/uapi/linux/bpf.h`.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A name in the kernel: up to 15 bytes, and a zero.
pub(super) type Name = [u8; 16];

pub(super) fn command<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel accesses the structure of the stated size; all that it points to outlives the call.
    #[expect(unsafe_code, reason = "no safe crate has bpf")]
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    let result = libc::c_int::try_from(result).map_err(io::Error::other)?;
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Issues a command that returns a new descriptor, for which the kernel sets close-on-exec.
pub(super) fn create<T>(number: libc::c_int, mut attributes: T) -> io::Result<OwnedFd> {
    let descriptor = command(number, &mut attributes)?;
    #[expect(unsafe_code, reason = "the descriptor is new, and nobody else knows its number")]
    // SAFETY: as the reason says.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A descriptor as the kernel's structures have it.
pub(super) fn number(descriptor: BorrowedFd<'_>) -> u32 {
    descriptor.as_raw_fd().cast_unsigned()
}

/// A descriptor as instructions have it.
pub(super) fn operand(descriptor: BorrowedFd<'_>) -> i32 {
    descriptor.as_raw_fd()
}

pub(super) fn name(text: &CStr) -> Name {
    let mut name = Name::default();
    let text = text.to_bytes().iter().take(size_of::<Name>() - 1);
    name.iter_mut().zip(text).for_each(|(place, byte)| *place = *byte);
    name
}
