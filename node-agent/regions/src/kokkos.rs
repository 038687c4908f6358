//! The callbacks of Kokkos Tools: a program of Kokkos loads the library by `KOKKOS_TOOLS_LIBS`. Regions and
//! kernels are counted by name.

#![expect(unsafe_code, reason = "the functions are called from C++")]

use std::ffi::{c_char, c_void};

use crate::c_api::{begin, name_of};
use crate::current::{flush, region_of, with_table};
use crate::thread_table::Nesting;

/// Does nothing: the first entry begins to count.
///
/// # Safety
/// It is safe; the signature is that of Kokkos Tools.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kokkosp_init_library(_load: i32, _version: u64, _count: u32, _devices: *mut c_void) {
}

/// Sends what was counted.
#[unsafe(no_mangle)]
pub extern "C" fn kokkosp_finalize_library() {
    flush();
}

/// Enters a region.
///
/// # Safety
/// `name` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kokkosp_push_profile_region(name: *const c_char) {
    // SAFETY: the caller's.
    begin(unsafe { name_of(name) });
}

/// Leaves the innermost region.
#[unsafe(no_mangle)]
pub extern "C" fn kokkosp_pop_profile_region() {
    with_table(|table| table.end_innermost());
}

/// Enters a kernel. Its end names it by the number that is stored to `kernel`; 0 if nothing is counted.
///
/// # Safety
/// `name` is null or a text that ends with a zero, and `kernel` is null or points to a value.
unsafe fn begin_kernel(name: *const c_char, kernel: *mut u64) {
    // SAFETY: the caller's.
    let name = unsafe { name_of(name) };
    let mut number = 0;
    with_table(|table| {
        let region = region_of(table, name);
        table.begin(region);
        number = region as u64 + 1;
    });
    // SAFETY: the caller's.
    if let Some(kernel) = unsafe { kernel.as_mut() } {
        *kernel = number;
    }
}

fn end_kernel(kernel: u64) {
    let Some(region) = kernel.checked_sub(1).and_then(|region| usize::try_from(region).ok()) else { return };
    with_table(|table| table.end(region, Nesting::Strict));
}

macro_rules! kernels {
    ($($begin:ident, $end:ident;)*) => {
        $(
            /// Enters a kernel.
            ///
            /// # Safety
            /// `name` is null or a text that ends with a zero, and `kernel` is null or points to a value.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $begin(name: *const c_char, _device: u32, kernel: *mut u64) {
                // SAFETY: the caller's.
                unsafe { begin_kernel(name, kernel) };
            }

            /// Leaves a kernel.
            #[unsafe(no_mangle)]
            pub extern "C" fn $end(kernel: u64) {
                end_kernel(kernel);
            }
        )*
    };
}

kernels! {
    kokkosp_begin_parallel_for, kokkosp_end_parallel_for;
    kokkosp_begin_parallel_scan, kokkosp_end_parallel_scan;
    kokkosp_begin_parallel_reduce, kokkosp_end_parallel_reduce;
}
