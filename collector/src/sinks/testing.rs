//! Rows for the tests of sinks.

use std::sync::Arc;

use polymeter_proto::ledger::{Cause, PlanChange};
use polymeter_proto::name::MetricName;
use polymeter_proto::series::{
    JobDescriptor, JobHandle, Kind, Labels, MetricDescriptor, Number, SessionDescriptor, SessionId, Unit,
};
use polymeter_store::accepted::{
    Accepted, JobRecord, LedgerLine, SampleBlock, SeriesRecord, SessionRecord, StoreId,
};

use super::sink::AcceptedRows;

/// Session of the node `n1` with the job 42.
pub(super) struct TestSession {
    pub(super) session: Arc<SessionRecord>,
    pub(super) job: Arc<JobRecord>,
    line: Arc<LedgerLine>,
    series: Vec<Arc<SeriesRecord>>,
    sequence: u64,
}

impl TestSession {
    /// Gives the job the counter `cpu.usage` with a label for each of `devices`.
    pub(super) fn new(id: u64, devices: &[&str]) -> Self {
        let session = Arc::new(SessionRecord {
            id: SessionId(id),
            descriptor: SessionDescriptor {
                node: "n1".try_into().unwrap(),
                agent_version: "1".try_into().unwrap(),
                started_us: 0,
                processors: Default::default(),
            },
        });
        let job = Arc::new(JobRecord {
            session: Arc::clone(&session),
            handle: JobHandle(1),
            descriptor: JobDescriptor {
                job_id: "42".try_into().unwrap(),
                cluster: None,
                owner_uid: None,
                owner: None,
                started_us: 0,
            },
            key: StoreId::none(),
        });
        let metric = Arc::new(MetricDescriptor {
            name: MetricName::new("cpu.usage").unwrap(),
            unit: Unit::Count,
            kind: Kind::Counter,
            number: Number::Float,
        });
        let series = |device: &&str| {
            Arc::new(SeriesRecord {
                session: Arc::clone(&session),
                metric: Arc::clone(&metric),
                job: Some(Arc::clone(&job)),
                labels: Arc::new(Labels::new(vec![("device".to_owned(), (*device).to_owned())]).unwrap()),
                id: StoreId::none(),
            })
        };
        let series = devices.iter().map(series).collect();
        let source = "cpu.stat".try_into().unwrap();
        let line = LedgerLine {
            session: Arc::clone(&session),
            job: Some(Arc::clone(&job)),
            source,
            id: StoreId::none(),
        };
        Self { session, job, line: Arc::new(line), series, sequence: 0 }
    }

    /// Samples of all series at `times_us`, with the values 0, 1, 2, ...
    pub(super) fn frame(&mut self, times_us: Vec<i64>) -> Accepted {
        self.sequence += 1;
        let mut frame = Accepted::empty(Arc::clone(&self.session), self.sequence, 0);
        let column = (0_u32..).take(times_us.len()).map(|value| f64::from(value).to_bits());
        frame.samples.push(SampleBlock {
            line: Arc::clone(&self.line),
            series: self.series.clone(),
            values: self.series.iter().flat_map(|_| column.clone()).collect(),
            times_us,
            windows: None,
        });
        frame
    }
}

/// Samples of a job's series, with the values 0, 1, 2, ...
pub(super) fn rows(count: u32) -> Arc<AcceptedRows> {
    let frame = TestSession::new(1, &["a=ü"]).frame((0..count.into()).collect());
    Arc::new(AcceptedRows::new(vec![frame]))
}

/// Ends of the job, of the session, and of the job's metric.
pub(super) const ENDS: [fn(&TestSession, &mut Accepted); 3] = [
    |session, frame| frame.job_ends.push((Arc::clone(&session.job), 1)),
    |_, frame| frame.session_end_us = Some(1),
    |session, frame| {
        let change = PlanChange {
            at_us: 1,
            job: None,
            level: None,
            metric: "cpu.usage".to_owned().try_into().unwrap(),
            old: None,
            new: None,
            cause: Cause::Lease,
            by: None,
            until_us: None,
        };
        frame.plan_changes.push((Some(Arc::clone(&session.job)), change));
    },
];
