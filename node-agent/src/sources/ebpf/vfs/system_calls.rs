//! System calls on files, by their numbers on this architecture.

/// An operation on files, numbered as its counters in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Read = 0,
    Write = 1,
    Open = 2,
    Sync = 3,
}

pub(super) const OPERATIONS: usize = 4;

/// Members of `struct pt_regs`: the number of the system call, and its first argument, also after the call.
#[cfg(target_arch = "x86_64")]
pub(super) const REGISTERS: Option<[&str; 2]> = Some(["orig_ax", "di"]);
#[cfg(target_arch = "aarch64")]
pub(super) const REGISTERS: Option<[&str; 2]> = Some(["syscallno", "orig_x0"]);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) const REGISTERS: Option<[&str; 2]> = None;

/// One more than the highest number of a system call in the table.
pub(super) const NUMBERS: u32 = 512;

pub(super) const SYSTEM_CALLS: &[(libc::c_long, Operation)] = &[
    (libc::SYS_read, Operation::Read),
    (libc::SYS_pread64, Operation::Read),
    (libc::SYS_readv, Operation::Read),
    (libc::SYS_preadv, Operation::Read),
    (libc::SYS_preadv2, Operation::Read),
    (libc::SYS_write, Operation::Write),
    (libc::SYS_pwrite64, Operation::Write),
    (libc::SYS_writev, Operation::Write),
    (libc::SYS_pwritev, Operation::Write),
    (libc::SYS_pwritev2, Operation::Write),
    (libc::SYS_openat, Operation::Open),
    (libc::SYS_openat2, Operation::Open),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, Operation::Open),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, Operation::Open),
    (libc::SYS_fsync, Operation::Sync),
    (libc::SYS_fdatasync, Operation::Sync),
];
