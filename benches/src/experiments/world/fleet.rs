//! The mock agents, their connections to the collector, and the delivery of their frames.

use std::error::Error;

use polymeter_benches::clock::{SECOND_NS, now_ns, wall_us};
use polymeter_benches::mock::session_of;
use polymeter_benches::table::{say, to_f64};
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::Encoder;
use polymeter_proto::wire::message::ToAgent;

use super::calendar::JobPlan;
use super::node::{JobRun, Node};
use super::template::Template;

/// Agents that share a connection: as many sessions as a collector keeps for one.
const NODES_PER_SOCKET: usize = 8;

/// Frames of one agent that wait for their acknowledgement before the next ones are made.
const IN_FLIGHT: usize = 64;

const POLL_MS: i64 = 20;

/// Time without an acknowledgement after which all agents send their frames again.
const AGAIN_NS: u64 = 10 * SECOND_NS;

/// Time without an acknowledgement after which the experiment fails.
const PATIENCE_NS: u64 = 600 * SECOND_NS;

const PROGRESS_NS: u64 = 10 * SECOND_NS;

/// Low bits of a session id: the position of its agent.
const POSITION_BITS: u32 = 16;

pub(crate) struct Fleet<'a> {
    template: &'a Template,
    encoder: Encoder,
    nodes: Vec<Node>,
    sockets: Vec<zmq::Socket>,
    /// Monotonic time of the last acknowledgement, or of the last repetition.
    heard_ns: u64,
    sent_again_ns: u64,
}

impl<'a> Fleet<'a> {
    /// Connects `count` agents whose sessions began at `started_us`.
    pub(crate) fn connect(
        count: usize,
        endpoint: &str,
        started_us: i64,
        template: &'a Template,
    ) -> Result<Self, Box<dyn Error>> {
        let context = zmq::Context::new();
        let sockets = (0..count.div_ceil(NODES_PER_SOCKET)).map(|_| {
            let socket = context.socket(zmq::DEALER)?;
            socket.set_linger(0)?;
            socket.connect(endpoint)?;
            Ok(socket)
        });
        let sockets = sockets.collect::<Result<_, zmq::Error>>()?;
        let sessions = u64::try_from(wall_us() / 1_000)? << POSITION_BITS;
        let nodes = (0..count)
            .map(|position| {
                Node::new(SessionId(sessions | position as u64), position + 1, started_us, template)
            })
            .collect::<Result<_, _>>()?;
        let now_ns = now_ns();
        let encoder = Encoder::default();
        Ok(Self { template, encoder, nodes, sockets, heard_ns: now_ns, sent_again_ns: now_ns })
    }

    pub(crate) fn samples(&self) -> u64 {
        self.nodes.iter().map(Node::samples).sum()
    }

    /// Runs jobs one after the other, and prints the progress. Their nodes take turns.
    pub(crate) fn run(&mut self, jobs: &[JobPlan], is_verbose: bool) -> Result<(), Box<dyn Error>> {
        let begin_ns = now_ns();
        let mut printed = (begin_ns, 0, 0);
        for (number, plan) in jobs.iter().enumerate() {
            let mut runs = Vec::new();
            for (rank, position) in plan.nodes.clone().enumerate() {
                let node = self.nodes.get_mut(position).ok_or("there is no such node")?;
                runs.push((position, JobRun::begin(plan, self.template, node, rank)?));
            }
            while runs.iter().any(|(_, run)| !run.is_over()) {
                for (position, run) in &mut runs {
                    self.make_room(*position)?;
                    let node = self.nodes.get_mut(*position).ok_or("there is no such node")?;
                    let frame = run.next_frame(node, &mut self.encoder)?;
                    let socket = self.sockets.get(*position / NODES_PER_SOCKET);
                    send(socket.ok_or("there is no such socket")?, frame)?;
                }
                let now_ns = now_ns();
                if is_verbose && now_ns - printed.0 > PROGRESS_NS {
                    let samples = self.samples();
                    let rate = |from: u64, to: u64| to_f64(to - from) / to_f64(now_ns - printed.0) * 1e9;
                    say(&format!(
                        "{:.0} s: job {} of {}, {samples} samples; {:.0} jobs/s, {:.0} samples/s",
                        to_f64(now_ns - begin_ns) / 1e9,
                        number + 1,
                        jobs.len(),
                        rate(printed.1, number as u64),
                        rate(printed.2, samples)
                    ));
                    printed = (now_ns, number as u64, samples);
                }
            }
        }
        self.settle()
    }

    pub(crate) fn stop(&mut self, at_us: i64) -> Result<(), Box<dyn Error>> {
        for position in 0..self.nodes.len() {
            let node = self.nodes.get_mut(position).ok_or("there is no such node")?;
            let frame = node.stop(&mut self.encoder, at_us)?;
            let socket = self.sockets.get(position / NODES_PER_SOCKET);
            send(socket.ok_or("there is no such socket")?, frame)?;
        }
        self.settle()
    }

    /// Waits until the agent has fewer frames in flight than it may.
    fn make_room(&mut self, position: usize) -> Result<(), Box<dyn Error>> {
        let is_full =
            |nodes: &[Node]| nodes.get(position).is_some_and(|node| node.outbox().len() >= IN_FLIGHT);
        while is_full(&self.nodes) {
            self.listen()?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Box<dyn Error>> {
        while !self.nodes.iter().all(|node| node.outbox().is_empty()) {
            self.listen()?;
        }
        Ok(())
    }

    /// Handles all pending answers, and waits a moment if there are none.
    fn listen(&mut self) -> Result<(), Box<dyn Error>> {
        let mut items: Vec<_> = self.sockets.iter().map(|socket| socket.as_poll_item(zmq::POLLIN)).collect();
        let ready = zmq::poll(&mut items, POLL_MS)?;
        let now_ns = now_ns();
        if ready == 0 {
            return self.send_again(now_ns);
        }
        self.heard_ns = now_ns;
        for socket in &self.sockets {
            loop {
                let answer = match socket.recv_bytes(zmq::DONTWAIT) {
                    Ok(bytes) => ToAgent::decode(&bytes)?,
                    Err(zmq::Error::EAGAIN) => break,
                    Err(error) => return Err(error.into()),
                };
                if let ToAgent::Refused { reason, .. } = &answer {
                    return Err(reason.as_str().into());
                }
                let session = session_of(&answer).map_or(0, |session| session.0);
                let position = usize::try_from(session & ((1 << POSITION_BITS) - 1))?;
                let Some(node) = self.nodes.get_mut(position) else { continue };
                for message in node.hear(&answer)? {
                    send(socket, &message)?;
                }
            }
        }
        Ok(())
    }

    /// Sends all unacknowledged frames again after a time without answers.
    fn send_again(&mut self, now_ns: u64) -> Result<(), Box<dyn Error>> {
        if now_ns - self.heard_ns > PATIENCE_NS {
            return Err("the collector does not acknowledge any frames".into());
        }
        if now_ns - self.heard_ns.max(self.sent_again_ns) > AGAIN_NS {
            self.sent_again_ns = now_ns;
            for (position, node) in self.nodes.iter().enumerate() {
                let Some(socket) = self.sockets.get(position / NODES_PER_SOCKET) else { continue };
                node.outbox().unacknowledged(0).iter().try_for_each(|frame| send(socket, frame))?;
            }
        }
        Ok(())
    }
}

/// Sends without blocking. A frame that the socket cannot take stays in the agent's outbox until the
/// collector requests it.
fn send(socket: &zmq::Socket, bytes: &[u8]) -> Result<(), zmq::Error> {
    match socket.send(bytes, zmq::DONTWAIT) {
        Ok(()) | Err(zmq::Error::EAGAIN) => Ok(()),
        Err(error) => Err(error),
    }
}
