//! Tests of peers without keys that send useless data: the collector's memory stays bounded and decreases
//! again, and other agents are served meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::agent::{Agent, shape, values};
use crate::support::program::RunningCollector;
use crate::support::{now_us, wait_until};
use polymeter_proto::name::MetricName;
use polymeter_proto::series::{
    Kind, Labels, MetricDescriptor, MetricId, Number, SeriesDescriptor, SeriesId, SessionDescriptor,
    SessionId, Unit,
};
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::message::ToCollector;

polymeter_test_harness::tests![exclusive flood_of_dictionaries_is_bounded_and_others_are_served];

const MIB: u64 = 1024 * 1024;

/// Memory of the collector while one peer floods it: a whole dictionary in memory, that peer's share of the
/// queue, and its messages in ZeroMQ.
const MAX_BYTES: u64 = 224 * MIB;

const MAX_BYTES_AFTER: u64 = 64 * MIB;

const FLOOD_BYTES: u64 = 245_000_000;

/// Time between two messages of the flood's second half. It makes the flood last longer than several commits,
/// however fast the machine is.
const INTERVAL: Duration = Duration::from_millis(3);

/// Begins a session without frames.
fn dictionary(session: u64, first: u32) -> Vec<u8> {
    let descriptor = SessionDescriptor {
        node: "flood".try_into().unwrap(),
        agent_version: "1".try_into().unwrap(),
        started_us: 0,
        processors: Default::default(),
    };
    let metric = MetricDescriptor {
        name: MetricName::new("cpu.usage").unwrap(),
        unit: Unit::Count,
        kind: Kind::Counter,
        number: Number::Unsigned,
    };
    let labels: Vec<_> = (0..8).map(|label| (format!("l{label}"), "x".repeat(100))).collect();
    let labels = Labels::new(labels).unwrap();
    let mut entries = vec![Entry::Session(descriptor), Entry::Metric(MetricId(1), metric)];
    entries.extend((first..first + 100).map(|id| {
        Entry::Series(
            SeriesId(id),
            SeriesDescriptor { metric: MetricId(1), job: None, labels: labels.clone() },
        )
    }));
    ToCollector::Dictionary { session: SessionId(session), entries }.encode()
}

/// Sends dictionaries of several sessions over one connection, `bytes` bytes in total: the first half at
/// once.
fn flood(context: &zmq::Context, endpoint: &str, bytes: u64, sent: &AtomicU64) {
    let socket = context.socket(zmq::DEALER).unwrap();
    socket.set_linger(0).unwrap();
    // A collector that does not read fails the test instead of stopping it.
    socket.set_sndtimeo(60_000).unwrap();
    socket.connect(endpoint).unwrap();
    let mut total = 0;
    for number in 0_u32.. {
        // Each session gets a long dictionary before the next begins.
        let message = dictionary(1_000_000 + u64::from(number / 400), number % 400 * 100);
        total += message.len() as u64;
        sent.store(total, Ordering::Relaxed);
        if total > bytes {
            return;
        }
        if total > bytes / 2 {
            std::thread::park_timeout(INTERVAL);
        }
        socket.send(message, 0).unwrap();
    }
}

fn flood_of_dictionaries_is_bounded_and_others_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.db");
    let collector = RunningCollector::start(&format!("sqlite:{}", path.display()), &[]);
    let context = zmq::Context::new();
    let mut agent = Agent::new(&context, &collector.endpoint, "n1", 1);
    let (sent, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mut peak, mut acknowledged_meanwhile, mut seed) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            flood(&context, &collector.endpoint, FLOOD_BYTES, &sent);
            is_over.store(true, Ordering::Relaxed);
        });
        wait_until("the flood has begun", || sent.load(Ordering::Relaxed) > FLOOD_BYTES / 100);
        while !is_over.load(Ordering::Relaxed) {
            seed += 1;
            agent.frame(&[(&shape(1, None), now_us() + seed, &values(seed).0)], &[], &[]);
            agent.send_from(0);
            agent.wait_until_acknowledged();
            acknowledged_meanwhile += u64::from(!is_over.load(Ordering::Relaxed));
            peak = peak.max(collector.resident_bytes());
        }
    });
    println!("{} MiB at most, {acknowledged_meanwhile} frames acknowledged meanwhile", peak / MIB);
    assert!(acknowledged_meanwhile > 0, "another agent is acknowledged during the flood");
    assert!(peak < MAX_BYTES, "{} MiB", peak / MIB);
    wait_until("the memory has decreased", || collector.resident_bytes() < MAX_BYTES_AFTER);
    drop(collector);
    let rows: i64 = rusqlite::Connection::open(path)
        .unwrap()
        .query_row("SELECT count(*) FROM samples", (), |row| row.get(0))
        .unwrap();
    assert_eq!(rows, seed * 3);
}
