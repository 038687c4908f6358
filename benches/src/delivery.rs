//! The delivery of a mock agent's frames.

use std::error::Error;
use std::io;
use std::thread;

use polymeter_collector::limits::{PEER_QUEUE_MESSAGES, SESSIONS_PER_PEER};
use polymeter_proto::wire::message::ToAgent;
use serde::Deserialize;

use crate::clock::{SECOND_NS, now_ns};
use crate::collector::Collector;
use crate::mock::{MockAgent, Script};
use crate::relay::Relay;
use crate::store::{Kind, Store};
use crate::table::to_f64;

const PATIENCE_S: u64 = 600;

/// Time without an acknowledgement after which an agent sends its frames again.
const AGAIN_MS: i64 = 10_000;

/// Sends all frames of an agent and waits for their acknowledgement. Fails if the collector refuses a frame.
pub fn deliver(
    context: &zmq::Context,
    endpoint: &str,
    script: &Script,
    mut agent: MockAgent,
) -> Result<(), Box<dyn Error>> {
    let socket = context.socket(zmq::DEALER)?;
    socket.set_linger(0)?;
    socket.connect(endpoint)?;
    let end_ns = now_ns() + PATIENCE_S * SECOND_NS;
    agent.unacknowledged(0).iter().try_for_each(|frame| socket.send(frame, 0))?;
    while !agent.is_settled() {
        let messages = if socket.poll(zmq::POLLIN, AGAIN_MS)? > 0 {
            agent.hear(script, &ToAgent::decode(&socket.recv_bytes(0)?)?)?
        } else {
            agent.unacknowledged(0)
        };
        messages.iter().try_for_each(|message| socket.send(message, 0))?;
        if now_ns() > end_ns {
            return Err(format!("the store does not acknowledge within {PATIENCE_S} s").into());
        }
    }
    Ok(())
}

/// Sends all frames of agents, each from its own thread, so that an agent whose socket is full does not block
/// the others; the agents use the endpoints in turn. Returns the time from the first send to the last
/// acknowledgement, in seconds.
pub fn deliver_all(
    endpoints: &[String],
    script: &Script,
    agents: Vec<MockAgent>,
) -> Result<f64, Box<dyn Error>> {
    let context = zmq::Context::new();
    let begin_ns = now_ns();
    thread::scope(|scope| {
        let threads: Vec<_> = agents
            .into_iter()
            .zip(endpoints.iter().cycle())
            .map(|(agent, endpoint)| {
                let context = &context;
                scope.spawn(move || {
                    deliver(context, endpoint, script, agent).map_err(|error| error.to_string())
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_panic| "an agent broke".to_owned())?)
    })?;
    Ok(to_f64(now_ns() - begin_ns) / 1e9)
}

/// Cost of storing samples in one run, or the sum over several runs.
#[derive(Debug, Default, Clone, Copy)]
pub struct Taken {
    pub samples: u64,
    /// Time from the first send to the last acknowledgement.
    pub seconds: f64,
    /// CPU time of the collector in that time.
    pub collector_cpu_s: f64,
    /// CPU time of the database's server in that time.
    pub server_cpu_s: f64,
    /// Size of the samples on the disk.
    pub bytes: u64,
}

impl Taken {
    pub fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.seconds += other.seconds;
        self.collector_cpu_s += other.collector_cpu_s;
        self.server_cpu_s += other.server_cpu_s;
        self.bytes += other.bytes;
    }

    pub fn per_second(&self) -> f64 {
        to_f64(self.samples) / self.seconds
    }
}

/// Delivers the frames of `agents` to a new collector of an empty store. `more` are lines of its
/// configuration. Fails if not all samples are stored.
pub fn store_all(
    kind: Kind,
    more: &str,
    script: &Script,
    agents: Vec<MockAgent>,
) -> Result<Taken, Box<dyn Error>> {
    store_all_through(Layer::Collectors(1), kind, more, script, agents)
}

/// What is between the agents and the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Collectors, which share the agents.
    Collectors(usize),
    /// Relays, each for as many agents as a collector keeps sessions of one connection, and one collector.
    Relays,
}

/// Does the same through another layer.
pub fn store_all_through(
    layer: Layer,
    kind: Kind,
    more: &str,
    script: &Script,
    mut agents: Vec<MockAgent>,
) -> Result<Taken, Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let store = Store::start(kind)?;
    let (mut running, mut endpoints) = (Vec::new(), Vec::new());
    let collectors = match layer {
        Layer::Collectors(number) => number,
        Layer::Relays => 1,
    };
    for number in 0..collectors {
        let directory = scratch.path().join(number.to_string());
        std::fs::create_dir(&directory)?;
        let listen = format!("ipc://{}/collector", directory.display());
        running.push(Collector::start(&directory, &listen, &store, more)?);
        endpoints.push(listen);
    }
    let mut relays = Vec::new();
    if let (Layer::Relays, Some(collector)) = (layer, endpoints.first()) {
        // The agents of a relay share the collector's queue for its connection, which drops what exceeds it.
        agents.iter_mut().for_each(|agent| agent.bound_window(PEER_QUEUE_MESSAGES / SESSIONS_PER_PEER));
        for number in 0..agents.len().div_ceil(SESSIONS_PER_PEER) {
            let endpoint = format!("ipc://{}/relay{number}", scratch.path().display());
            relays.push(Relay::start(endpoint, collector)?);
        }
        endpoints = relays.iter().map(|relay| relay.endpoint().to_owned()).collect();
    }
    let cpu_s = |running: &[Collector]| {
        running.iter().map(|collector| Ok(collector.usage()?.cpu_s)).sum::<io::Result<f64>>()
    };
    let samples = agents.iter().map(MockAgent::samples).sum();
    let (collector_cpu_s, server_cpu_s) = (cpu_s(&running)?, store.usage()?.cpu_s);
    let seconds = deliver_all(&endpoints, script, agents)?;
    let (collector_cpu_s, server_cpu_s) =
        (cpu_s(&running)? - collector_cpu_s, store.usage()?.cpu_s - server_cpu_s);
    relays.into_iter().try_for_each(Relay::stop)?;
    for collector in running {
        collector.stop()?;
    }
    let stored = store.samples()?;
    if stored != samples {
        return Err(format!("{samples} samples were acknowledged, and {stored} are stored").into());
    }
    Ok(Taken { samples, seconds, collector_cpu_s, server_cpu_s, bytes: store.bytes()? })
}
