//! Giving memory back to the kernel.

/// Has the allocator give back what is free. glibc keeps what small pieces were cut from, however much that is: after a
/// flood of dictionaries that would be most of the process.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "no safe crate has malloc_trim")]
    // SAFETY: it takes the allocator's own locks, and touches nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
