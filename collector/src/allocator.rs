//! Releases memory to the kernel.

/// Returns free memory of the allocator to the kernel. glibc keeps the heaps of small allocations; after a
/// flood of dictionaries they would be most of the process.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "no safe crate has malloc_trim")]
    // SAFETY: it takes the allocator's own locks, and accesses only free memory.
    unsafe {
        libc::malloc_trim(0);
    }
}
