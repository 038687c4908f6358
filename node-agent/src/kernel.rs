//! Kernel settings for the process or a thread, and the system calls that no safe crate offers: apart from
//! the perf events' descriptors and the device of IPMI, only this module uses `unsafe`.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use tokio::io::unix::AsyncFd;

use crate::clock;

/// Gives the calling thread the real-time policy `SCHED_FIFO` at `priority`, sched(7). Fails with `EPERM`
/// without CAP_SYS_NICE or an RLIMIT_RTPRIO that allows it, or in a cgroup without a real-time budget.
pub fn set_fifo_priority(priority: u8) -> io::Result<()> {
    // SAFETY: `sched_param` is plain integers, for which zero is a value.
    #[expect(unsafe_code, reason = "no safe crate has sched_setscheduler")]
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = i32::from(priority);
    // SAFETY: 0 is the calling thread, and the parameters live on this stack for the length of the call.
    #[expect(unsafe_code, reason = "no safe crate has sched_setscheduler")]
    let result = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets glibc to few arenas and to give memory back early: the agent has few threads and small buffers.
pub fn keep_memory_small() {
    #[expect(unsafe_code, reason = "no safe crate has mallopt")]
    // SAFETY: mallopt only sets parameters of the allocator, and is called before other threads exist.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 64 * 1024);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 128 * 1024);
    }
}

/// Unmaps the pages of a mapping that equal those of its file, madvise(2): the next use of one maps it again.
pub(crate) fn release_file_pages(mapping: &Range<usize>) {
    let start = std::ptr::with_exposed_provenance_mut(mapping.start);
    #[expect(unsafe_code, reason = "the pages of the program itself belong to no object")]
    // SAFETY: the mapping is private, is never writable, and lasts as long as the process, so that its
    // contents do not change.
    unsafe {
        libc::madvise(start, mapping.len(), libc::MADV_DONTNEED);
    }
}

/// Raises the limit of descriptors to the hard limit: perf events take one for each event and CPU.
pub fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    // A limit that does not exceed the hard one cannot be refused.
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum },
    )
    .ok();
}

/// Number of descriptors that this process may have open.
pub(crate) fn descriptor_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Number of descriptors that this process has open. From Linux 6.2 on that is the size of their directory.
/// On older kernels they are counted at most every 200 ms, since that takes longer the more there are.
pub(crate) fn open_descriptors() -> usize {
    const OPEN: &str = "/proc/self/fd";
    const COUNT_AGAIN_NS: u64 = 200_000_000;
    static COUNTED_AT_NS: AtomicU64 = AtomicU64::new(0);
    static COUNTED: AtomicUsize = AtomicUsize::new(0);
    let size = std::fs::metadata(OPEN).map_or(0, |directory| directory.len());
    if let Ok(open @ 1..) = usize::try_from(size) {
        return open;
    }
    let now_ns = clock::monotonic_ns();
    if now_ns.saturating_sub(COUNTED_AT_NS.load(Relaxed)) >= COUNT_AGAIN_NS {
        COUNTED.store(std::fs::read_dir(OPEN).map_or(0, Iterator::count), Relaxed);
        COUNTED_AT_NS.store(now_ns, Relaxed);
    }
    COUNTED.load(Relaxed)
}

/// Sets every descriptor but stdin, stdout and stderr to be closed in the programs that this one starts.
/// `close_range` would be one call, and is not in the kernels of many clusters.
pub(crate) fn close_inherited_on_exec() {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let inherited = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<libc::c_int>().ok());
    for descriptor in inherited.filter(|descriptor| *descriptor > libc::STDERR_FILENO) {
        #[expect(unsafe_code, reason = "no safe crate takes a descriptor's number for one of its own")]
        // SAFETY: a flag is set, and nothing is closed here; on a number that is no descriptor it fails.
        unsafe {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// Option of asm-generic/socket.h, which the libc crate does not have.
const SO_PEERGROUPS: libc::c_int = 59;

/// Largest number of supplementary groups of a process on Linux, `NGROUPS_MAX` of limits.h.
const GROUPS_MOST: usize = 65_536;

/// Supplementary groups of the process at the other end of a Unix socket when it connected: `SO_PEERGROUPS`,
/// since Linux 4.13.
pub(crate) fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; 64];
    loop {
        let mut bytes =
            libc::socklen_t::try_from(size_of_val(groups.as_slice())).map_err(io::Error::other)?;
        // SAFETY: the buffer has the stated length, and both outlive the call.
        #[expect(unsafe_code, reason = "no safe crate has SO_PEERGROUPS")]
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let needed = usize::try_from(bytes).map_err(io::Error::other)? / size_of::<u32>();
        if result == 0 {
            groups.truncate(needed);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // On `ERANGE` the kernel states the required length.
        if error.raw_os_error() != Some(libc::ERANGE) || needed <= groups.len() || needed > GROUPS_MOST {
            return Err(error);
        }
        groups.resize(needed, 0);
    }
}

/// Registers a descriptor with tokio, to wait on it. Fails outside of a runtime with I/O.
pub(crate) fn async_descriptor(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        unsafe_code,
        reason = "tokio wants a promise that the descriptor does not change under its feet"
    )]
    // SAFETY: an OwnedFd is the same open descriptor from here until it is dropped.
    let registered = unsafe { AsyncFd::register(descriptor) };
    Ok(registered?)
}
