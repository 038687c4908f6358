//! The state of the process: begun at the first entry, and anew in a child after fork.

#![expect(
    unsafe_code,
    reason = "the state of a thread is a pointer that is cheap to reach, and handlers of fork and exit are C functions"
)]

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::destination::Destination;
use crate::limits::{FLUSH_WAIT, STACK_BYTES};
use crate::registry::Registry;
use crate::sender;
use crate::thread_table::ThreadTable;

/// The state of the process; null before the first entry, and in a child after fork.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// True outside of jobs, where nothing is counted.
static IS_OFF: AtomicBool = AtomicBool::new(false);

/// True if the handlers of fork and exit are registered, which a child inherits.
static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The table of this thread: null before its first entry, and after its end.
    static TABLE: Cell<*mut ThreadTable> = const { Cell::new(ptr::null_mut()) };
    /// Frees the table at the end of the thread.
    static OWNER: Owner = const { Owner { process: Cell::new(ptr::null_mut()) } };
}

/// The state of one process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) clock: Clock,
    pub(crate) destination: Destination,
    pub(crate) registry: Mutex<Registry>,
    flushes: Mutex<Flushes>,
    asked: Condvar,
    answered: Condvar,
}

/// The requests to send now.
#[derive(Debug, Default)]
struct Flushes {
    last: Flush,
    answered: u64,
}

/// A request to send now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flush {
    number: u64,
    /// True if the process ends.
    pub(crate) is_last: bool,
}

/// Ends with its thread.
struct Owner {
    /// The process in which the thread began to count: in a child after fork its table is not freed.
    process: Cell<*mut Process>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let table = TABLE.replace(ptr::null_mut());
        let process = PROCESS.load(Acquire);
        if table.is_null() || process.is_null() || self.process.get() != process {
            return;
        }
        // SAFETY: the table was made by `Box::into_raw` for this thread, and nothing else refers to it; the
        // state of a process is never freed.
        let (table, process) = unsafe { (Box::from_raw(table), &*process) };
        process.registry().remove_thread(&table.counts, process.clock);
    }
}

impl Process {
    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flushes(&self) -> MutexGuard<'_, Flushes> {
        self.flushes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the program asks to send now, or the time has passed.
    pub(crate) fn wait_for_flush(&self, wait: Duration) -> Option<Flush> {
        let is_idle = |flushes: &mut Flushes| flushes.answered == flushes.last.number;
        let waited = self.asked.wait_timeout_while(self.flushes(), wait, is_idle);
        let (flushes, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (flushes.answered != flushes.last.number).then_some(flushes.last)
    }

    /// Tells the program that all was sent.
    pub(crate) fn answer_flush(&self, flush: Flush) {
        self.flushes().answered = flush.number;
        self.answered.notify_all();
    }

    /// Waits for a while.
    pub(crate) fn pause(&self, wait: Duration) {
        let pause = Mutex::new(());
        let guard = pause.lock().unwrap_or_else(PoisonError::into_inner);
        drop(Condvar::new().wait_timeout(guard, wait));
    }

    fn flush(&self, is_last: bool) {
        let mut flushes = self.flushes();
        flushes.last = Flush { number: flushes.last.number + 1, is_last };
        let wanted = flushes.last.number;
        self.asked.notify_all();
        let is_due = |flushes: &mut Flushes| flushes.answered < wanted;
        drop(self.answered.wait_timeout_while(flushes, FLUSH_WAIT, is_due));
    }

    /// Begins to count, unless another thread does.
    #[cold]
    fn start() -> Option<&'static Self> {
        if IS_OFF.load(Relaxed) {
            return None;
        }
        let Some(destination) = Destination::of_environment() else {
            IS_OFF.store(true, Relaxed);
            return None;
        };
        let process = Box::into_raw(Box::new(Self {
            clock: Clock::new(),
            destination,
            registry: Mutex::new(Registry::new()),
            flushes: Mutex::default(),
            asked: Condvar::new(),
            answered: Condvar::new(),
        }));
        if let Err(other) = PROCESS.compare_exchange(ptr::null_mut(), process, AcqRel, Acquire) {
            // SAFETY: the first was made above, and nobody else has it; the second is never freed.
            unsafe {
                drop(Box::from_raw(process));
                return Some(&*other);
            }
        }
        if !HAS_HANDLERS.swap(true, AcqRel) {
            // SAFETY: the functions live as long as the process, since the library is never unloaded.
            unsafe {
                libc::pthread_atfork(None, None, Some(after_fork));
                libc::atexit(at_exit);
            }
        }
        // SAFETY: it is never freed.
        let process: &'static Self = unsafe { &*process };
        start_sender(process);
        Some(process)
    }

    fn current() -> Option<&'static Self> {
        let process = PROCESS.load(Acquire);
        // SAFETY: the state of a process is never freed.
        if process.is_null() { Self::start() } else { Some(unsafe { &*process }) }
    }
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
    flush_existing(true);
}

fn flush_existing(is_last: bool) {
    let process = PROCESS.load(Acquire);
    if !process.is_null() {
        // SAFETY: the state of a process is never freed.
        unsafe { &*process }.flush(is_last);
    }
}

/// Sends what was counted, and waits for it, but not for long.
pub(crate) fn flush() {
    flush_existing(false);
}

/// Lets the table of this thread count; does nothing outside of jobs. Signal handlers must not count.
#[inline]
pub(crate) fn with_table(count: impl FnOnce(&mut ThreadTable)) {
    let mut table = TABLE.get();
    if table.is_null() {
        table = new_table();
        if table.is_null() {
            return;
        }
    }
    // SAFETY: the table belongs to this thread, which frees it at its end, and no count calls another.
    count(unsafe { &mut *table });
}

/// Returns the region with a name.
#[inline]
pub(crate) fn region_of(table: &mut ThreadTable, name: &[u8]) -> usize {
    table.region(name, |name| Process::current().map_or((0, &[]), |process| process.registry().region(name)))
}

/// Returns the clock of the process; none before the first entry.
pub(crate) fn clock() -> Option<Clock> {
    let process = PROCESS.load(Acquire);
    // SAFETY: the state of a process is never freed.
    (!process.is_null()).then(|| unsafe { &*process }.clock)
}

#[cold]
fn new_table() -> *mut ThreadTable {
    let Some(process) = Process::current() else { return ptr::null_mut() };
    // A thread whose local values are gone ends, and counts no more.
    if OWNER.try_with(|owner| owner.process.set(ptr::from_ref(process).cast_mut())).is_err() {
        return ptr::null_mut();
    }
    let counts = process.registry().add_thread();
    let table = Box::into_raw(Box::new(ThreadTable::new(counts, process.clock)));
    TABLE.set(table);
    table
}
