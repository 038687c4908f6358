//! Benchmarks of the stages of storing: the ingest rules without a store, and one second of a node at 1 kHz
//! from the socket to the acknowledgement, for each store that is installed.

use std::path::Path;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use polymeter_benches::clock::wall_us;
use polymeter_benches::mock::{MockAgent, Script};
use polymeter_benches::recording::RECORDED;
use polymeter_benches::store::{Kind, Store};
use polymeter_collector::clock::Clock;
use polymeter_collector::ingest::{Ingest, Verdict};
use polymeter_collector::session_messages::Peer;
use polymeter_collector::{Collector, CollectorConfig};
use polymeter_proto::period::Period;
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::{Encoder, Frame};
use polymeter_proto::wire::message::ToAgent;

/// One tick per millisecond.
const TICKS: u16 = 1_000;

/// Number below criterion's default, because a commit takes milliseconds.
const SAMPLES: usize = 20;

const PATIENCE_MS: i64 = 30_000;

pub(crate) fn run(criterion: &mut Criterion) {
    let script =
        Script::read(Path::new(RECORDED), Period::MILLISECOND).expect("the recording is in the tree");
    ingest(criterion, &script);
    for kind in Kind::ALL.into_iter().filter(|kind| kind.missing().is_none()) {
        store(criterion, &script, kind);
    }
}

fn agent(session: u64) -> MockAgent {
    let name = |text: &str| text.try_into().expect("it is a name");
    MockAgent::new(SessionId(session), name("node"), name("mock"), wall_us())
}

/// Benchmarks the ingest rules on a decoded frame whose names are already resolved.
fn ingest(criterion: &mut Criterion, script: &Script) {
    let (mut encoder, mut agent) = (Encoder::default(), agent(1));
    let now = Clock::start().now();
    let peer = Peer::from(b"peer".as_slice());
    let mut ingest = Ingest::default();
    assert!(ingest.open(SessionId(1), &peer, 0, now), "there is room for one session");
    let first = Frame::decode(agent.sample(script, &mut encoder, now.wall_us, 1).expect("it fits"))
        .expect("it is a frame");
    assert!(matches!(ingest.frame(&peer, first, now), Verdict::Accepted(_)), "it explains itself");
    let frame = Frame::decode(agent.sample(script, &mut encoder, now.wall_us, TICKS).expect("it fits"))
        .expect("it is a frame");
    let mut group = criterion.benchmark_group("ingest");
    group.throughput(Throughput::Elements(frame.samples()));
    let mut sequence = 1;
    group.bench_function("frame of a second", |bencher| {
        bencher.iter_batched(
            || {
                sequence += 1;
                Frame { sequence, ..frame.clone() }
            },
            |frame| ingest.frame(&peer, frame, now),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// Benchmarks sending, decoding, committing and acknowledging one frame, alone in its transaction.
fn store(criterion: &mut Criterion, script: &Script, kind: Kind) {
    let store = Store::start(kind).expect("it is not missing");
    let context = zmq::Context::new();
    let url = store.url().parse().expect("it is the address of a store");
    let config =
        CollectorConfig { commit_interval: Duration::ZERO, ..CollectorConfig::new("inproc://storing", url) };
    let collector = Collector::start(&config, &context).expect("the store is empty");
    let socket = context.socket(zmq::DEALER).expect("a context has sockets");
    socket.connect("inproc://storing").expect("the collector listens");
    let (mut encoder, mut agent) = (Encoder::default(), agent(1));
    let mut group = criterion.benchmark_group("store");
    group.sample_size(SAMPLES);
    group.throughput(Throughput::Elements(script.samples_per_tick() as u64 * u64::from(TICKS)));
    group.bench_function(format!("{kind}, frame of a second"), |bencher| {
        bencher.iter_batched(
            || agent.sample(script, &mut encoder, wall_us(), TICKS).expect("it fits").to_vec(),
            |frame| {
                socket.send(frame, 0).expect("the collector takes it");
                assert!(socket.poll(zmq::POLLIN, PATIENCE_MS).expect("a socket can be waited for") > 0);
                ToAgent::decode(&socket.recv_bytes(0).expect("it is there"))
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
    collector.stop().expect("no thread of it broke");
}
