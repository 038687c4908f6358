//! Rows for the tests of sinks.

use std::sync::{Arc, OnceLock};

use polymeter_proto::name::MetricName;
use polymeter_proto::series::{
    JobDescriptor, JobHandle, Kind, Labels, MetricDescriptor, Number, SessionDescriptor, SessionId, Unit,
};
use polymeter_store::accepted::{Accepted, JobRecord, LedgerLine, SampleBlock, SeriesRecord, SessionRecord};

use super::sink::AcceptedRows;

/// Returns `count` samples of a job's series, with the values 0, 1, 2, ...
pub(super) fn rows(count: u32) -> Arc<AcceptedRows> {
    let session = Arc::new(SessionRecord {
        id: SessionId(1),
        descriptor: SessionDescriptor {
            node: "n1".try_into().unwrap(),
            agent_version: "1".try_into().unwrap(),
            started_us: 0,
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
        key: OnceLock::new(),
    });
    let metric = Arc::new(MetricDescriptor {
        name: MetricName::new("cpu.usage").unwrap(),
        unit: Unit::Count,
        kind: Kind::Counter,
        number: Number::Float,
    });
    let series = Arc::new(SeriesRecord {
        session: Arc::clone(&session),
        metric,
        job: Some(Arc::clone(&job)),
        labels: Labels::new(vec![("device".to_owned(), "a=ü".to_owned())]).unwrap(),
        id: OnceLock::new(),
    });
    let source = "cpu.stat".try_into().unwrap();
    let line = LedgerLine { session: Arc::clone(&session), job: Some(job), source, id: OnceLock::new() };
    let mut frame = Accepted::empty(session, 1, 0);
    frame.samples.push(SampleBlock {
        line: Arc::new(line),
        series: vec![series],
        times_us: (0..count.into()).collect(),
        values: (0..count).map(|value| f64::from(value).to_bits()).collect(),
    });
    Arc::new(AcceptedRows::new(vec![frame]))
}
