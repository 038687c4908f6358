//! Measures the sink of remote_write: samples per second and core, from accepted rows to the answer of a receiver.
//!
//! `cargo run --release --bin remote_write`. Needs no privileges. The receiver reads requests and answers; its CPU time is subtracted. The
//! spool is on the file system of the temporary directory.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Parser;
use polymeter_benches::clock::{now_ns, process_cpu_ns, thread_cpu_ns, wall_us};
use polymeter_benches::failure::Failure;
use polymeter_benches::table::{self, say, to_f64};
use polymeter_collector::sinks::remote_write::standalone::Standalone;
use polymeter_collector::sinks::remote_write::{Protocol, RemoteWriteConfig};
use polymeter_proto::name::MetricName;
use polymeter_proto::series::{
    JobDescriptor, JobHandle, Kind, Labels, MetricDescriptor, Number, SessionDescriptor, SessionId, Unit,
};
use polymeter_store::StoreUrl;
use polymeter_store::accepted::{Accepted, JobRecord, LedgerLine, SampleBlock, SeriesRecord, SessionRecord};

/// Nodes, each with a job.
const NODES: u64 = 100;

/// Series of each job.
const SERIES: usize = 100;

/// The samples of a measurement.
const SAMPLES: usize = 10_000_000;

/// Workloads: the name, the samples of each series in a frame, and their distance in µs.
const WORKLOADS: [(&str, usize, i64); 3] = [
    ("1 Hz, 1 sample per frame", 1, 1_000_000),
    ("100 Hz, 100 samples per frame", 100, 10_000),
    ("10 kHz in windows of 1 ms", 1000, 100),
];

#[derive(Debug, Parser)]
struct Arguments {
    /// Number of rounds; the medians are reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Run one round with few samples, as a functional check.
    #[arg(long)]
    quick: bool,
}

/// The result of one measurement.
struct Cost {
    samples: u64,
    sent: u64,
    cpu_s: f64,
    wall_s: f64,
    bytes: u64,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let (rounds, samples) =
        if arguments.quick { (1, SAMPLES / 100) } else { (arguments.rounds.max(1), SAMPLES) };
    table::machine();
    let receiver = Receiver::start()?;
    let mut rows = Vec::new();
    for (name, per_frame, distance_us) in WORKLOADS {
        for (protocol, version) in [(Protocol::V1, "1.0"), (Protocol::V2, "2.0")] {
            let mut costs = Vec::new();
            for _ in 0..rounds {
                costs.push(measure(&receiver, protocol, (per_frame, distance_us), samples)?);
            }
            let median = |of: &dyn Fn(&Cost) -> f64| {
                let mut values: Vec<f64> = costs.iter().map(of).collect();
                values.sort_by(f64::total_cmp);
                values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
            };
            rows.push(vec![
                name.to_owned(),
                version.to_owned(),
                format!("{:.0}", median(&|cost| to_f64(cost.samples) / cost.cpu_s)),
                format!("{:.0}", median(&|cost| to_f64(cost.samples) / cost.wall_s)),
                format!("{:.1}", median(&|cost| to_f64(cost.bytes) / to_f64(cost.sent))),
            ]);
        }
    }
    say(&format!(
        "{rounds} rounds of {samples} samples, medians; {NODES} jobs with {SERIES} series each; 4 shards"
    ));
    say("");
    table::table(
        &[
            "workload",
            "protocol",
            "samples per second and core",
            "samples per second",
            "bytes per sent sample",
        ],
        &rows,
    );
    Ok(())
}

/// Passes `samples` samples through a sink, until all are accepted.
fn measure(
    receiver: &Receiver,
    protocol: Protocol,
    (per_frame, distance_us): (usize, i64),
    samples: usize,
) -> Result<Cost, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let url = format!("http://{}/write", receiver.address).parse()?;
    let config = RemoteWriteConfig {
        protocol,
        spool: directory.path().join("spool"),
        batch_wait: Duration::from_secs(1),
        ..RemoteWriteConfig::new(url)
    };
    let mut sink = Standalone::new(config, StoreUrl::sqlite(directory.path().join("none.db")));
    let mut nodes = (0..NODES).map(Node::new).collect::<Result<Vec<_>, _>>()?;
    let begin_us = wall_us();
    let rounds = samples.div_ceil(nodes.len() * SERIES * per_frame).max(2);
    let (cpu_ns, of_receiver_ns, began_ns) = (process_cpu_ns(), receiver.cpu_ns(), now_ns());
    let mut offered = 0;
    for round in 0..rounds {
        let first_us = begin_us + i64::try_from(round * per_frame)? * distance_us;
        let frames: Vec<Accepted> =
            nodes.iter_mut().map(|node| node.frame(first_us, per_frame, distance_us)).collect();
        offered += frames.iter().map(|frame| frame.rows() as u64).sum::<u64>();
        sink.accept(frames)?;
    }
    loop {
        sink.tick();
        if sink.pending() == 0 {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let cpu_ns = process_cpu_ns() - cpu_ns - (receiver.cpu_ns() - of_receiver_ns);
    let wall_ns = now_ns() - began_ns;
    Ok(Cost {
        samples: offered,
        sent: sink.sent(),
        cpu_s: to_f64(cpu_ns) / 1e9,
        wall_s: to_f64(wall_ns) / 1e9,
        bytes: sink.sent_bytes(),
    })
}

/// A node with a job.
struct Node {
    session: Arc<SessionRecord>,
    line: Arc<LedgerLine>,
    series: Vec<Arc<SeriesRecord>>,
    sequence: u64,
}

impl Node {
    fn new(number: u64) -> Result<Self, Box<dyn Error>> {
        let descriptor = SessionDescriptor {
            node: format!("node-{number}").as_str().try_into()?,
            agent_version: "1".try_into()?,
            started_us: 0,
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
            key: OnceLock::new(),
        });
        let mut series = Vec::new();
        for place in 0..SERIES {
            let metric = MetricDescriptor {
                name: MetricName::new(format!("memory.counted_{}", place / 10))?,
                unit: Unit::Bytes,
                kind: Kind::Gauge,
                number: Number::Unsigned,
            };
            series.push(Arc::new(SeriesRecord {
                session: Arc::clone(&session),
                metric: Arc::new(metric),
                job: Some(Arc::clone(&job)),
                labels: Labels::new(vec![("cpu".to_owned(), (place % 10).to_string())])?,
                id: OnceLock::new(),
            }));
        }
        let line = LedgerLine {
            session: Arc::clone(&session),
            job: Some(job),
            source: "memory.stat".try_into()?,
            id: OnceLock::new(),
        };
        Ok(Self { session, line: Arc::new(line), series, sequence: 0 })
    }

    /// Returns a frame with values that change as those of a job.
    fn frame(&mut self, first_us: i64, samples: usize, distance_us: i64) -> Accepted {
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
        frame.samples.push(SampleBlock { line, series, times_us, values });
        frame
    }
}

/// A receiver that reads requests and accepts them.
struct Receiver {
    address: SocketAddr,
    cpu_ns: Arc<AtomicU64>,
}

impl Receiver {
    fn start() -> Result<Self, Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let receiver = Self { address: listener.local_addr()?, cpu_ns: Arc::default() };
        let cpu_ns = Arc::clone(&receiver.cpu_ns);
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                let cpu_ns = Arc::clone(&cpu_ns);
                // A connection ends with its measurement.
                std::thread::spawn(move || serve(&stream, &cpu_ns).ok());
            }
        });
        Ok(receiver)
    }

    /// Returns the CPU time of all connections, in nanoseconds.
    fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: &TcpStream, cpu_ns: &AtomicU64) -> std::io::Result<()> {
    let mut reader = BufReader::with_capacity(256 * 1024, stream);
    let (mut body, mut line) = (Vec::new(), String::new());
    let mut counted_ns = 0;
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or_default();
            }
            if line == "\r\n" {
                break;
            }
        }
        body.resize(length, 0);
        reader.read_exact(&mut body)?;
        // Receivers of 2.0 state the number of samples; a larger one counts as all of them.
        stream.write_all(
            b"HTTP/1.1 204 No Content\r\nX-Prometheus-Remote-Write-Samples-Written: 4294967295\r\n\r\n",
        )?;
        let now_ns = thread_cpu_ns();
        cpu_ns.fetch_add(now_ns - counted_ns, Ordering::Relaxed);
        counted_ns = now_ns;
    }
}
