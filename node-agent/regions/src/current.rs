//! The states of the current process and thread: begun at the first entry, and anew in a child after fork.

#![expect(
    unsafe_code,
    reason = "the state of a thread is a pointer that is cheap to reach, and handlers of fork and exit are C functions"
)]

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};

use crate::clock::Clock;
use crate::destination::Destination;
use crate::limits::STACK_BYTES;
use crate::process::Process;
use crate::registry::{OTHER_ID, RegionId};
use crate::sender;
use crate::thread_table::ThreadTable;

/// State of the process; null before the first entry, and in a child after fork.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// True outside of jobs, where nothing is counted.
static IS_OFF: AtomicBool = AtomicBool::new(false);

/// True if the handlers of fork and exit are registered, which a child inherits.
static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Table of this thread: null before its first entry, and after its end.
    static TABLE: Cell<*mut ThreadTable> = const { Cell::new(ptr::null_mut()) };
    /// Frees the table at the end of the thread.
    static OWNER: Owner = const { Owner { process: Cell::new(ptr::null()) } };
}

struct Owner {
    /// Process in which the thread began to count: in a child after fork its table is not freed.
    process: Cell<*const Process>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let table = TABLE.replace(ptr::null_mut());
        let Some(process) = existing() else { return };
        if table.is_null() || !ptr::eq(self.process.get(), process) {
            return;
        }
        // SAFETY: the table was made by `Box::into_raw` for this thread, and nothing else refers to it.
        let table = unsafe { Box::from_raw(table) };
        process.registry().remove_thread(&table.counts, process.clock);
    }
}

/// State of the process; none before the first entry.
fn existing() -> Option<&'static Process> {
    // SAFETY: the state of a process is never freed.
    unsafe { PROCESS.load(Acquire).as_ref() }
}

/// Begins to count, unless another thread has begun.
#[cold]
fn start() -> Option<&'static Process> {
    let Some(destination) = Destination::of_environment() else {
        IS_OFF.store(true, Relaxed);
        return None;
    };
    let process = Box::into_raw(Box::new(Process::new(destination)));
    if PROCESS.compare_exchange(ptr::null_mut(), process, AcqRel, Acquire).is_err() {
        // SAFETY: it was made above, and nobody else has it.
        drop(unsafe { Box::from_raw(process) });
        return existing();
    }
    if !HAS_HANDLERS.swap(true, AcqRel) {
        // SAFETY: the functions live as long as the process, since the library is never unloaded.
        unsafe {
            libc::pthread_atfork(None, None, Some(after_fork));
            libc::atexit(at_exit);
        }
    }
    let process = existing()?;
    start_sender(process);
    Some(process)
}

/// Starts the thread that sends. It takes no signals: they are those of the program.
fn start_sender(process: &'static Process) {
    let (mut all, mut before) = (std::mem::MaybeUninit::uninit(), std::mem::MaybeUninit::uninit());
    // SAFETY: both sets are valid for the calls; the first is filled before it is read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        if libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) != 0 {
            return;
        }
    }
    let thread = std::thread::Builder::new().name("polymeter".to_owned()).stack_size(STACK_BYTES);
    // Without a thread nothing is sent, and the program goes on.
    drop(thread.spawn(move || sender::run(process)));
    // SAFETY: the first call has filled the set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
}

/// Begins anew in the child: other threads are not there, and may have held locks.
extern "C" fn after_fork() {
    PROCESS.store(ptr::null_mut(), Release);
    TABLE.set(ptr::null_mut());
}

extern "C" fn at_exit() {
    if let Some(process) = existing() {
        process.flush(true);
    }
}

/// Sends what was counted, and waits for it, but not for long. Returns false if the agent has not accepted
/// it.
pub(crate) fn flush() -> bool {
    existing().is_none_or(|process| process.flush(false))
}

/// Lets the table of this thread count; does nothing outside of jobs. Signal handlers must not count.
#[inline]
pub(crate) fn with_table(count: impl FnOnce(&mut ThreadTable)) {
    let mut table = TABLE.get();
    if table.is_null() {
        if IS_OFF.load(Relaxed) {
            return;
        }
        table = new_table();
    }
    // SAFETY: the table belongs to this thread, which frees it at its end, and no count calls another.
    if let Some(table) = unsafe { table.as_mut() } {
        count(table);
    }
}

#[inline]
pub(crate) fn region_of(table: &mut ThreadTable, name: &[u8]) -> RegionId {
    table.region(name, |name| existing().map_or((OTHER_ID, &[]), |process| process.registry().region(name)))
}

/// Clock of the process; none before the first entry.
pub(crate) fn clock() -> Option<Clock> {
    existing().map(|process| process.clock)
}

#[cold]
fn new_table() -> *mut ThreadTable {
    let Some(process) = existing().or_else(start) else { return ptr::null_mut() };
    // A thread whose local values are gone ends, and counts no more.
    if OWNER.try_with(|owner| owner.process.set(process)).is_err() {
        return ptr::null_mut();
    }
    let counts = process.registry().add_thread();
    let table = Box::into_raw(Box::new(ThreadTable::new(counts, process.clock)));
    TABLE.set(table);
    table
}
