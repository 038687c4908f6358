//! LIKWID's marker functions, as `likwid-marker.h` of LIKWID 5 declares them. Hardware counters are the
//! agent's (`perf.*`): the functions count entries and times.

#![expect(unsafe_code, reason = "the functions are called from C")]

use std::ffi::{c_char, c_double, c_int};

use crate::c_api::{begin, end, name_of};
use crate::current::{clock, flush, region_of, with_table};
use crate::thread_table::Nesting;

/// Does nothing: the first entry begins to count.
#[unsafe(no_mangle)]
pub extern "C" fn likwid_markerInit() {}

/// Does nothing: the first entry of a thread makes its table.
#[unsafe(no_mangle)]
pub extern "C" fn likwid_markerThreadInit() {}

/// Does nothing: there are no groups of counters to change.
#[unsafe(no_mangle)]
pub extern "C" fn likwid_markerNextGroup() {}

/// Prepares a region, so that its first entry in this thread is as cheap as others.
///
/// # Safety
/// `name` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn likwid_markerRegisterRegion(name: *const c_char) -> c_int {
    // SAFETY: the caller's.
    let name = unsafe { name_of(name) };
    with_table(|table| {
        region_of(table, name);
    });
    0
}

/// Enters a region.
///
/// # Safety
/// `name` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn likwid_markerStartRegion(name: *const c_char) -> c_int {
    // SAFETY: the caller's.
    begin(unsafe { name_of(name) });
    0
}

/// Leaves a region, which may overlap others.
///
/// # Safety
/// `name` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn likwid_markerStopRegion(name: *const c_char) -> c_int {
    // SAFETY: the caller's.
    end(unsafe { name_of(name) }, Nesting::Overlapping);
    0
}

/// Does nothing: totals that have been counted stay.
///
/// # Safety
/// It is safe; the signature is that of LIKWID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn likwid_markerResetRegion(_name: *const c_char) -> c_int {
    0
}

/// Returns the time, in seconds, and the entries of a region in this thread, and no events.
///
/// # Safety
/// `name` is null or a text that ends with a zero, and the others are null or point to a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn likwid_markerGetRegion(
    name: *const c_char,
    nr_events: *mut c_int,
    _events: *mut c_double,
    time: *mut c_double,
    count: *mut c_int,
) {
    // SAFETY: the caller's.
    let name = unsafe { name_of(name) };
    let (mut seconds, mut entries) = (0.0, 0);
    with_table(|table| {
        let region = region_of(table, name);
        let Some(clock) = clock() else { return };
        let counts = table.counts.slot(region).and_then(|slot| slot.read(|| clock.ticks()));
        let counts = counts.unwrap_or_default();
        seconds = std::time::Duration::from_nanos(clock.scale().ns(counts.time)).as_secs_f64();
        entries = c_int::try_from(counts.entries).unwrap_or(c_int::MAX);
    });
    // SAFETY: each is null or valid.
    unsafe {
        if let Some(nr_events) = nr_events.as_mut() {
            *nr_events = 0;
        }
        if let Some(time) = time.as_mut() {
            *time = seconds;
        }
        if let Some(count) = count.as_mut() {
            *count = entries;
        }
    }
}

/// Sends what was counted.
#[unsafe(no_mangle)]
pub extern "C" fn likwid_markerClose() {
    flush();
}

/// Sends what was counted; no file is written.
///
/// # Safety
/// It is safe; the signature is that of LIKWID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn likwid_markerWriteFile(_name: *const c_char) {
    flush();
}
