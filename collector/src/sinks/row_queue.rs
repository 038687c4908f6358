//! Queue and thread of one sink.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use polymeter_service::clock::Clock;
use polymeter_service::log_throttle::LogThrottle;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tracing::warn;

use super::sink::{AcceptedRows, Sink};
use crate::limits;
use crate::thread::spawn;

/// Counters of one sink. Rows that were offered = accepted + dropped + queued.
#[derive(Debug, Clone, Default)]
pub(super) struct SinkCounters {
    pub(super) accepted_rows: Counter,
    /// Rows that found no room in the queue, and those of failed writes, some of which may have been written.
    pub(super) dropped_rows: Counter,
    pub(super) errors: Counter,
    /// Rows in the queue, and those in the current write.
    pub(super) queued_rows: Gauge,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct QueueBounds {
    pub(super) batches: usize,
    pub(super) rows: u64,
}

enum Message {
    Rows(Arc<AcceptedRows>),
    /// Reopen the output, even if there are no rows.
    Reopen,
}

pub(super) struct SinkQueue {
    name: Arc<str>,
    sender: SyncSender<Message>,
    rows_max: u64,
    counters: SinkCounters,
    reopen: Arc<AtomicBool>,
    throttle: Mutex<LogThrottle>,
}

impl fmt::Debug for SinkQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SinkQueue({})", self.name)
    }
}

impl SinkQueue {
    /// Queues rows without waiting, or drops and counts them. Returns false if they were dropped.
    pub(super) fn offer(&self, rows: &Arc<AcceptedRows>, now: Duration) -> bool {
        let count = i64::try_from(rows.count()).unwrap_or(i64::MAX);
        let queued = u64::try_from(self.counters.queued_rows.inc_by(count)).unwrap_or_default();
        // A transaction that is larger than the queue is accepted when the queue is empty.
        let has_room = queued == 0 || queued.saturating_add(rows.count()) <= self.rows_max;
        let problem = match has_room.then(|| self.sender.try_send(Message::Rows(Arc::clone(rows)))) {
            Some(Ok(())) => return true,
            Some(Err(TrySendError::Disconnected(_))) => "its thread has stopped",
            Some(Err(TrySendError::Full(_))) | None => "its queue is full: the sink is slower than the store",
        };
        self.counters.queued_rows.dec_by(count);
        self.counters.dropped_rows.inc_by(rows.count());
        if self.throttle.lock().unwrap_or_else(PoisonError::into_inner).allows(problem, now) {
            let dropped = self.counters.dropped_rows.get();
            warn!(error = problem, sink = %self.name, dropped, "cannot queue rows for a sink: rows dropped");
        }
        false
    }

    pub(super) fn reopen(&self) {
        self.reopen.store(true, Ordering::Release);
        // With a full queue, the thread sees the flag at its next rows; a thread that has ended has no
        // output.
        self.sender.try_send(Message::Reopen).ok();
    }
}

#[derive(Debug)]
pub(super) struct SinkThread {
    name: Arc<str>,
    counters: SinkCounters,
    /// Set when the collector stops waiting: rows that are still queued are dropped.
    abandoned: Arc<AtomicBool>,
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

impl SinkThread {
    /// Waits until the queue, whose senders were dropped, is empty, for at most `patience`. A blocked thread
    /// is left until the end of the process.
    pub(super) fn stop(self, patience: Duration) {
        if self.ended.recv_timeout(patience) != Err(RecvTimeoutError::Timeout) {
            if self.thread.join().is_err() {
                warn!(error = "its thread panicked", sink = %self.name, "cannot write to a sink");
            }
            return;
        }
        self.abandoned.store(true, Ordering::Release);
        let rows = self.counters.queued_rows.get();
        warn!(error = "the sink did not write its queued rows in time", sink = %self.name, rows, "cannot write the last rows to a sink");
    }
}

pub(super) fn start(
    name: &str,
    sink: Box<dyn Sink>,
    counters: SinkCounters,
    bounds: QueueBounds,
    clock: Clock,
) -> io::Result<(SinkQueue, SinkThread)> {
    let (sender, messages) = mpsc::sync_channel(bounds.batches);
    let (ended_sender, ended) = mpsc::sync_channel(1);
    let (reopen, abandoned) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let name: Arc<str> = name.into();
    let work = SinkWork {
        name: Arc::clone(&name),
        sink,
        counters: counters.clone(),
        reopen: Arc::clone(&reopen),
        abandoned: Arc::clone(&abandoned),
        throttle: LogThrottle::new(limits::SINK_LOG_INTERVAL, limits::SINK_LOG_LINES),
        clock,
        _ended: ended_sender,
    };
    let thread = spawn("sink", move || work.run(&messages))?;
    let queue = SinkQueue {
        name: Arc::clone(&name),
        sender,
        rows_max: bounds.rows,
        counters: counters.clone(),
        reopen,
        throttle: Mutex::new(LogThrottle::new(limits::SINK_LOG_INTERVAL, limits::SINK_LOG_LINES)),
    };
    Ok((queue, SinkThread { name, counters, abandoned, ended, thread }))
}

struct SinkWork {
    name: Arc<str>,
    sink: Box<dyn Sink>,
    counters: SinkCounters,
    reopen: Arc<AtomicBool>,
    abandoned: Arc<AtomicBool>,
    throttle: LogThrottle,
    clock: Clock,
    /// Dropped at the end of the thread, even by a panic.
    _ended: SyncSender<()>,
}

impl SinkWork {
    fn run(mut self, messages: &Receiver<Message>) {
        let mut ticked = self.clock.now().since_start;
        loop {
            let message = match self.sink.tick_interval() {
                None => messages.recv().map_err(|_disconnected| RecvTimeoutError::Disconnected),
                Some(interval) => {
                    let now = self.clock.now().since_start;
                    let passed = now.saturating_sub(ticked);
                    if passed >= interval {
                        ticked = now;
                        self.sink.tick();
                        continue;
                    }
                    messages.recv_timeout(interval - passed)
                }
            };
            let message = match message {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if self.reopen.swap(false, Ordering::AcqRel) {
                self.sink.reopen();
            }
            let Message::Rows(rows) = message else { continue };
            self.write(&rows);
            self.counters.queued_rows.dec_by(i64::try_from(rows.count()).unwrap_or(i64::MAX));
        }
    }

    fn write(&mut self, rows: &AcceptedRows) {
        if self.abandoned.load(Ordering::Acquire) {
            self.counters.dropped_rows.inc_by(rows.count());
            return;
        }
        match self.sink.accept(rows) {
            Ok(()) => drop(self.counters.accepted_rows.inc_by(rows.count())),
            Err(error) => {
                self.counters.errors.inc();
                self.counters.dropped_rows.inc_by(rows.count());
                if self.throttle.allows("write", self.clock.now().since_start) {
                    warn!(error = %error, sink = %self.name, rows = rows.count(), "cannot write to a sink");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sink::SinkError;
    use super::super::testing::rows;
    use super::*;

    /// Obeys an order of the test for each transaction.
    struct Scripted {
        orders: Receiver<Order>,
        reopened: SyncSender<()>,
    }

    enum Order {
        Accept,
        Fail,
        Panic,
    }

    impl Sink for Scripted {
        fn accept(&mut self, _: &AcceptedRows) -> Result<(), SinkError> {
            match self.orders.recv().unwrap() {
                Order::Accept => Ok(()),
                Order::Fail => Err(SinkError("disk full; remove old files".to_owned())),
                Order::Panic => panic!("ordered by the test"),
            }
        }

        fn reopen(&mut self) {
            self.reopened.send(()).unwrap();
        }
    }

    struct Started {
        queue: SinkQueue,
        thread: SinkThread,
        orders: SyncSender<Order>,
        reopened: Receiver<()>,
    }

    const BOUNDS: QueueBounds = QueueBounds { batches: 4, rows: 100 };

    fn started() -> Started {
        let (orders, received) = mpsc::sync_channel(8);
        let (reopened_sender, reopened) = mpsc::sync_channel(8);
        let sink = Box::new(Scripted { orders: received, reopened: reopened_sender });
        let (queue, thread) =
            start("scripted:x", sink, SinkCounters::default(), BOUNDS, Clock::start()).unwrap();
        Started { queue, thread, orders, reopened }
    }

    fn counts(counters: &SinkCounters) -> (u64, u64, u64, i64) {
        (
            counters.accepted_rows.get(),
            counters.dropped_rows.get(),
            counters.errors.get(),
            counters.queued_rows.get(),
        )
    }

    #[test]
    fn each_row_is_accepted_or_dropped() {
        let Started { queue, thread, orders, .. } = started();
        let counters = queue.counters.clone();
        queue.offer(&rows(10), Duration::ZERO);
        queue.offer(&rows(5), Duration::ZERO);
        queue.offer(&rows(3), Duration::ZERO);
        orders.send(Order::Accept).unwrap();
        orders.send(Order::Fail).unwrap();
        orders.send(Order::Accept).unwrap();
        drop(queue);
        thread.stop(Duration::from_secs(60));
        assert_eq!(counts(&counters), (13, 5, 1, 0));
    }

    #[test]
    fn a_sink_that_hangs_costs_rows_and_no_time() {
        let Started { queue, thread, orders, .. } = started();
        let counters = queue.counters.clone();
        for _ in 0..1000 {
            queue.offer(&rows(1), Duration::ZERO);
        }
        // One is in progress, and four wait.
        let (accepted, dropped, errors, queued) = counts(&counters);
        assert!((accepted, errors) == (0, 0) && (4..=5).contains(&queued), "{queued}");
        assert_eq!(dropped + queued.unsigned_abs(), 1000);
        drop(queue);
        // A stop that waited for the sink would never return: its next order follows only after that.
        thread.stop(Duration::from_millis(10));
        assert_eq!(counters.accepted_rows.get(), 0, "the sink hangs beyond the stop");
        // The thread drops the queued rows when it continues.
        orders.send(Order::Accept).unwrap();
        while counters.queued_rows.get() > 0 {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        assert_eq!(counters.accepted_rows.get(), 1);
        assert_eq!(counters.dropped_rows.get(), 999);
    }

    #[test]
    fn rows_are_bounded_except_for_one_large_transaction() {
        let Started { queue, thread, orders, .. } = started();
        let counters = queue.counters.clone();
        queue.offer(&rows(1000), Duration::ZERO);
        queue.offer(&rows(1), Duration::ZERO);
        assert_eq!((counters.dropped_rows.get(), counters.queued_rows.get()), (1, 1000));
        orders.send(Order::Accept).unwrap();
        drop(queue);
        thread.stop(Duration::from_secs(60));
        assert_eq!(counts(&counters), (1000, 1, 0, 0));
    }

    /// Release builds abort instead.
    #[test]
    fn rows_for_a_sink_that_panicked_are_dropped() {
        let Started { queue, thread, orders, .. } = started();
        let counters = queue.counters.clone();
        orders.send(Order::Panic).unwrap();
        queue.offer(&rows(1), Duration::ZERO);
        while !thread.thread.is_finished() {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        queue.offer(&rows(7), Duration::ZERO);
        assert_eq!(counters.dropped_rows.get(), 7);
        drop(queue);
        thread.stop(Duration::from_secs(60));
    }

    #[test]
    fn a_sink_without_rows_does_what_is_due() {
        struct Ticking(SyncSender<()>);
        impl Sink for Ticking {
            fn accept(&mut self, _: &AcceptedRows) -> Result<(), SinkError> {
                Ok(())
            }

            fn tick_interval(&self) -> Option<Duration> {
                Some(Duration::from_millis(1))
            }

            fn tick(&mut self) {
                self.0.try_send(()).ok();
            }
        }
        let (sender, ticks) = mpsc::sync_channel(1);
        let sink = Box::new(Ticking(sender));
        let (queue, thread) =
            start("ticking:x", sink, SinkCounters::default(), BOUNDS, Clock::start()).unwrap();
        for _ in 0..3 {
            ticks.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        drop(queue);
        thread.stop(Duration::from_secs(60));
    }

    #[test]
    fn an_idle_sink_opens_its_output_again() {
        let Started { queue, thread, reopened, .. } = started();
        queue.reopen();
        reopened.recv_timeout(Duration::from_secs(60)).unwrap();
        drop(queue);
        thread.stop(Duration::from_secs(60));
    }
}
