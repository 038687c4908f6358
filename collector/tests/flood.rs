//! Tests of peers without keys that send useless data: the collector's memory stays bounded and decreases
//! again, and other agents are served meanwhile.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a fault of a test is a failed test"
)]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::agent::{Agent, shape, values};
use common::{now_us, wait_until};
use polymeter_proto::name::MetricName;
use polymeter_proto::series::{
    Kind, Labels, MetricDescriptor, MetricId, Number, SeriesDescriptor, SeriesId, SessionDescriptor,
    SessionId, Unit,
};
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::message::ToCollector;

const MIB: u64 = 1024 * 1024;

/// The maximum memory of the collector while one peer floods it: a whole dictionary in memory, that peer's
/// share of the queue, and its messages in ZeroMQ.
const BOUND: u64 = 224 * MIB;

/// The maximum memory afterwards.
const BOUND_AFTER: u64 = 64 * MIB;

/// The number of bytes of the flood.
const FLOOD: u64 = 245_000_000;

struct Collector {
    child: Child,
    endpoint: String,
}

impl Collector {
    fn start(store: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_polymeter-collector"))
            .env_remove("JOURNAL_STREAM")
            .args(["--listen", "tcp://127.0.0.1:*", "--store", store])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let first = lines.next().unwrap();
        std::thread::spawn(move || lines.for_each(|line| println!("{line}")));
        let endpoint = first.split_once("listening at ").unwrap().1.split(',').next().unwrap().to_owned();
        Self { child, endpoint }
    }

    /// Returns the resident memory of the process, in bytes.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Returns a dictionary that begins a session without frames.
fn dictionary(session: u64, first: u32) -> Vec<u8> {
    let descriptor = SessionDescriptor {
        node: "flood".try_into().unwrap(),
        agent_version: "1".try_into().unwrap(),
        started_us: 0,
    };
    let metric = MetricDescriptor {
        name: MetricName::new("cpu.usage").unwrap(),
        unit: Unit::Count,
        kind: Kind::Counter,
        number: Number::Unsigned,
    };
    let labels: Vec<_> = (0..8).map(|label| (format!("l{label}"), "x".repeat(100))).collect();
    let labels = Labels::new(labels).unwrap();
    let series = |id| {
        Entry::Series(
            SeriesId(id),
            SeriesDescriptor { metric: MetricId(1), job: None, labels: labels.clone() },
        )
    };
    let mut entries = vec![Entry::Session(descriptor), Entry::Metric(MetricId(1), metric)];
    entries.extend((first..first + 100).map(series));
    ToCollector::Dictionary { session: SessionId(session), entries }.encode()
}

/// Sends dictionaries of several sessions over one connection, `bytes` bytes in total.
fn flood(context: &zmq::Context, endpoint: &str, bytes: u64, sent: &AtomicU64) {
    let socket = context.socket(zmq::DEALER).unwrap();
    socket.set_linger(0).unwrap();
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
        socket.send(message, 0).unwrap();
    }
}

#[test]
fn a_flood_of_dictionaries_takes_neither_the_memory_nor_the_turns_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.db");
    let collector = Collector::start(&format!("sqlite:{}", path.display()));
    let context = zmq::Context::new();
    let mut agent = Agent::new(&context, &collector.endpoint, "n1", 1);
    let (sent, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mut most, mut acknowledged_meanwhile, mut seed) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            flood(&context, &collector.endpoint, FLOOD, &sent);
            over.store(true, Ordering::Relaxed);
        });
        wait_until("the flood has begun", || sent.load(Ordering::Relaxed) > FLOOD / 100);
        while !over.load(Ordering::Relaxed) {
            seed += 1;
            agent.frame(&[(&shape(1, None), now_us() + seed, &values(seed).0)], &[], &[]);
            agent.send_from(0);
            agent.settle();
            acknowledged_meanwhile += u64::from(!over.load(Ordering::Relaxed));
            most = most.max(collector.memory());
        }
    });
    println!("{} MiB at most, {acknowledged_meanwhile} frames acknowledged meanwhile", most / MIB);
    assert!(acknowledged_meanwhile > 0, "an honest agent is acknowledged while the flood lasts");
    assert!(most < BOUND, "{} MiB", most / MIB);
    wait_until("the memory is given back", || collector.memory() < BOUND_AFTER);
    drop(collector);
    let rows: i64 = rusqlite::Connection::open(path)
        .unwrap()
        .query_row("SELECT count(*) FROM samples", (), |row| row.get(0))
        .unwrap();
    assert_eq!(rows, seed * 3);
}
