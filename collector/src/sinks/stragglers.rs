//! Watches committed samples for stragglers.

use std::io;
use std::time::Duration;

use polymeter_proto::trigger::StragglerRule;
use polymeter_service::clock::Clock;
use polymeter_store::StoreUrl;
use prometheus_client::metrics::counter::Counter;

use super::sink::{AcceptedRows, Sink, SinkError};
use super::straggler_exchange::Exchange;
use crate::limits;
use crate::metrics::Metrics;
use crate::other_collectors::OtherCollectors;
use crate::stragglers::{NODES, Straggler, Watch};

/// Rules, and what is done with each node that became a straggler.
pub(crate) struct StragglerWatch {
    pub(crate) rules: Vec<StragglerRule>,
    pub(crate) report: Box<dyn Fn(Straggler) + Send>,
    /// Other collectors that may have nodes of the same jobs.
    pub(crate) others: OtherCollectors,
    pub(crate) collector_id: String,
}

pub(super) struct StragglerSink {
    watch: Watch,
    report: Box<dyn Fn(Straggler) + Send>,
    /// None if the store has one collector.
    exchange: Option<Exchange>,
    found: Counter,
    ignored: Counter,
}

impl StragglerSink {
    pub(super) fn start(
        watch: StragglerWatch,
        store: StoreUrl,
        metrics: &Metrics,
        clock: Clock,
    ) -> io::Result<Self> {
        let (found, ignored) = (Counter::default(), Counter::default());
        metrics.register("stragglers", "Nodes that this collector found to be stragglers", found.clone());
        metrics.register(
            "straggler_ignored_blocks",
            "Blocks of samples that were not compared, because too many nodes are",
            ignored.clone(),
        );
        let StragglerWatch { rules, report, others, collector_id } = watch;
        let exchange = if store.has_parallel_writers() {
            Some(Exchange::start(store, &collector_id, others, clock)?)
        } else {
            None
        };
        Ok(Self { watch: Watch::new(rules, NODES), report, exchange, found, ignored })
    }

    fn report(&self, found: Vec<Straggler>) {
        for straggler in found {
            self.found.inc();
            (self.report)(straggler);
        }
    }
}

impl Sink for StragglerSink {
    fn accept(&mut self, rows: &AcceptedRows) -> Result<(), SinkError> {
        for frame in rows.frames() {
            let found = self.watch.take(frame);
            self.report(found);
        }
        rows.lost_jobs().iter().for_each(|job_key| self.watch.job_lost(*job_key));
        self.ignored.inc_by(self.watch.take_ignored());
        Ok(())
    }

    fn tick_interval(&self) -> Option<Duration> {
        self.exchange.as_ref().map(|_| limits::STRAGGLER_EXCHANGE)
    }

    fn tick(&mut self) {
        let Some(exchange) = &mut self.exchange else { return };
        let parts = exchange.turn(&mut self.watch);
        let found = self.watch.add_parts(&parts);
        self.report(found);
    }
}
