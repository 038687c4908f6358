//! The cost of the sink, from accepted rows to the answer of a receiver.

use std::error::Error;
use std::time::Duration;

use polymeter_benches::clock::{now_ns, process_cpu_ns, wall_us};
use polymeter_benches::statistics::median;
use polymeter_benches::table::{self, say, to_f64};
use polymeter_collector::sinks::outbound::standalone::Standalone;
use polymeter_collector::sinks::outbound::{OutboundConfig, Protocol};
use polymeter_collector::sinks::remote_write::{V1, V2};
use polymeter_store::StoreUrl;
use polymeter_store::accepted::Accepted;

use super::node::Node;
use super::receiver::Receiver;

const SAMPLES: usize = 10_000_000;

/// The collector's default.
const BATCH_SAMPLES: u32 = 2_000;

pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) nodes: u64,
    /// Series of the job on each node.
    pub(crate) series: usize,
    /// Samples of each series in a frame.
    pub(crate) per_frame: usize,
    pub(crate) distance_us: i64,
    /// Samples that are sent for 10 that are accepted.
    pub(crate) sent_of_10: u64,
}

const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "10,000 series at 1 Hz, 1 sample per frame",
        nodes: 100,
        series: 100,
        per_frame: 1,
        distance_us: 1_000_000,
        sent_of_10: 10,
    },
    Workload {
        name: "1,000,000 series at 1 Hz, 1 sample per frame",
        nodes: 1000,
        series: 1000,
        per_frame: 1,
        distance_us: 1_000_000,
        sent_of_10: 10,
    },
    Workload {
        name: "10,000 series at 100 Hz, 100 samples per frame",
        nodes: 100,
        series: 100,
        per_frame: 100,
        distance_us: 10_000,
        sent_of_10: 10,
    },
    Workload {
        name: "10,000 series at 10 kHz, windows of 1 ms",
        nodes: 100,
        series: 100,
        per_frame: 1000,
        distance_us: 100,
        sent_of_10: 3,
    },
];

pub(crate) struct Cost {
    samples: u64,
    pub(crate) sent: u64,
    cpu_s: f64,
    pub(crate) wall_s: f64,
    bytes: u64,
}

/// Measures all workloads with both versions of the protocol, and prints the medians of `rounds`. Fails if a
/// sample is not sent.
pub(crate) fn measure(rounds: usize, is_quick: bool) -> Result<(), Box<dyn Error>> {
    let samples = if is_quick { SAMPLES / 100 } else { SAMPLES };
    let receiver = Receiver::start(true)?;
    let mut rows = Vec::new();
    for workload in &WORKLOADS {
        for (protocol, version) in [(&V1, "1.0"), (&V2, "2.0")] {
            let mut costs = Vec::new();
            for _ in 0..rounds {
                costs.push(send(&receiver, protocol, workload, samples, BATCH_SAMPLES)?);
            }
            let of = |value: &dyn Fn(&Cost) -> f64| median(costs.iter().map(value));
            rows.push(vec![
                workload.name.to_owned(),
                version.to_owned(),
                format!("{:.0} k", of(&|cost| to_f64(cost.samples) / cost.cpu_s / 1e3)),
                format!("{:.0} k", of(&|cost| to_f64(cost.sent) / cost.cpu_s / 1e3)),
                format!("{:.0} k", of(&|cost| to_f64(cost.samples) / cost.wall_s / 1e3)),
                format!("{:.1}", of(&|cost| to_f64(cost.bytes) / to_f64(cost.sent))),
            ]);
        }
    }
    say(&format!("{rounds} rounds of at least {samples} samples, medians; 4 shards"));
    say("");
    table::table(
        &[
            "workload",
            "protocol",
            "accepted samples/s and core",
            "sent samples/s and core",
            "accepted samples/s",
            "bytes per sent sample",
        ],
        &rows,
    );
    Ok(())
}

/// Passes `samples` samples through a sink, until all are accepted by the receiver. A request has at most
/// `batch_samples`.
pub(crate) fn send(
    receiver: &Receiver,
    protocol: &'static Protocol,
    workload: &Workload,
    samples: usize,
    batch_samples: u32,
) -> Result<Cost, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let url = format!("http://{}/write", receiver.address).parse()?;
    let config = OutboundConfig {
        batch_samples,
        spool: directory.path().join("spool"),
        batch_wait: Duration::from_secs(1),
        ..OutboundConfig::new(protocol, url)
    };
    let mut sink = Standalone::new(config, StoreUrl::sqlite(directory.path().join("none.db")));
    let nodes = (0..workload.nodes).map(|number| Node::new(number, workload.series));
    let mut nodes = nodes.collect::<Result<Vec<_>, _>>()?;
    let begin_us = wall_us();
    let per_frame = workload.per_frame;
    let rounds = samples.div_ceil(nodes.len() * workload.series * per_frame).max(2);
    let (cpu_ns, of_receiver_ns, began_ns) = (process_cpu_ns(), receiver.cpu_ns(), now_ns());
    let mut offered = 0;
    for round in 0..rounds {
        let first_us = begin_us + i64::try_from(round * per_frame)? * workload.distance_us;
        let frames: Vec<Accepted> =
            nodes.iter_mut().map(|node| node.frame(first_us, per_frame, workload.distance_us)).collect();
        offered += frames.iter().map(|frame| frame.rows() as u64).sum::<u64>();
        sink.accept(frames)?;
    }
    loop {
        sink.tick();
        if sink.pending() == 0 && sink.sent() >= offered / 10 * workload.sent_of_10 {
            break;
        }
        if now_ns() - began_ns > 300_000_000_000 {
            return Err(format!("{} of {offered} samples were sent in 5 min", sink.sent()).into());
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
