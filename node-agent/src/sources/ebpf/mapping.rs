//! Memory of maps, which the kernel writes and the agent reads.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

#[derive(Debug)]
pub(super) struct Mapping {
    words: NonNull<AtomicU64>,
    count: usize,
}

#[expect(unsafe_code, reason = "a pointer is not Send by itself")]
// SAFETY: the memory belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `count` words of an array from an offset in bytes, a multiple of the page size. The kernel maps
    /// all pages at once, so that no read waits for one.
    pub(super) fn of_array(array: BorrowedFd<'_>, offset: usize, count: usize) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        #[expect(unsafe_code, reason = "no safe crate maps a descriptor's memory")]
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count.saturating_mul(size_of::<u64>()),
                libc::PROT_READ,
                libc::MAP_SHARED,
                array.as_raw_fd(),
                offset,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { words, count })
    }

    /// Current values of every `step`th word from `first` on.
    pub(super) fn words(&self, first: usize, step: usize) -> impl Iterator<Item = u64> {
        let words = self.all().get(first..).unwrap_or_default();
        words.iter().step_by(step).map(|word| word.load(Relaxed))
    }

    fn all(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has `count` words, begins at a page, and lives as long as `self`. The kernel
        // changes whole words only, and aligned words are read in one access, also from read-only memory.
        #[expect(unsafe_code, reason = "memory of the kernel")]
        unsafe {
            std::slice::from_raw_parts(self.words.as_ptr(), self.count)
        }
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
