//! Watches committed samples for stragglers.

use polymeter_proto::trigger::StragglerRule;
use prometheus_client::metrics::counter::Counter;

use super::sink::{AcceptedRows, Sink, SinkError};
use crate::metrics::Metrics;
use crate::stragglers::{NODES, Straggler, Watch};

/// Rules, and what is done with each node that became a straggler.
pub(crate) struct StragglerWatch {
    pub(crate) rules: Vec<StragglerRule>,
    pub(crate) report: Box<dyn Fn(Straggler) + Send>,
}

pub(super) struct StragglerSink {
    watch: Watch,
    report: Box<dyn Fn(Straggler) + Send>,
    found: Counter,
    ignored: Counter,
}

impl StragglerSink {
    pub(super) fn new(watch: StragglerWatch, metrics: &Metrics) -> Self {
        let (found, ignored) = (Counter::default(), Counter::default());
        metrics.register("stragglers", "Nodes that became stragglers of their jobs", found.clone());
        metrics.register(
            "straggler_ignored_blocks",
            "Blocks of samples that were not compared, because too many nodes are",
            ignored.clone(),
        );
        let StragglerWatch { rules, report } = watch;
        Self { watch: Watch::new(rules, NODES), report, found, ignored }
    }
}

impl Sink for StragglerSink {
    fn accept(&mut self, rows: &AcceptedRows) -> Result<(), SinkError> {
        for frame in rows.frames() {
            for straggler in self.watch.take(frame) {
                self.found.inc();
                (self.report)(straggler);
            }
        }
        rows.lost_jobs().iter().for_each(|job_key| self.watch.job_lost(*job_key));
        self.ignored.inc_by(self.watch.take_ignored());
        Ok(())
    }
}
