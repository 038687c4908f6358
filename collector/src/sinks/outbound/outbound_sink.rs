//! Sink: rows become batches, and batches requests in the spools of the shards.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use polymeter_service::clock::Clock;
use polymeter_service::log::chain;
use polymeter_service::log_throttle::LogThrottle;
use polymeter_store::reader::Reader;
use polymeter_store::{StoreError, StoreUrl};
use tracing::{info, warn};

use super::catch_up::Missing;
use super::config::OutboundConfig;
use super::counters::{Counters, DropReason};
use super::job_facts::Jobs;
use super::pipeline::Pipeline;
use super::sender::Sender;
use super::series::SeriesTable;
use super::shards::{Output, Spools, open_spools};
use super::spool::Stats;
use super::window::LeftOut;
use crate::limits;
use crate::metrics::Metrics;
use crate::sinks::ends::Ends;
use crate::sinks::sink::{AcceptedRows, Sink, SinkError};

const TICK: Duration = Duration::from_secs(1);

const SYNC_INTERVAL: Duration = Duration::from_secs(5);

/// How often series are searched for that are no longer offered.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Minutes without an offer after which a series is forgotten.
const IDLE_MIN: u64 = 60;

const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// Opens nothing before its thread works.
pub(crate) struct OutboundSink {
    config: Arc<OutboundConfig>,
    store: StoreUrl,
    counters: Counters,
    clock: Clock,
    throttle: LogThrottle,
    jobs: Jobs,
    /// None before the first use, and while the spool cannot be opened.
    open: Option<Open>,
    synced: Duration,
    checked: Duration,
}

struct Open {
    pipeline: Pipeline,
    sender: Sender,
    /// Keeps other processes from using the spool.
    lock: File,
}

/// Adds the samples of the store that did not reach the spool of an earlier process.
fn catch_up(store: &StoreUrl, pipeline: &mut Pipeline, now_ms: i64) -> Result<(), StoreError> {
    if pipeline.table.times().is_empty() {
        return Ok(());
    }
    let mut reader = Reader::open(store)?;
    let missing = Missing::find(&mut reader, &pipeline.table, now_ms)?;
    missing.read(&mut reader, |series, samples| pipeline.recover(series, samples))
}

impl OutboundSink {
    pub(in crate::sinks) fn new(
        config: OutboundConfig,
        store: StoreUrl,
        metrics: &Metrics,
        clock: Clock,
    ) -> Self {
        let counters = Counters::register(metrics, config.protocol.sink);
        Self::with_counters(config, store, counters, clock)
    }

    pub(in crate::sinks) fn with_counters(
        config: OutboundConfig,
        store: StoreUrl,
        counters: Counters,
        clock: Clock,
    ) -> Self {
        Self {
            config: Arc::new(config),
            jobs: Jobs::new(store.clone()),
            store,
            counters,
            clock,
            throttle: LogThrottle::new(limits::SINK_LOG_INTERVAL, limits::SINK_LOG_LINES),
            open: None,
            synced: Duration::ZERO,
            checked: Duration::ZERO,
        }
    }

    /// Ends without writing anything, as if the process was killed.
    #[cfg(test)]
    pub(in crate::sinks) fn kill(mut self) {
        if let Some(Open { sender, lock, .. }) = self.open.take() {
            sender.stop(Duration::ZERO);
            drop(lock);
        }
    }

    /// Opens the spool, continues with what an earlier process left, and starts to send.
    fn open(&mut self) -> io::Result<&mut Open> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.opened()?,
        };
        open.pipeline.output.now = self.clock.now().since_start;
        Ok(self.open.insert(open))
    }

    fn opened(&self) -> io::Result<Open> {
        let Spools { shards, times, lock } = open_spools(&self.config)?;
        let logs = shards.iter().map(|shard| Arc::clone(&shard.log)).collect();
        let table = SeriesTable::new((*self.config).clone(), shards.len(), times);
        let output = Output {
            shards,
            encoder: snap::raw::Encoder::new(),
            batch_samples: self.config.batch_samples,
            now: self.clock.now().since_start,
        };
        let mut pipeline = Pipeline::new(table, output);
        let sender = Sender::start(Arc::clone(&self.config), logs, self.counters.clone(), self.clock)?;
        self.catch_up(&mut pipeline);
        Ok(Open { pipeline, sender, lock })
    }

    fn catch_up(&self, pipeline: &mut Pipeline) {
        let now_ms = self.clock.now().wall_us / 1000;
        if let Err(error) = catch_up(&self.store, pipeline, now_ms) {
            let error = chain(&error);
            let sink = self.config.protocol.sink;
            warn!(error, "{sink}: cannot read from the store which samples were not sent before the restart");
        }
        let recovered = std::mem::take(&mut pipeline.added);
        pipeline.left_out = LeftOut::default();
        self.counters.recovered.inc_by(recovered);
        if recovered > 0 {
            let sink = self.config.protocol.sink;
            info!(
                samples = recovered,
                "{sink}: samples that were not sent before the restart were read from the store"
            );
        }
    }

    fn add(&mut self, rows: &AcceptedRows) -> io::Result<()> {
        self.open()?;
        let Self { open: Some(Open { pipeline, .. }), jobs, counters, .. } = self else { return Ok(()) };
        rows.frames().iter().for_each(|frame| pipeline.add_frame(frame, jobs, counters));
        if let Some(ends) = Ends::of_lost_jobs(rows.lost_jobs()) {
            pipeline.end_all(&ends, jobs);
        }
        let LeftOut { out_of_order, same_millisecond } = std::mem::take(&mut pipeline.left_out);
        self.counters.drop_samples(DropReason::OutOfOrder, out_of_order);
        self.counters.drop_samples(DropReason::SameMillisecond, same_millisecond);
        self.publish();
        Ok(())
    }

    /// Adds what happened in the spools to the metrics and the log.
    fn publish(&mut self) {
        let Some(Open { pipeline, .. }) = &self.open else { return };
        let mut all = Stats::default();
        let sink = self.config.protocol.sink;
        for shard in &pipeline.output.shards {
            let tally = shard.log.take_tally();
            self.counters.drop_samples(DropReason::SpoolFull, tally.dropped_full);
            self.counters.drop_samples(DropReason::SpoolUnwritable, tally.dropped_unwritable);
            self.counters.drop_samples(DropReason::SpoolDamaged, tally.dropped_damaged);
            self.counters.damaged_files.inc_by(tally.damaged_files);
            let now = self.clock.now().since_start;
            if let Some(error) = tally.error
                && self.throttle.allows("spool", now)
            {
                warn!(error, spool = %self.config.spool.display(), "cannot use the spool of {sink}");
            }
            if tally.dropped_full > 0 && self.throttle.allows("full", now) {
                let samples = tally.dropped_full;
                warn!(
                    samples,
                    "the spool of {sink} is full: its oldest samples are dropped; raise spool_bytes"
                );
            }
            let stats = shard.log.stats();
            all.bytes += stats.bytes;
            all.samples += stats.samples + u64::from(shard.batch.samples());
            all.memory_bytes += stats.memory_bytes;
            all.lag_ms = all.lag_ms.max(stats.lag_ms);
        }
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.counters.series.set(gauge(pipeline.table.len() as u64));
        self.counters.pending.set(gauge(all.samples));
        self.counters.spool_bytes.set(gauge(all.bytes));
        self.counters.memory_bytes.set(gauge(all.memory_bytes as u64));
        let lag = Duration::from_millis(u64::try_from(all.lag_ms).unwrap_or_default());
        self.counters.lag_seconds.set(lag.as_secs_f64());
    }
}

impl Sink for OutboundSink {
    fn accept(&mut self, rows: &AcceptedRows) -> Result<(), SinkError> {
        self.add(rows).map_err(|error| {
            SinkError(format!("cannot open the spool {}: {error}", self.config.spool.display()))
        })
    }

    fn tick_interval(&self) -> Option<Duration> {
        Some(self.config.batch_wait.min(TICK))
    }

    fn tick(&mut self) {
        // An error is reported with the next rows.
        if self.open().is_err() {
            return;
        }
        let now = self.clock.now();
        let wait = self.config.batch_wait;
        let Some(Open { pipeline, .. }) = &mut self.open else { return };
        let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        pipeline.close_windows(now.wall_us / 1000 - wait_ms);
        pipeline.flush_older(wait);
        if now.since_start.saturating_sub(self.synced) >= SYNC_INTERVAL {
            self.synced = now.since_start;
            pipeline.output.shards.iter().for_each(|shard| shard.log.sync());
        }
        if now.since_start.saturating_sub(self.checked) >= IDLE_CHECK_INTERVAL {
            self.checked = now.since_start;
            let now_min = now.since_start.as_secs() / 60;
            pipeline.table.forget_idle(now_min, IDLE_MIN);
            self.jobs.forget_idle(now_min, IDLE_MIN / 2);
        }
        self.publish();
    }
}

/// Writes the last samples to the spool, and sends them if the receiver answers at once.
impl Drop for OutboundSink {
    fn drop(&mut self) {
        let Some(Open { mut pipeline, sender, lock }) = self.open.take() else { return };
        pipeline.close_windows(i64::MAX);
        pipeline.flush_older(Duration::ZERO);
        pipeline.output.shards.iter().for_each(|shard| shard.log.sync());
        sender.stop(STOP_PATIENCE);
        drop(pipeline);
        // Only now may another collector open the spool.
        drop(lock);
    }
}
