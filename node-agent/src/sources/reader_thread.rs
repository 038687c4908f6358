//! Reads that may block, each source on a thread of its own.
//!
//! The fast lane posts a request and continues; the thread reads and posts the result. Neither takes a lock,
//! and the buffers of the values are passed back and forth, so that nothing is allocated. A read that hangs
//! blocks only its thread: a source that is closed meanwhile leaves its thread behind, which ends when the
//! read returns.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use polymeter_proto::period::Period;

use super::custom_source::CustomSource;
use super::outcome::Outcome;
use super::place::Place;
use super::reading::Reading;
use super::refresh::RefreshInterval;
use super::slot::Slot;
use super::unknown_lines::UnknownLinesFound;
use crate::clock;
use crate::futex_timer::FutexTimer;

/// Bound of the reader threads of this process, including those that hang in a read of a closed source. A
/// large node has some sixty sources, and twice as many while they are opened anew; each GPU of each job
/// takes one more. An agent that polls devices has one for each of
/// [`DEVICES_MAX`](super::outside::DEVICES_MAX), which may be twice as many, too.
pub const THREADS_MAX: usize = 256 + 2 * super::outside::DEVICES_MAX;

/// Longest wait of an opening for the preparation of a source that states its refresh interval. The next
/// rescan takes over one that takes longer.
const PREPARATION: Duration = Duration::from_millis(20);

static THREADS: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// There are [`THREADS_MAX`] already.
    #[error("all {THREADS_MAX} threads for blocking reads are in use; sample fewer metrics that block")]
    TooMany,
    #[error("cannot start a thread for blocking reads: {0}")]
    Refused(io::Error),
}

/// Signals finished reads to the thread that waits for them.
#[derive(Debug, Default)]
pub struct FinishedReads {
    /// Wakes the waiting thread, also for other reasons.
    pub(crate) timer: FutexTimer,
    is_any: AtomicBool,
}

impl FinishedReads {
    pub(crate) fn take(&self) -> bool {
        self.is_any.load(Relaxed) && self.is_any.swap(false, Acquire)
    }

    pub(crate) fn signal(&self) {
        self.is_any.store(true, Release);
        self.timer.notify();
    }
}

#[derive(Debug)]
struct Request {
    reading: Reading,
    period: Option<Period>,
    finished: Arc<FinishedReads>,
}

#[derive(Debug)]
pub struct FinishedRead {
    pub reading: Reading,
    pub outcome: Outcome,
    /// Beginning of the read on the monotonic clock.
    pub began_ns: u64,
    pub ended_ns: u64,
    /// End of the read by the wall clock.
    pub ended_us: i64,
    pub cpu_ns: u64,
}

/// Mailbox between a source and its thread. At most one read is under way.
#[derive(Debug)]
struct Mailbox {
    request: ArrayQueue<Request>,
    result: ArrayQueue<FinishedRead>,
    timer: FutexTimer,
    is_closed: AtomicBool,
}

/// A source that a thread of its own reads. After it is dropped, that thread closes it as soon as no read is
/// under way.
#[derive(Debug)]
pub struct ThreadedSource {
    mailbox: Arc<Mailbox>,
    slots: Arc<[Slot]>,
    is_lasting: bool,
    has_last_read: bool,
    reads_wanted_only: bool,
    found: Found,
}

#[derive(Debug, Clone)]
struct Found {
    refresh_interval: RefreshInterval,
    unknown_lines: UnknownLinesFound,
}

impl Found {
    fn of(source: &dyn CustomSource) -> Self {
        Self {
            refresh_interval: RefreshInterval::new(source.refresh_interval()),
            unknown_lines: UnknownLinesFound::new(source.unknown_lines()),
        }
    }

    fn update(&self, source: &dyn CustomSource) {
        self.refresh_interval.set(source.refresh_interval());
        self.unknown_lines.set(source.unknown_lines());
    }
}

impl ThreadedSource {
    /// Starts a thread called `name` that reads `source` on request.
    pub fn start(name: &str, mut source: Box<dyn CustomSource>) -> Result<Self, ThreadError> {
        let place = Place::take(&THREADS, THREADS_MAX).ok_or(ThreadError::TooMany)?;
        let (slots, is_lasting) = (source.shared_slots(), source.is_lasting());
        let (has_last_read, reads_wanted_only) = (source.has_last_read(), source.reads_wanted_only());
        let mailbox = Arc::new(Mailbox {
            request: ArrayQueue::new(1),
            result: ArrayQueue::new(1),
            timer: FutexTimer::default(),
            is_closed: AtomicBool::new(false),
        });
        let found = Found::of(&*source);
        let (its_mailbox, its_found) = (Arc::clone(&mailbox), found.clone());
        let needs_preparation = source.needs_preparation();
        let (prepared, preparation) = mpsc::sync_channel(1);
        // The kernel shows 15 bytes of a thread's name.
        let builder = std::thread::Builder::new().name(format!("r:{name}")).stack_size(source.stack_bytes());
        let thread = builder.spawn(move || {
            source.prepare();
            its_found.update(&*source);
            prepared.try_send(()).ok();
            serve(source, &its_mailbox, &its_found);
            drop(place);
        });
        // The thread ends by itself: a join would wait for one that hangs.
        thread.map(drop).map_err(ThreadError::Refused)?;
        if needs_preparation {
            preparation.recv_timeout(PREPARATION).ok();
        }
        Ok(Self { mailbox, slots, is_lasting, has_last_read, reads_wanted_only, found })
    }

    /// Requests a read into `reading` by a plan with this shortest period; `finished` signals its end. Gives
    /// the buffer back if a read is under way.
    pub fn request(
        &self,
        reading: Reading,
        period: Option<Period>,
        finished: &Arc<FinishedReads>,
    ) -> Result<(), Reading> {
        let request = Request { reading, period, finished: Arc::clone(finished) };
        self.mailbox.request.push(request).map_err(|refused| refused.reading)?;
        self.mailbox.timer.notify();
        Ok(())
    }

    pub(crate) fn has_finished(&self) -> bool {
        !self.mailbox.result.is_empty()
    }

    pub fn take_finished(&self) -> Option<FinishedRead> {
        self.mailbox.result.pop()
    }

    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(super) const fn shared_slots(&self) -> &Arc<[Slot]> {
        &self.slots
    }

    pub(super) const fn is_lasting(&self) -> bool {
        self.is_lasting
    }

    pub(crate) const fn has_last_read(&self) -> bool {
        self.has_last_read
    }

    pub(crate) const fn reads_wanted_only(&self) -> bool {
        self.reads_wanted_only
    }

    pub(super) const fn refresh_interval(&self) -> &RefreshInterval {
        &self.found.refresh_interval
    }

    pub(super) const fn unknown_lines(&self) -> &UnknownLinesFound {
        &self.found.unknown_lines
    }
}

impl Drop for ThreadedSource {
    fn drop(&mut self) {
        self.mailbox.is_closed.store(true, Release);
        self.mailbox.timer.notify();
    }
}

/// Reads on request until the source is closed.
fn serve(mut source: Box<dyn CustomSource>, mailbox: &Mailbox, found: &Found) {
    // The supervisor's thread, which starts this one, has a higher priority than reads need.
    rustix::process::setpriority_process(None, 0).ok();
    let mut between = ReadsBetween::new(&*source);
    loop {
        let Some(Request { mut reading, period, finished }) = mailbox.request.pop() else {
            if mailbox.is_closed.load(Acquire) {
                return;
            }
            mailbox.timer.wait(between.due_ns());
            between.read_if_due(&mut *source, found);
            continue;
        };
        if mailbox.is_closed.load(Acquire) {
            return;
        }
        let (began_ns, cpu_before_ns) = (clock::monotonic_ns(), clock::thread_cpu_ns());
        reading.clear();
        if let Some(period) = period {
            source.set_period(period);
        }
        let outcome = source.read(&mut reading);
        found.update(&*source);
        let (ended_us, ended_ns) = (clock::steady_us(), clock::monotonic_ns());
        let cpu_ns =
            clock::thread_cpu_ns().saturating_sub(cpu_before_ns) + between.begin_anew(&*source, began_ns);
        let result = FinishedRead { reading, outcome, began_ns, ended_ns, ended_us, cpu_ns };
        // The previous result was taken before this read was requested.
        drop(mailbox.result.push(result));
        finished.signal();
    }
}

/// Reads between the requested ones, for a source that would lose counts without them. Their values are not
/// recorded.
#[derive(Debug)]
struct ReadsBetween {
    interval_ns: Option<u64>,
    /// Last read on the monotonic clock; `None` before the first requested one. A source without slots begins
    /// with its start.
    last_ns: Option<u64>,
    /// CPU time of these reads since the last requested one.
    cpu_ns: u64,
}

impl ReadsBetween {
    fn new(source: &dyn CustomSource) -> Self {
        // A source without slots, which only looks for something, is never requested.
        let last_ns = source.slots().is_empty().then(clock::monotonic_ns);
        Self { interval_ns: interval_ns(source), last_ns, cpu_ns: 0 }
    }

    fn due_ns(&self) -> Option<u64> {
        Some(self.last_ns?.saturating_add(self.interval_ns?))
    }

    fn read_if_due(&mut self, source: &mut dyn CustomSource, found: &Found) {
        let now_ns = clock::monotonic_ns();
        if self.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            let cpu_before_ns = clock::thread_cpu_ns();
            // A failure is reported by the next requested read, which fails, too.
            source.read_between();
            found.update(source);
            self.cpu_ns += clock::thread_cpu_ns().saturating_sub(cpu_before_ns);
            self.last_ns = Some(now_ns);
        }
    }

    /// Records a requested read. Returns the CPU time of the reads before it.
    fn begin_anew(&mut self, source: &dyn CustomSource, read_ns: u64) -> u64 {
        self.interval_ns = interval_ns(source);
        self.last_ns = Some(read_ns);
        std::mem::take(&mut self.cpu_ns)
    }
}

/// Half of the longest gap, which leaves room for a thread that is not scheduled for a while.
fn interval_ns(source: &dyn CustomSource) -> Option<u64> {
    source.longest_gap_ns().map(|longest_ns| longest_ns / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::UnknownLines;

    /// Counts its reads, and loses counts after some time without one.
    #[derive(Debug)]
    struct CountingSource {
        reads: Arc<AtomicUsize>,
        longest_gap_ns: Option<u64>,
    }

    impl CustomSource for CountingSource {
        fn read(&mut self, _reading: &mut Reading) -> Outcome {
            self.reads.fetch_add(1, Relaxed);
            Outcome::Read
        }

        fn longest_gap_ns(&self) -> Option<u64> {
            self.longest_gap_ns
        }

        /// Known after the first read, as if the device was opened there.
        fn refresh_interval(&self) -> Option<Period> {
            (self.reads.load(Relaxed) > 0).then_some(Period::SECOND)
        }

        fn unknown_lines(&self) -> UnknownLines {
            UnknownLines { lines: self.reads.load(Relaxed), first: "new 7".to_owned() }
        }
    }

    /// Its preparation finds the interval, and hangs until it is released.
    #[derive(Debug)]
    struct PreparedSource {
        release: mpsc::Receiver<()>,
        interval: Option<Period>,
    }

    impl CustomSource for PreparedSource {
        fn read(&mut self, _reading: &mut Reading) -> Outcome {
            Outcome::Read
        }

        fn refresh_interval(&self) -> Option<Period> {
            self.interval
        }

        fn needs_preparation(&self) -> bool {
            true
        }

        fn prepare(&mut self) {
            self.release.recv().ok();
            self.interval = Some(Period::SECOND);
        }
    }

    /// With 8 GPUs, 4 adapters and all sensors a node had more than 32 sources, so that those of the GPUs
    /// found no thread.
    #[test]
    fn the_sources_of_a_large_node_can_be_opened_anew() {
        let sources = (0..128).map(|_| CountingSource { reads: Arc::default(), longest_gap_ns: None });
        let all: Result<Vec<_>, _> =
            sources.map(|source| ThreadedSource::start("counting", Box::new(source))).collect();
        assert_eq!(all.map_or(0, |all| all.len()), 128);
    }

    #[test]
    fn an_opening_does_not_wait_for_a_preparation_that_hangs() {
        let (release, hangs) = mpsc::sync_channel(1);
        let source = Box::new(PreparedSource { release: hangs, interval: None });
        let source = ThreadedSource::start("hanging", source).unwrap();
        assert_eq!(source.refresh_interval().get(), None);
        release.send(()).unwrap();
        wait_until("the interval", || source.refresh_interval().get() == Some(Period::SECOND));
        assert!(source.request(Reading::default(), None, &Arc::default()).is_ok());
        wait_until("the requested read", || source.take_finished().is_some());
    }

    /// Starts a source, has it read once, and returns the count of its reads with its thread.
    fn start(longest_gap_ns: Option<u64>) -> (ThreadedSource, Arc<AtomicUsize>) {
        let reads = Arc::new(AtomicUsize::new(0));
        let source = CountingSource { reads: Arc::clone(&reads), longest_gap_ns };
        let source = ThreadedSource::start("counting", Box::new(source)).unwrap();
        assert!(source.request(Reading::default(), None, &Arc::default()).is_ok());
        wait_until("the requested read", || source.take_finished().is_some());
        (source, reads)
    }

    fn wait_until(what: &str, is_so: impl Fn() -> bool) {
        let until_ns = clock::monotonic_ns() + 120_000_000_000;
        while !is_so() {
            assert!(clock::monotonic_ns() < until_ns, "no {what}");
            clock::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_source_that_would_lose_counts_is_read_between_deadlines() {
        let (source, reads) = start(Some(2_000_000));
        wait_until("reads without a request", || reads.load(Relaxed) >= 5);
        assert!(source.take_finished().is_none(), "their values are not recorded");
        assert!(source.request(Reading::default(), None, &Arc::default()).is_ok());
        wait_until("another requested read", || source.take_finished().is_some());
        drop(source);
        wait_until("end of the thread", || Arc::strong_count(&reads) == 1);
    }

    #[test]
    fn the_refresh_interval_and_unknown_lines_are_asked_after_each_read() {
        let reads = Arc::new(AtomicUsize::new(0));
        let source = CountingSource { reads, longest_gap_ns: None };
        let source = ThreadedSource::start("counting", Box::new(source)).unwrap();
        assert_eq!((source.refresh_interval().get(), source.unknown_lines().get().lines), (None, 0));
        assert!(source.request(Reading::default(), None, &Arc::default()).is_ok());
        wait_until("the requested read", || source.take_finished().is_some());
        assert_eq!(source.refresh_interval().get(), Some(Period::SECOND));
        assert_eq!(source.unknown_lines().get(), UnknownLines { lines: 1, first: "new 7".to_owned() });
    }

    #[test]
    fn other_sources_are_read_on_request_only() {
        let (source, reads) = start(None);
        // Each notification ends a wait; none of them is a request.
        for _ in 0..100 {
            source.mailbox.timer.notify();
            std::thread::yield_now();
        }
        drop(source);
        wait_until("end of the thread", || Arc::strong_count(&reads) == 1);
        assert_eq!(reads.load(Relaxed), 1);
    }
}
