//! Thread that takes ends from the queue, and starts a worker for each.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use polymeter_service::clock::Clock;
use polymeter_service::log::chain;
use polymeter_store::{ClaimedEnd, JobEndQueue, StoreError, StoreUrl};
use rustix::process::geteuid;
use tracing::warn;

use super::command_file;
use super::command_log::ProblemLog;
use super::config::JobEndConfig;
use super::counters::Counters;
use super::worker::{self, Context, Done, Next, SharedCancel};
use crate::ingest::micros;
use crate::limits;
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;
use crate::thread::spawn;

#[derive(Debug)]
pub(crate) struct JobEndRunner {
    thread: JoinHandle<()>,
    ended: Receiver<()>,
}

#[derive(Debug)]
struct Running {
    /// Time since the clock's start.
    began: Duration,
    cancel: SharedCancel,
}

#[derive(Debug)]
struct Runner {
    context: Context,
    queue: Option<JobEndQueue>,
    running: HashMap<i64, Running>,
    /// The store does not have these yet.
    results: Vec<Done>,
    sender: SyncSender<Done>,
    receiver: Receiver<Done>,
    /// Time of the next attempt, and the delay after it if it fails.
    next_attempt: Duration,
    retry_delay: Duration,
}

impl JobEndRunner {
    pub(crate) fn start(
        config: &JobEndConfig,
        store: &StoreUrl,
        metrics: &Metrics,
        clock: Clock,
        shutdown: &Shutdown,
    ) -> io::Result<Self> {
        let context = Context {
            config: Arc::new(config.clone()),
            store: store.clone(),
            counters: Counters::register(metrics),
            log: ProblemLog::new(clock),
            clock,
            shutdown: shutdown.clone(),
        };
        if let Some(fault) = command_file::fault(&config.program, Some(geteuid().as_raw())) {
            context.log.problem(&fault, "until then reports are not passed on");
        }
        let (ended_sender, ended) = mpsc::sync_channel::<()>(1);
        // A worker never waits for the thread.
        let (sender, receiver) = mpsc::sync_channel(config.concurrent);
        let runner = Runner {
            context,
            queue: None,
            running: HashMap::new(),
            results: Vec::new(),
            sender,
            receiver,
            next_attempt: Duration::ZERO,
            retry_delay: limits::RECONNECT.0,
        };
        let thread = spawn("job-end", move || {
            runner.run();
            drop(ended_sender);
        })?;
        Ok(Self { thread, ended })
    }

    /// Waits for the thread, which kills its commands after the request to shut down. Returns false if it
    /// panicked. A command that cannot be killed, or a database that does not answer, is left until the end
    /// of the process.
    pub(crate) fn stop(self) -> bool {
        if self.ended.recv_timeout(limits::JOB_END_STOP_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
            warn!(
                error = "the store did not answer before the shutdown deadline",
                remedy = "their commands run after the next start",
                "cannot return ends of jobs"
            );
            return true;
        }
        self.thread.join().is_ok()
    }
}

impl Runner {
    fn run(mut self) {
        loop {
            let is_stopping = self.context.shutdown.requested_at().is_some();
            self.cancel_late(is_stopping);
            let now = self.context.clock.now().since_start;
            if now >= self.next_attempt || is_stopping {
                self.attempt(is_stopping);
            }
            if is_stopping && self.running.is_empty() && (self.results.is_empty() || self.queue.is_none()) {
                return;
            }
            self.wait(is_stopping);
        }
    }

    fn wait(&mut self, is_stopping: bool) {
        let timeout =
            if is_stopping { limits::JOB_END_EXIT_CHECK_INTERVAL } else { limits::JOB_END_POLL_INTERVAL };
        let first = self.receiver.recv_timeout(timeout).ok();
        for done in first.into_iter().chain(self.receiver.try_iter()) {
            self.running.remove(&done.end.job_key);
            self.results.push(done);
        }
    }

    /// Cancels the statements of reports that take too long; when the collector stops, of all.
    fn cancel_late(&self, is_stopping: bool) {
        let now = self.context.clock.now().since_start;
        for running in self.running.values() {
            if is_stopping || now.saturating_sub(running.began) > limits::JOB_END_REPORT_TIMEOUT {
                running.cancel.cancel();
            }
        }
    }

    /// Replaces the connection after an error.
    fn attempt(&mut self, is_stopping: bool) {
        match self.exchange(is_stopping) {
            Ok(()) => self.retry_delay = limits::RECONNECT.0,
            Err(error) => {
                self.queue = None;
                self.context.log.problem(&chain(&error), "retrying automatically");
                self.next_attempt = self.context.clock.now().since_start + self.retry_delay;
                self.retry_delay = (self.retry_delay * 2).min(limits::RECONNECT.1);
            }
        }
    }

    fn exchange(&mut self, is_stopping: bool) -> Result<(), StoreError> {
        let mut queue = match self.queue.take() {
            Some(queue) => queue,
            None => JobEndQueue::open(&self.context.store)?,
        };
        while let Some(Done { end, next }) = self.results.last() {
            match next {
                Next::Finish => queue.finish(end)?,
                Next::Retry => queue.postpone(end, micros(limits::JOB_END_RETRY_DELAY))?,
                Next::Release => queue.release(end)?,
            }
            self.results.pop();
        }
        if !is_stopping {
            self.claim(&mut queue)?;
        }
        self.queue = Some(queue);
        Ok(())
    }

    /// Claims as many ends as there may be further workers.
    fn claim(&mut self, queue: &mut JobEndQueue) -> Result<(), StoreError> {
        let Context { config, counters, log, .. } = &self.context;
        let queued = queue.count()?;
        counters.queued.set(i64::try_from(queued).unwrap_or(i64::MAX));
        if queued == 0 {
            return Ok(());
        }
        let dropped = queue.drop_old(config.queue, micros(limits::JOB_END_AGE))?;
        if dropped > 0 {
            counters.dropped.inc_by(dropped);
            log.dropped(dropped, "more ends of jobs wait than `queue` permits, or they are older than a day");
        }
        let lease = limits::JOB_END_REPORT_TIMEOUT + config.timeout + limits::JOB_END_LEASE_MARGIN;
        let room = config.concurrent.saturating_sub(self.running.len());
        let claims = queue.claim(room, micros(config.delay), micros(lease))?;
        if !claims.dropped.is_empty() {
            counters.dropped.inc_by(claims.dropped.len() as u64);
            log.dropped(claims.dropped.len() as u64, "each of several attempts did not end");
        }
        for end in claims.ends {
            self.start_worker(end);
        }
        Ok(())
    }

    fn start_worker(&mut self, end: ClaimedEnd) {
        let (context, cancel, sender) = (self.context.clone(), SharedCancel::default(), self.sender.clone());
        let running = Running { began: context.clock.now().since_start, cancel: cancel.clone() };
        self.context.counters.running.inc();
        // It is not joined: it reports its end.
        match spawn("job-end-run", move || worker::work(&context, end, &cancel, &sender)) {
            Ok(_) => drop(self.running.insert(end.job_key, running)),
            Err(error) => {
                self.context.counters.running.dec();
                self.context.log.problem(&format!("no thread: {error}"), "retrying automatically");
                self.results.push(Done { end, next: Next::Retry });
            }
        }
    }
}
