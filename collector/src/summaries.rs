//! Thread that gathers the report of each job that has ended, and stores its figures. If notices are
//! configured, their rules are applied to these reports, and from time to time to those of running jobs;
//! triggers that fired are noticed in each round.
//!
//! ```text
//! writers -- a row without figures, in the transaction that stores the end --> store --> summaries --> figures
//!                                                                                            +--> notices
//! ```
//!
//! Nothing here is shared with the writers, and nothing is done while these are behind.

use std::io;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use polymeter_analysis::gather::gather;
use polymeter_analysis::job_usage::{array_id, job_energy, job_usage};
use polymeter_service::clock::{Clock, boottime_ns};
use polymeter_service::log::chain;
use polymeter_service::log_throttle::LogThrottle;
use polymeter_store::reader::{JobFilter, Read, ReadCancel, Reader};
use polymeter_store::{JobUsageTable, StoreError, StoreUrl};
use prometheus_client::metrics::counter::Counter;
use tracing::warn;

use crate::backlog::Backlog;
use crate::ingest::micros;
use crate::limits;
use crate::metrics::Metrics;
use crate::notices::{NoticedReceiver, Notices, NoticesConfig};
use crate::shutdown::Shutdown;
use crate::thread::spawn;

#[derive(Debug)]
pub(crate) struct Summaries {
    thread: JoinHandle<()>,
    ended: Receiver<()>,
    cancel: SharedCancel,
}

/// None without a connection.
type SharedCancel = Arc<Mutex<Option<ReadCancel>>>;

/// Replaced after an error. The reader of a file, which cannot remove its log, is closed first.
struct Connections {
    reader: Reader,
    table: JobUsageTable,
}

struct Summariser {
    store: StoreUrl,
    backlog: Backlog,
    clock: Clock,
    shutdown: Shutdown,
    cancel: SharedCancel,
    connections: Option<Connections>,
    summarised: Counter,
    log: LogThrottle,
    notices: Option<Notices>,
    next_examination: Duration,
}

impl Summaries {
    pub(crate) fn start(
        (store, notices): (&StoreUrl, Option<(&NoticesConfig, NoticedReceiver)>),
        backlog: Backlog,
        metrics: &Metrics,
        clock: Clock,
        shutdown: &Shutdown,
    ) -> io::Result<Self> {
        let (ended_sender, ended) = mpsc::sync_channel::<()>(1);
        let summarised = Counter::default();
        metrics.register("jobs_summarised", "Jobs that ended and were summarised", summarised.clone());
        let cancel = SharedCancel::default();
        let (interval, messages_max) = limits::JOB_END_LOG;
        let summariser = Summariser {
            store: store.clone(),
            backlog,
            clock,
            shutdown: shutdown.clone(),
            cancel: Arc::clone(&cancel),
            connections: None,
            summarised,
            log: LogThrottle::new(interval, messages_max),
            notices: notices.map(|notices| Notices::new(notices, metrics, clock, shutdown)),
            next_examination: Duration::ZERO,
        };
        let thread = spawn("summaries", move || {
            summariser.run();
            drop(ended_sender);
        })?;
        Ok(Self { thread, ended, cancel })
    }

    /// Waits for the thread after the request to shut down. Returns false if it panicked. A database that
    /// does not answer is left until the end of the process.
    pub(crate) fn stop(self) -> bool {
        if let Some(cancel) = self.cancel.lock().unwrap_or_else(PoisonError::into_inner).take() {
            cancel.cancel();
        }
        match self.ended.recv_timeout(limits::JOB_END_STOP_TIMEOUT) {
            Err(mpsc::RecvTimeoutError::Timeout) => true,
            Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => self.thread.join().is_ok(),
        }
    }
}

impl Summariser {
    fn run(mut self) {
        let mut retry = limits::RECONNECT.0;
        // The writers come first after a start.
        self.pause(limits::SUMMARY_INTERVAL);
        while !self.is_stopping() {
            let pause = match self.round() {
                Ok(summarised) => {
                    retry = limits::RECONNECT.0;
                    if summarised == 0 { limits::SUMMARY_INTERVAL } else { Duration::ZERO }
                }
                Err(_) if self.is_stopping() => return,
                Err(error) => {
                    self.connections = None;
                    let error = chain(&error);
                    if self.log.allows(&error, self.clock.now().since_start) {
                        warn!(error, remedy = "retrying automatically", "cannot summarise jobs");
                    }
                    retry = (retry * 2).min(limits::RECONNECT.1);
                    retry
                }
            };
            self.pause(pause);
        }
    }

    fn is_stopping(&self) -> bool {
        self.shutdown.requested_at().is_some()
    }

    fn pause(&self, pause: Duration) {
        let end = self.clock.now().since_start + pause;
        while !self.is_stopping() && self.clock.now().since_start < end {
            std::thread::park_timeout(pause.min(limits::SUMMARY_STOP_INTERVAL));
        }
    }

    /// Returns the number of summarised jobs.
    fn round(&mut self) -> Result<usize, StoreError> {
        if self.backlog.exists(boottime_ns()) {
            return Ok(0);
        }
        let mut connections = match self.connections.take() {
            Some(connections) => connections,
            None => {
                let reader = Reader::open(&self.store)?;
                *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = Some(reader.canceller());
                Connections { reader, table: JobUsageTable::open(&self.store)? }
            }
        };
        let (delay, lease) = (micros(limits::SUMMARY_DELAY), micros(limits::JOB_END_REPORT_TIMEOUT));
        let keys = connections.table.claim(limits::SUMMARY_JOBS, delay, lease)?;
        for key in &keys {
            if self.is_stopping() {
                break;
            }
            connections.summarise(*key, &self.store, self.notices.as_ref())?;
            self.summarised.inc();
        }
        if let Some(notices) = &self.notices {
            notices.notice_fired(&self.store, &mut connections.reader)?;
            notices.retry(&self.store)?;
        }
        let now = self.clock.now().since_start;
        if let Some(notices) = self.notices.as_ref().filter(|_| now >= self.next_examination) {
            let next_examination = now + notices.interval();
            self.examine_running(notices, &mut connections)?;
            self.next_examination = next_examination;
        }
        // A connection to a file would keep the writer from beginning anew with one that was replaced.
        self.connections = Some(connections).filter(|_| self.store.file().is_none());
        Ok(keys.len())
    }

    fn examine_running(&self, notices: &Notices, connections: &mut Connections) -> Result<(), StoreError> {
        let reader: &mut dyn Read = &mut connections.reader;
        let mut filter =
            JobFilter { is_ended: Some(false), limit: limits::SUMMARY_PAGE, ..JobFilter::default() };
        loop {
            let jobs = reader.jobs(&filter)?;
            for job in &jobs {
                if self.is_stopping() || self.backlog.exists(boottime_ns()) {
                    return Ok(());
                }
                let report = gather(reader, job, None)?;
                notices.consider(&self.store, reader, job, &report)?;
            }
            match jobs.last() {
                Some(last) if jobs.len() as u64 == u64::from(filter.limit) => {
                    filter.before = Some((last.listed, last.job_key));
                }
                Some(_) | None => return Ok(()),
            }
        }
    }
}

impl Connections {
    fn summarise(
        &mut self,
        job_key: i64,
        store: &StoreUrl,
        notices: Option<&Notices>,
    ) -> Result<(), StoreError> {
        let reader: &mut dyn Read = &mut self.reader;
        let filter = JobFilter { job_key: Some(job_key), limit: 1, ..JobFilter::default() };
        let Some(job) = reader.jobs(&filter)?.pop() else { return Ok(()) };
        // It runs again.
        let Some(ended_ns) = job.ended_ns else { return Ok(()) };
        let report = gather(reader, &job, None)?;
        let (usage, energy) = (job_usage(&report), job_energy(&report));
        self.table.put(job_key, ended_ns.div_euclid(1000), array_id(&report), &usage, &energy)?;
        notices.map_or(Ok(()), |notices| notices.consider(store, reader, &job, &report))
    }
}
