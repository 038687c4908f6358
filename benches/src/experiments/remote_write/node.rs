//! Nodes whose frames are passed to a sink.

use std::error::Error;
use std::sync::Arc;

use polymeter_proto::name::MetricName;
use polymeter_proto::series::{
    JobDescriptor, JobHandle, Kind, Labels, MetricDescriptor, Number, SessionDescriptor, SessionId, Unit,
};
use polymeter_store::accepted::{
    Accepted, JobRecord, LedgerLine, SampleBlock, SeriesRecord, SessionRecord, StoreId,
};

pub(crate) struct Node {
    session: Arc<SessionRecord>,
    line: Arc<LedgerLine>,
    series: Vec<Arc<SeriesRecord>>,
    sequence: u64,
}

impl Node {
    pub(crate) fn new(number: u64, series: usize) -> Result<Self, Box<dyn Error>> {
        let descriptor = SessionDescriptor {
            node: format!("node-{number}").as_str().try_into()?,
            agent_version: "1".try_into()?,
            started_us: 0,
            processors: Default::default(),
        };
        let session = Arc::new(SessionRecord { id: SessionId(number + 1), descriptor });
        let descriptor = JobDescriptor {
            job_id: format!("{}", 4000 + number / 10).as_str().try_into()?,
            cluster: None,
            owner_uid: Some(1000),
            owner: Some("alice".try_into()?),
            started_us: 0,
        };
        let job = Arc::new(JobRecord {
            session: Arc::clone(&session),
            handle: JobHandle(1),
            descriptor,
            key: StoreId::none(),
        });
        let mut records = Vec::new();
        for place in 0..series {
            let metric = MetricDescriptor {
                name: MetricName::new(format!("memory.counted_{}", place / 10))?,
                unit: Unit::Bytes,
                kind: Kind::Gauge,
                number: Number::Unsigned,
            };
            records.push(Arc::new(SeriesRecord {
                session: Arc::clone(&session),
                metric: Arc::new(metric),
                job: Some(Arc::clone(&job)),
                labels: Arc::new(Labels::new(vec![("cpu".to_owned(), (place % 10).to_string())])?),
                id: StoreId::none(),
            }));
        }
        let line = LedgerLine {
            session: Arc::clone(&session),
            job: Some(job),
            source: "memory.stat".try_into()?,
            id: StoreId::none(),
        };
        Ok(Self { session, line: Arc::new(line), series: records, sequence: 0 })
    }

    /// Makes a frame with values that change as those of a job.
    pub(crate) fn frame(&mut self, first_us: i64, samples: usize, distance_us: i64) -> Accepted {
        self.sequence += 1;
        let mut frame = Accepted::empty(Arc::clone(&self.session), self.sequence, first_us);
        let times_us: Vec<i64> = (0..).take(samples).map(|at: i64| first_us + at * distance_us).collect();
        let mut state = self.sequence;
        let values = self.series.iter().flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let base = state >> 34;
            times_us.iter().map(move |time_us| base * 4096 + time_us.unsigned_abs() % 7 * 4096)
        });
        let values = values.collect();
        let (line, series) = (Arc::clone(&self.line), self.series.clone());
        frame.samples.push(SampleBlock { line, series, times_us, values, windows: None });
        frame
    }
}
