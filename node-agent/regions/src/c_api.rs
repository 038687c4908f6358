//! Functions of `polymeter.h`.

#![expect(unsafe_code, reason = "the functions are called from C")]

use std::ffi::{c_char, c_int};

use crate::current::{flush, region_of, with_table};
use crate::limits::{NAME_BYTES, UNNAMED};
use crate::thread_table::Nesting;

/// Returns the name of a region, cut to the limit.
///
/// # Safety
/// The pointer is null or that of a text that ends with a zero, and is valid while the result is used.
#[inline]
pub(crate) unsafe fn name_of<'a>(name: *const c_char) -> &'a [u8] {
    if name.is_null() {
        return UNNAMED.as_bytes();
    }
    // SAFETY: the text is readable until its zero or the limit.
    let name = unsafe {
        let length = libc::strnlen(name, NAME_BYTES);
        std::slice::from_raw_parts(name.cast::<u8>(), length)
    };
    if name.is_empty() { UNNAMED.as_bytes() } else { name }
}

/// Enters a region.
///
/// # Safety
/// `name` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polymeter_region_begin(name: *const c_char) {
    // SAFETY: the caller's.
    begin(unsafe { name_of(name) });
}

/// Leaves a region, and those inside it whose end was forgotten.
///
/// # Safety
/// `name` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polymeter_region_end(name: *const c_char) {
    // SAFETY: the caller's.
    end(unsafe { name_of(name) }, Nesting::Strict);
}

/// Sends what was counted so far, and waits for it at most a second. Returns 0, or -1 if the agent has not
/// accepted it.
#[unsafe(no_mangle)]
pub extern "C" fn polymeter_regions_flush() -> c_int {
    if flush() { 0 } else { -1 }
}

#[inline]
pub(crate) fn begin(name: &[u8]) {
    with_table(|table| {
        let region = region_of(table, name);
        table.begin(region);
    });
}

#[inline]
pub(crate) fn end(name: &[u8], nesting: Nesting) {
    with_table(|table| {
        let region = region_of(table, name);
        table.end(region, nesting);
    });
}
