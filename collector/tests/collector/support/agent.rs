//! A minimal agent: it samples the values of the test, and keeps frames until they are acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_collector::Collector;
use polymeter_collector::clock::Clock;
use polymeter_proto::batch::{Batch, Column, Instant, Job, Shape};
use polymeter_proto::ledger::{Event, LedgerEntry};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    JobDescriptor, JobHandle, Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId, SessionDescriptor,
    SessionId, ShapeId, Unit,
};
use polymeter_proto::stacks::{FunctionDescriptor, FunctionName, StackCount, StackDescriptor, StackInterval};
use polymeter_proto::wire::dictionary::{Announced, Entry};
use polymeter_proto::wire::frame::{Encoder, Extras};
use polymeter_proto::wire::message::{SkipReason, ToAgent, ToCollector};
use polymeter_service::clock::realtime_us;

const KEEP: &str = r#""verb":"keep""#;

const TIME_REQUEST: &str = r#"{"verb":"time""#;

/// A message that no collector takes for longer is a failure.
const SEND_TIMEOUT_MS: i32 = 30_000;

/// Silence after which the agent resends unacknowledged frames.
const RESEND_AFTER_MS: i64 = 500;

/// Shape, time in microseconds since the epoch, and a value for each column.
pub(crate) type Row<'a> = (&'a Arc<Shape>, i64, &'a [Option<u64>]);

/// Id of a process, its functions from the outermost to the innermost, and the number of samples.
pub(crate) type Stack<'a> = (u32, &'a [&'a str], u64);

pub(crate) struct Agent {
    socket: zmq::Socket,
    session: SessionId,
    pub(crate) descriptor: SessionDescriptor,
    announced: Announced,
    encoder: Encoder,
    sequence: u64,
    pub(crate) outbox: BTreeMap<u64, Vec<u8>>,
    /// Messages from the collector, in order.
    pub(crate) answers: Vec<ToAgent>,
    /// How far the node's clock is ahead of the collector's.
    pub(crate) ahead_us: i64,
}

impl Agent {
    pub(crate) fn new(context: &zmq::Context, endpoint: &str, node: &str, session: u64) -> Self {
        Self {
            socket: connect(context, endpoint),
            session: SessionId(session),
            descriptor: SessionDescriptor {
                node: node.try_into().unwrap(),
                agent_version: "0.1.0".try_into().unwrap(),
                started_us: super::now_us(),
                processors: Default::default(),
            },
            announced: Announced::default(),
            encoder: Encoder::default(),
            sequence: 0,
            outbox: BTreeMap::new(),
            answers: Vec::new(),
            ahead_us: 0,
        }
    }

    pub(crate) fn to(context: &zmq::Context, collector: &Collector, node: &str, session: u64) -> Self {
        Self::new(context, collector.endpoint(), node, session)
    }

    /// Leaves its collector for another one of the same store.
    pub(crate) fn move_to(&mut self, context: &zmq::Context, endpoint: &str) {
        self.socket = connect(context, endpoint);
    }

    /// Returns the number of the frame.
    pub(crate) fn frame(&mut self, rows: &[Row<'_>], ledger: &[LedgerEntry], events: &[Event]) -> u64 {
        self.frame_of(false, rows, ledger, events)
    }

    /// Makes a frame of samples that a ring kept. Returns its number.
    pub(crate) fn kept_frame(&mut self, rows: &[Row<'_>], ledger: &[LedgerEntry], events: &[Event]) -> u64 {
        self.frame_of(true, rows, ledger, events)
    }

    fn frame_of(&mut self, is_kept: bool, rows: &[Row<'_>], ledger: &[LedgerEntry], events: &[Event]) -> u64 {
        self.sequence += 1;
        let mut batch = Batch::with_capacity(1024);
        let mut dictionary = Vec::new();
        if self.sequence == 1 {
            dictionary.push(Entry::Session(self.descriptor.clone()));
        }
        let mut shapes = BTreeMap::new();
        for (shape, time_us, values) in rows {
            self.announced.announce(shape, &mut dictionary);
            let index = *shapes.entry(shape.id).or_insert_with(|| batch.add_shape(shape));
            let instant = Instant { deadline: None, time_us: *time_us };
            batch.push(index, instant, values.iter().copied()).unwrap();
        }
        let mut bytes = Vec::new();
        let extras = Extras { dictionary: &dictionary, ledger, events, stacks: &[], is_kept };
        self.encoder.encode(&mut bytes, self.session, self.sequence, &batch, extras).unwrap();
        self.outbox.insert(self.sequence, bytes);
        self.sequence
    }

    /// Adds the samples of one second.
    pub(crate) fn stacks(&mut self, job: &Job, begin_us: i64, period: Period, stacks: &[Stack<'_>]) {
        const METRIC: MetricId = MetricId(77);
        self.sequence += 1;
        let mut dictionary = Vec::new();
        if self.sequence == 1 {
            dictionary.push(Entry::Session(self.descriptor.clone()));
        }
        self.announced.announce_job(job.handle, &job.descriptor, &mut dictionary);
        let (unit, kind, number) = (Unit::Count, Kind::Counter, Number::Unsigned);
        let metric = MetricDescriptor { name: MetricName::new("stacks.cpu").unwrap(), unit, kind, number };
        self.announced.announce_metric(METRIC, &metric, &mut dictionary);
        let mut counts = Vec::new();
        for (process, path, count) in stacks {
            let mut parent = None;
            for name in *path {
                let (name, module) = (FunctionName::escaped(name.as_bytes()), "a.out".try_into().ok());
                let function = FunctionDescriptor { job: job.handle, name, module };
                let function = self.announced.announce_function(&function, &mut dictionary).unwrap();
                let stack = StackDescriptor { parent, function };
                parent = self.announced.announce_stack(stack, &mut dictionary);
            }
            counts.push(StackCount { process: *process, stack: parent.unwrap(), count: *count });
        }
        let interval = StackInterval {
            metric: METRIC,
            job: job.handle,
            begin_us,
            end_us: begin_us + 1_000_000,
            period,
            counts,
            lost: 2,
            throttled: 1,
            cut: 3,
            unresolved: 11,
        };
        let extras = Extras { dictionary: &dictionary, stacks: &[interval], ..Extras::default() };
        let mut bytes = Vec::new();
        let batch = Batch::with_capacity(1);
        self.encoder.encode(&mut bytes, self.session, self.sequence, &batch, extras).unwrap();
        self.outbox.insert(self.sequence, bytes);
    }

    pub(crate) fn send(&self, sequence: u64) {
        self.send_bytes(&self.outbox[&sequence]);
    }

    pub(crate) fn send_bytes(&self, bytes: &[u8]) {
        self.socket.send(bytes, 0).unwrap();
    }

    pub(crate) fn send_from(&self, first: u64) {
        self.outbox.range(first..).for_each(|(_, bytes)| self.send_bytes(bytes));
    }

    /// Sends all frames from `from` on, with a Skipped message in place of those that were acknowledged
    /// before.
    fn resend(&self, from: u64) {
        let oldest = self.outbox.keys().next().map_or(self.sequence + 1, |oldest| *oldest);
        if from < oldest {
            let (session, reason) = (self.session, SkipReason::AlreadyAcknowledged);
            let (last, lost) = (oldest - 1, Vec::new());
            let note = ToCollector::Skipped { session, first: from, last, reason, span_us: (0, 0), lost };
            self.send_bytes(&note.encode());
        }
        self.send_from(from);
    }

    /// Reports that the frames up to `last` will never be sent, and discards them.
    pub(crate) fn skip(&mut self, message: &ToCollector) {
        if let ToCollector::Skipped { last, .. } = message {
            self.outbox = self.outbox.split_off(&(last + 1));
        }
        self.send_bytes(&message.encode());
    }

    pub(crate) fn dictionary(&self) -> ToCollector {
        ToCollector::Dictionary { session: self.session, entries: self.announced.all(&self.descriptor) }
    }

    /// Next answer, if one arrives in time. Requests for the time are executed.
    pub(crate) fn receive(&mut self, timeout_ms: i64) -> Option<ToAgent> {
        loop {
            if self.socket.poll(zmq::POLLIN, timeout_ms).unwrap() == 0 {
                return None;
            }
            let answer = ToAgent::decode(&self.socket.recv_bytes(0).unwrap()).unwrap();
            match answer {
                ToAgent::Request { session, request, line, .. }
                    if line.as_str().starts_with(TIME_REQUEST) =>
                {
                    let now_us = realtime_us() + self.ahead_us;
                    let time = format!(r#"{{"answer":"time","now_us":{now_us},"clock_us":{now_us}}}"#);
                    let line = time.as_str().try_into().unwrap();
                    // The collector that asked may have ended.
                    let answer = ToCollector::Answer { session, request, line }.encode();
                    self.socket.send(answer, zmq::DONTWAIT).ok();
                }
                answer => {
                    self.answers.push(answer.clone());
                    return Some(answer);
                }
            }
        }
    }

    pub(crate) fn expect_answer(&mut self) -> ToAgent {
        self.receive(30_000).expect("an answer")
    }

    /// Behaves like an agent until all its frames are acknowledged.
    pub(crate) fn wait_until_acknowledged(&mut self) {
        let clock = Clock::start();
        while !self.outbox.is_empty() {
            assert!(
                clock.now().since_start < super::DEADLINE,
                "unacknowledged: {:?}, answers: {:?}",
                self.outbox.keys(),
                self.answers
            );
            let Some(answer) = self.receive(RESEND_AFTER_MS) else {
                self.send_from(0);
                continue;
            };
            match self.hear(answer) {
                // A node without a ring, which does not answer.
                Some(ToAgent::Request { line, .. }) if line.as_str().contains(KEEP) => {}
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    }

    /// Does what an answer about frames asks for. Returns any other one.
    pub(crate) fn hear(&mut self, answer: ToAgent) -> Option<ToAgent> {
        match answer {
            ToAgent::Ack { through, .. } => self.outbox = self.outbox.split_off(&(through + 1)),
            ToAgent::NeedDictionary { .. } => {
                self.send_bytes(&self.dictionary().encode());
                self.send_from(0);
            }
            ToAgent::Resend { from, .. } => self.resend(from),
            ToAgent::Refused { .. } | ToAgent::Request { .. } => return Some(answer),
        }
        None
    }
}

fn connect(context: &zmq::Context, endpoint: &str) -> zmq::Socket {
    let socket = context.socket(zmq::DEALER).unwrap();
    socket.set_linger(0).unwrap();
    // A collector that has ended takes no messages: the test fails instead of waiting.
    socket.set_sndtimeo(SEND_TIMEOUT_MS).unwrap();
    socket.set_reconnect_ivl(20).unwrap();
    socket.connect(endpoint).unwrap();
    socket
}

pub(crate) fn job(handle: u32, job_id: &str, started_us: i64) -> Arc<Job> {
    let descriptor = JobDescriptor {
        job_id: job_id.try_into().unwrap(),
        cluster: Some("lab".try_into().unwrap()),
        owner_uid: Some(1000),
        owner: Some("ada".try_into().unwrap()),
        started_us,
    };
    Arc::new(Job { handle: JobHandle(handle), descriptor })
}

/// Shape with three columns: an unsigned counter, a signed gauge, and a double with labels. Ids of different
/// shapes do not overlap.
pub(crate) fn shape(id: u32, job: Option<&Arc<Job>>) -> Arc<Shape> {
    let column = |number: u32, name: &'static str, unit, kind, bits, labels: &[(&str, &str)]| Column {
        series: SeriesId(id * 10 + number),
        metric: (
            MetricId(number),
            MetricDescriptor { name: MetricName::new(name).unwrap(), unit, kind, number: bits },
        ),
        labels: Labels::new(
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        )
        .unwrap(),
    };
    let columns = vec![
        column(1, "cpu.usage", Unit::Nanoseconds, Kind::Counter, Number::Unsigned, &[]),
        column(2, "memory.margin", Unit::Bytes, Kind::Gauge, Number::Signed, &[]),
        column(3, "node.load1", Unit::Count, Kind::Gauge, Number::Float, &[("cpu", "3"), ("node", "a=b")]),
    ];
    let source = "stat".try_into().unwrap();
    Arc::new(Shape {
        id: ShapeId(id),
        job: job.cloned(),
        source,
        period: Period::SECOND,
        window: None,
        columns,
    })
}

/// Three values of [`shape`], and the same as doubles.
pub(crate) fn values(seed: i64) -> ([Option<u64>; 3], [f64; 3]) {
    let unsigned = u64::try_from(seed).unwrap() * 1_000_003;
    let signed = -seed * 4096;
    let float = 0.1 + seed as f64 / 7.0;
    (
        [Some(unsigned), Some(signed.cast_unsigned()), Some(float.to_bits())],
        [unsigned as f64, signed as f64, float],
    )
}
