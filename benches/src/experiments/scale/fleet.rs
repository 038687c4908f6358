//! The mock agents of one process: a single thread in which each agent sends at its own phase, over
//! connections like those of real agents.

use std::error::Error;
use std::io::BufRead;
use std::path::Path;

use polymeter_benches::clock::{SECOND_NS, now_ns, process_cpu_ns, sleep_until, wall_us};
use polymeter_benches::mock::{MockAgent, Script, session_of};
use polymeter_benches::recording::RECORDED;
use polymeter_benches::table::{say, to_f64};
use polymeter_proto::period::Period;
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::Encoder;
use polymeter_proto::wire::message::ToAgent;
use serde::{Deserialize, Serialize};

/// The number of sockets in one ZeroMQ context. The default limit is 1023, which the crate cannot change.
const SOCKETS_PER_CONTEXT: usize = 1_000;

/// The number of polls of each connection per period, in addition to the agents' own sends.
const LOOKS_PER_PERIOD: usize = 10;

/// The timeout for the last acknowledgements, in seconds. It is long because the first frames of thousands of
/// agents create series.
const SETTLE_S: u64 = 600;

/// The time without any answer after which the agents send unacknowledged frames again, in nanoseconds.
const AGAIN_NS: u64 = 5 * SECOND_NS;

/// The upper half of the session ids of this experiment; the lower half is the agent's number.
const SESSIONS: u64 = 0x7363_616c << 32;

/// Returns the node name of an agent.
pub(crate) fn node(number: u64) -> String {
    format!("mock{number}")
}

/// Returns the session id of an agent.
pub(crate) const fn session(number: u64) -> SessionId {
    SessionId(SESSIONS | number)
}

/// The agents of one process, and their settings.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Fleet {
    /// The endpoints of the collectors. Connections use them in turn.
    pub(crate) endpoints: Vec<String>,
    /// The number of the first agent.
    pub(crate) first: u64,
    /// The distance from one agent's number to the next.
    pub(crate) step: u64,
    /// The number of agents in all processes.
    pub(crate) agents: u64,
    /// The number of agents that share a connection.
    pub(crate) per_connection: u64,
    /// The period with which each agent sends.
    pub(crate) period: Period,
    /// The duration of the run, in seconds.
    pub(crate) seconds: u64,
    /// The number of rounds before the measurement.
    pub(crate) warm_up: u64,
}

/// The results of a process' agents.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// The number of samples sent.
    pub(crate) samples: u64,
    /// CPU time after the first round, in seconds.
    pub(crate) cpu_s: f64,
    /// The number of agents whose last frames were not acknowledged.
    pub(crate) stuck: u64,
}

impl Summary {
    pub(crate) fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.cpu_s += other.cpu_s;
        self.stuck += other.stuck;
    }
}

/// The running agents.
struct Crew {
    script: Script,
    encoder: Encoder,
    agents: Vec<MockAgent>,
    sockets: Vec<zmq::Socket>,
    /// The number of agents that share a socket.
    per_socket: usize,
    /// The number of the first agent, and the distance to the next.
    numbers: (u64, u64),
}

impl Fleet {
    /// Lets every agent send once and waits until the frames are acknowledged, reports that, waits for a line
    /// on stdin, and lets the agents send for the configured duration.
    pub(crate) fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut crew = self.crew()?;
        let own = crew.agents.len() as u64;
        let period_ns = self.period.as_nanos();
        // Each agent has its own phase: agent i of N sends at i / N of the period.
        let phase_ns = |position: u64| (self.first + position * self.step) * period_ns / self.agents.max(1);
        let round = |crew: &mut Crew, begin_ns: u64| {
            let mut looked = 0;
            for position in 0..own {
                sleep_until(begin_ns + phase_ns(position));
                crew.speak(position)?;
                let wanted = crew.sockets.len() * LOOKS_PER_PERIOD * usize::try_from(position + 1)?
                    / usize::try_from(own)?;
                while looked < wanted {
                    crew.listen(looked % crew.sockets.len())?;
                    looked += 1;
                }
            }
            Ok::<(), Box<dyn Error>>(())
        };
        round(&mut crew, now_ns())?;
        crew.settle()?;
        for _ in 0..self.warm_up {
            (0..own).try_for_each(|position| crew.speak(position))?;
            crew.settle()?;
        }
        say("ready");
        std::io::stdin().lock().read_line(&mut String::new())?;
        let (begin_ns, cpu_ns) = (now_ns(), process_cpu_ns());
        let rounds = (self.seconds * SECOND_NS).div_ceil(period_ns);
        for number in 0..rounds {
            round(&mut crew, begin_ns + number * period_ns)?;
        }
        sleep_until(begin_ns + rounds * period_ns);
        crew.settle()?;
        let summary = Summary {
            samples: crew.agents.iter().map(MockAgent::samples).sum(),
            cpu_s: to_f64(process_cpu_ns() - cpu_ns) / 1e9,
            stuck: crew.agents.iter().filter(|agent| !agent.is_settled()).count() as u64,
        };
        say(&serde_json::to_string(&summary)?);
        Ok(())
    }

    fn crew(&self) -> Result<Crew, Box<dyn Error>> {
        polymeter_agent::kernel::raise_descriptor_limit();
        let numbers = || (self.first..self.agents).step_by(usize::try_from(self.step.max(1)).unwrap_or(1));
        let agent = |number: u64| {
            let node = node(number).try_into()?;
            Ok(MockAgent::new(session(number), node, "mock".try_into()?, wall_us()))
        };
        let agents = numbers().map(agent).collect::<Result<Vec<_>, Box<dyn Error>>>()?;
        let per_socket = usize::try_from(self.per_connection)?.max(1);
        let mut sockets = Vec::new();
        let mut context = zmq::Context::new();
        let endpoints = self.endpoints.iter().cycle();
        for (number, endpoint) in (0..agents.len().div_ceil(per_socket)).zip(endpoints) {
            if number % SOCKETS_PER_CONTEXT == 0 {
                context = zmq::Context::new();
            }
            let socket = context.socket(zmq::DEALER)?;
            socket.set_linger(0)?;
            socket.connect(endpoint)?;
            sockets.push(socket);
        }
        Ok(Crew {
            script: Script::read(Path::new(RECORDED), self.period)?,
            encoder: Encoder::default(),
            agents,
            sockets,
            per_socket,
            numbers: (self.first, self.step.max(1)),
        })
    }
}

impl Crew {
    /// Sends a new sample of one agent.
    fn speak(&mut self, position: u64) -> Result<(), Box<dyn Error>> {
        let position = usize::try_from(position)?;
        let socket = self.sockets.get(position / self.per_socket).ok_or("an agent has no socket")?;
        let agent = self.agents.get_mut(position).ok_or("there is no such agent")?;
        let frame = agent.sample(&self.script, &mut self.encoder, wall_us(), 1)?;
        send(socket, frame)
    }

    /// Receives and handles all pending answers of one socket. Returns true if there were any.
    fn listen(&mut self, socket: usize) -> Result<bool, Box<dyn Error>> {
        let socket = self.sockets.get(socket).ok_or("there is no such socket")?;
        let mut heard = false;
        loop {
            let answer = match socket.recv_bytes(zmq::DONTWAIT) {
                Ok(bytes) => ToAgent::decode(&bytes)?,
                Err(zmq::Error::EAGAIN) => return Ok(heard),
                Err(error) => return Err(error.into()),
            };
            heard = true;
            let number = session_of(&answer).map_or(SESSIONS, |session| session.0) - SESSIONS;
            let position = usize::try_from(number.saturating_sub(self.numbers.0) / self.numbers.1)?;
            let Some(agent) = self.agents.get_mut(position) else { continue };
            for message in agent.hear(&self.script, &answer)? {
                send(socket, &message)?;
            }
        }
    }

    /// Waits until all frames are acknowledged. After a time without answers it sends unacknowledged frames
    /// again.
    fn settle(&mut self) -> Result<(), Box<dyn Error>> {
        let end_ns = now_ns() + SETTLE_S * SECOND_NS;
        let mut heard_ns = now_ns();
        while now_ns() < end_ns && !self.agents.iter().all(MockAgent::is_settled) {
            for socket in 0..self.sockets.len() {
                if self.listen(socket)? {
                    heard_ns = now_ns();
                }
            }
            if now_ns() - heard_ns > AGAIN_NS {
                for (position, agent) in self.agents.iter().enumerate() {
                    let Some(socket) = self.sockets.get(position / self.per_socket) else { continue };
                    agent.unacknowledged(0).iter().try_for_each(|frame| send(socket, frame))?;
                }
                heard_ns = now_ns();
            }
            sleep_until(now_ns() + SECOND_NS / 20);
        }
        Ok(())
    }
}

/// Sends without blocking. A frame that the socket cannot take stays in the agent's outbox until the
/// collector requests it.
fn send(socket: &zmq::Socket, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    match socket.send(bytes, zmq::DONTWAIT) {
        Ok(()) | Err(zmq::Error::EAGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
