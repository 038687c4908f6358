//! Keeps the newest value of each series for the page `/federate`.

use std::sync::Arc;
use std::time::Duration;

use polymeter_service::clock::Clock;
use polymeter_store::StoreUrl;
use polymeter_store::accepted::SampleBlock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::ends::Ends;
use super::outbound::Jobs;
use super::sink::{AcceptedRows, Sink, SinkError};
use crate::federation::{KEPT, NewestValues, Table};
use crate::metrics::Metrics;

/// How often values are searched for that are no longer kept.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Minutes without a use after which the facts of a job are forgotten.
const IDLE_MIN: u64 = 30;

pub(super) struct FederationSink {
    values: NewestValues,
    jobs: Jobs,
    clock: Clock,
    series: Gauge,
    refused: Counter,
}

impl FederationSink {
    pub(super) fn new(values: NewestValues, store: StoreUrl, metrics: &Metrics, clock: Clock) -> Self {
        let (series, refused) = (Gauge::default(), Counter::default());
        metrics.register("federation_series", "Series with a value for /federate", series.clone());
        metrics.register(
            "federation_refused_values",
            "Values that are not kept for /federate, because there are too many series",
            refused.clone(),
        );
        Self { values, jobs: Jobs::new(store), clock, series, refused }
    }

    fn publish(&self, table: &mut Table) {
        self.series.set(i64::try_from(table.len()).unwrap_or(i64::MAX));
        self.refused.inc_by(table.take_refused());
    }
}

impl Sink for FederationSink {
    fn accept(&mut self, rows: &AcceptedRows) -> Result<(), SinkError> {
        let now = self.clock.now().since_start;
        for frame in rows.frames() {
            self.jobs.learn(frame);
            // A page that is made has its own copy: the lock is held for one frame.
            let mut table = self.values.table();
            for block in &frame.samples {
                add_block(&mut table, &mut self.jobs, block, now);
            }
            if let Some(ends) = Ends::of_frame(frame) {
                end_all(&mut table, &mut self.jobs, &ends);
            }
        }
        let mut table = self.values.table();
        if let Some(ends) = Ends::of_lost_jobs(rows.lost_jobs()) {
            end_all(&mut table, &mut self.jobs, &ends);
        }
        self.publish(&mut table);
        Ok(())
    }

    fn tick_interval(&self) -> Option<Duration> {
        Some(CHECK_INTERVAL)
    }

    fn tick(&mut self) {
        let now = self.clock.now().since_start;
        self.jobs.forget_idle(now.as_secs() / 60, IDLE_MIN);
        let mut table = self.values.table();
        table.forget_before(now.saturating_sub(KEPT));
        self.publish(&mut table);
    }
}

fn add_block(table: &mut Table, jobs: &mut Jobs, block: &SampleBlock, now: Duration) {
    for (series, samples) in block.iter() {
        if let Some(newest) = samples.last() {
            table.put(series, newest, now);
        }
    }
    let Some(job) = &block.line.job else { return };
    let known = jobs.find(job);
    let has_changed = std::mem::take(&mut known.has_changed);
    if !table.keep_job(job, now) || has_changed {
        table.put_job(job, Arc::from(known.facts.labels()), now);
    }
}

fn end_all(table: &mut Table, jobs: &mut Jobs, ends: &Ends<'_>) {
    table.end(|series| ends.has_series(series), |job| ends.has_job(job));
    jobs.end(|job| ends.has_job(job));
}

#[cfg(test)]
mod tests {
    use polymeter_proto::ledger::JobFacts;
    use polymeter_store::accepted::Accepted;

    use super::*;
    use crate::federation;
    use crate::sinks::testing::{ENDS, TestSession};

    const ALL: &str = "match[]=%7Bnode!%3D%22%22%7D";

    fn sink() -> (FederationSink, NewestValues) {
        let values = NewestValues::new(3);
        let store = StoreUrl::sqlite("/no/such/store.db");
        (FederationSink::new(values.clone(), store, &Metrics::new(String::new()), Clock::start()), values)
    }

    fn accept(sink: &mut FederationSink, frame: Accepted) {
        sink.accept(&AcceptedRows::new(vec![frame])).unwrap();
    }

    fn samples(values: &NewestValues, query: &str) -> Vec<String> {
        federation::samples(values, query, 100).unwrap()
    }

    fn usage(device: &str, value: u32) -> String {
        format!("polymeter_cpu_usage_total{{device=\"{device}\",jobid=\"42\",node=\"n1\"}} {value}")
    }

    const INFO: &str = "polymeter_job_info{jobid=\"42\",node=\"n1\"} 1";

    #[test]
    fn the_newest_value_of_each_series_is_kept() {
        let (mut sink, values) = sink();
        let mut session = TestSession::new(1, &["a", "b"]);
        accept(&mut sink, session.frame(vec![1, 2, 3]));
        assert_eq!(samples(&values, ALL), [usage("a", 2), usage("b", 2), INFO.to_owned()]);
        assert_eq!(federation::samples(&values, ALL, 3).map(|found| found.len()), Ok(3));
        let refused = federation::samples(&values, ALL, 2).unwrap_err();
        assert_eq!(refused, "more than 2 series match; choose fewer with match[]");
        // An older value, as of a spool.
        accept(&mut sink, session.frame(vec![0]));
        assert_eq!(samples(&values, "match[]=%7Bdevice%3D%22a%22%7D"), [usage("a", 2)]);
        accept(&mut sink, session.frame(vec![4]));
        assert_eq!(samples(&values, "match[]=polymeter_cpu_usage_total"), [usage("a", 0), usage("b", 0)]);
        // The agent was restarted: the series is on the page once.
        accept(&mut sink, TestSession::new(2, &["a"]).frame(vec![5, 6]));
        assert_eq!(samples(&values, "match[]=%7Bdevice%3D%22a%22%7D"), [usage("a", 1)]);
        let refused = sink.refused.get();
        accept(&mut sink, TestSession::new(3, &["c"]).frame(vec![7]));
        assert!(samples(&values, "match[]=%7Bdevice%3D%22c%22%7D").is_empty());
        assert_eq!(sink.refused.get(), refused + 1, "there is room for three series");
        let mut frame = session.frame(vec![7]);
        let facts = JobFacts { account: Some("acc".try_into().unwrap()), ..JobFacts::default() };
        frame.job_facts.push((Arc::clone(&session.job), facts));
        accept(&mut sink, frame);
        let info = samples(&values, "match[]=polymeter_job_info%7Baccount%3D%22acc%22%7D");
        assert_eq!(info, ["polymeter_job_info{account=\"acc\",jobid=\"42\",node=\"n1\"} 1"]);
    }

    #[test]
    fn series_vanish_when_they_end() {
        for (end, left) in ENDS.into_iter().zip([0, 0, 1]) {
            let (mut sink, values) = sink();
            let mut session = TestSession::new(1, &["a"]);
            accept(&mut sink, session.frame(vec![1]));
            assert_eq!(samples(&values, ALL).len(), 2);
            let mut frame = Accepted::empty(Arc::clone(&session.session), 2, 0);
            end(&session, &mut frame);
            accept(&mut sink, frame);
            assert_eq!(samples(&values, ALL).len(), left, "the job itself may continue");
        }
        let (mut sink, values) = sink();
        let mut session = TestSession::new(1, &["a"]);
        session.job.key.assign(7);
        accept(&mut sink, session.frame(vec![1]));
        sink.accept(&AcceptedRows::of_lost_jobs(vec![8])).unwrap();
        assert_eq!(samples(&values, ALL).len(), 2);
        sink.accept(&AcceptedRows::of_lost_jobs(vec![7])).unwrap();
        assert!(samples(&values, ALL).is_empty());
        // What no longer arrives is forgotten after a while.
        accept(&mut sink, session.frame(vec![2]));
        values.table().forget_before(Duration::from_secs(3600));
        assert!(samples(&values, ALL).is_empty());
        // Its job is known when it returns.
        accept(&mut sink, session.frame(vec![3]));
        assert_eq!(samples(&values, ALL).len(), 2);
    }
}
