//! Reads that may block, each source on a thread of its own.
//!
//! The fast lane posts a request and continues; the thread reads and posts the result. Neither takes a lock, and the
//! buffers of the values are passed back and forth, so that nothing is allocated. A read that hangs blocks only its
//! thread: a source that is closed meanwhile leaves its thread behind, which ends when the read returns.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crossbeam_queue::ArrayQueue;

use super::custom_source::CustomSource;
use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::Slot;
use crate::clock;
use crate::futex_timer::FutexTimer;

/// The most reader threads of this process, including those that hang in a read of a closed source.
pub const THREADS_MAX: usize = 64;

/// The stack of a reader thread, in bytes. Device libraries need more than system calls.
const STACK_BYTES: usize = 256 * 1024;

/// The current number of reader threads.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// The reason why a reader thread cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// There are [`THREADS_MAX`] already.
    #[error("all {THREADS_MAX} threads for blocking reads are in use; sample fewer metrics that block")]
    TooMany,
    /// The kernel refused it.
    #[error("cannot start a thread for blocking reads: {0}")]
    Refused(io::Error),
}

/// The signal of finished reads to the thread that waits for them.
#[derive(Debug, Default)]
pub(crate) struct FinishedReads {
    /// Wakes the waiting thread, also for other reasons.
    pub(crate) timer: FutexTimer,
    is_any: AtomicBool,
}

impl FinishedReads {
    /// Returns true if a read has finished since the last call.
    pub(crate) fn take(&self) -> bool {
        self.is_any.load(Relaxed) && self.is_any.swap(false, Acquire)
    }

    fn signal(&self) {
        self.is_any.store(true, Release);
        self.timer.notify();
    }
}

/// A read to be done.
#[derive(Debug)]
struct Request {
    /// The buffer for the values.
    reading: Reading,
    finished: Arc<FinishedReads>,
}

/// A finished read.
#[derive(Debug)]
pub(crate) struct FinishedRead {
    pub(crate) reading: Reading,
    pub(crate) outcome: Outcome,
    /// The begin and the end of the read on the monotonic clock, in nanoseconds.
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    /// The end of the read by the wall clock, in microseconds.
    pub(crate) ended_us: i64,
    /// The CPU time that it took, in nanoseconds.
    pub(crate) cpu_ns: u64,
}

/// The mailbox between a source and its thread. At most one read is under way.
#[derive(Debug)]
struct Mailbox {
    request: ArrayQueue<Request>,
    result: ArrayQueue<FinishedRead>,
    timer: FutexTimer,
    is_closed: AtomicBool,
}

/// A source that is read by a thread of its own. When it is dropped, that thread closes it as soon as no read is under
/// way.
#[derive(Debug)]
pub struct ThreadedSource {
    mailbox: Arc<Mailbox>,
    slots: Vec<Slot>,
}

impl ThreadedSource {
    /// Starts a thread called `name` that reads `source` on request.
    ///
    /// # Errors
    /// Returns an error if there are too many such threads, or if the kernel refuses one more.
    pub fn start(name: &str, source: Box<dyn CustomSource>) -> Result<Self, ThreadError> {
        let place = ThreadPlace::take().ok_or(ThreadError::TooMany)?;
        let slots = source.slots().to_vec();
        let mailbox = Arc::new(Mailbox {
            request: ArrayQueue::new(1),
            result: ArrayQueue::new(1),
            timer: FutexTimer::default(),
            is_closed: AtomicBool::new(false),
        });
        let its_mailbox = Arc::clone(&mailbox);
        // The kernel shows 15 bytes of a thread's name.
        let builder = std::thread::Builder::new().name(format!("r:{name}")).stack_size(STACK_BYTES);
        let thread = builder.spawn(move || {
            serve(source, &its_mailbox);
            drop(place);
        });
        // The thread ends by itself: a join would wait for one that hangs.
        thread.map(drop).map_err(ThreadError::Refused)?;
        Ok(Self { mailbox, slots })
    }

    /// Requests a read into `reading`; `finished` signals its end. Returns the buffer if a read is under way.
    pub(crate) fn request(&self, reading: Reading, finished: &Arc<FinishedReads>) -> Result<(), Reading> {
        let request = Request { reading, finished: Arc::clone(finished) };
        self.mailbox.request.push(request).map_err(|refused| refused.reading)?;
        self.mailbox.timer.notify();
        Ok(())
    }

    /// Returns the read that has finished, if any.
    pub(crate) fn take_finished(&self) -> Option<FinishedRead> {
        self.mailbox.result.pop()
    }

    /// Returns the meaning of each value of a reading.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }
}

impl Drop for ThreadedSource {
    fn drop(&mut self) {
        self.mailbox.is_closed.store(true, Release);
        self.mailbox.timer.notify();
    }
}

/// Reads on request until the source is closed.
fn serve(mut source: Box<dyn CustomSource>, mailbox: &Mailbox) {
    // The supervisor's thread, which starts this one, has a higher priority than reads need.
    rustix::process::setpriority_process(None, 0).ok();
    loop {
        let Some(Request { mut reading, finished }) = mailbox.request.pop() else {
            if mailbox.is_closed.load(Acquire) {
                return;
            }
            mailbox.timer.wait(None);
            continue;
        };
        if mailbox.is_closed.load(Acquire) {
            return;
        }
        let (began_ns, cpu_before_ns) = (clock::monotonic_ns(), clock::thread_cpu_ns());
        reading.clear();
        let outcome = source.read(&mut reading);
        let (ended_us, ended_ns) = (clock::realtime_us(), clock::monotonic_ns());
        let cpu_ns = clock::thread_cpu_ns().saturating_sub(cpu_before_ns);
        let result = FinishedRead { reading, outcome, began_ns, ended_ns, ended_us, cpu_ns };
        // The previous result was taken before this read was requested.
        drop(mailbox.result.push(result));
        finished.signal();
    }
}

/// One of the [`THREADS_MAX`] places for reader threads.
struct ThreadPlace;

impl ThreadPlace {
    fn take() -> Option<Self> {
        let more = |threads: usize| (threads < THREADS_MAX).then_some(threads + 1);
        THREADS.fetch_update(Relaxed, Relaxed, more).ok().map(|_before| Self)
    }
}

impl Drop for ThreadPlace {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Relaxed);
    }
}
