//! The agents of one process: one thread that lets each speak when it is its turn, over connections as real agents have.

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

/// Sockets of one ZeroMQ context, which has 1023 if nobody asks for more, and the crate offers no way to ask.
const SOCKETS_PER_CONTEXT: usize = 1_000;

/// How often in a period each connection is looked at for answers, beside its agents' own turns.
const LOOKS_PER_PERIOD: usize = 10;

/// How long the agents wait for their last acknowledgements, in seconds; the first frames of thousands make series.
const SETTLE_S: u64 = 600;

/// After what silence an agent sends again what is not acknowledged, in nanoseconds.
const AGAIN_NS: u64 = 5 * SECOND_NS;

/// How often an agent asks its collector for a sign of life, and how long it waits for one.
const HEARTBEAT_MS: (i32, i32) = (10_000, 30_000);

/// What the sessions of this experiment begin with; their agent's number follows.
const SESSIONS: u64 = 0x7363_616c << 32;

/// The node that an agent is on.
pub(crate) fn node(number: u64) -> String {
    format!("mock{number}")
}

/// The session of an agent.
pub(crate) const fn session(number: u64) -> SessionId {
    SessionId(SESSIONS | number)
}

/// Which agents a process is, and what they do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Fleet {
    /// The collector's endpoint.
    pub(crate) endpoint: String,
    /// The first agent's number.
    pub(crate) first: u64,
    /// Every how-manieth agent is in this process.
    pub(crate) step: u64,
    /// The agents of all processes.
    pub(crate) agents: u64,
    /// Agents that share a connection.
    pub(crate) per_connection: u64,
    /// How often each speaks.
    pub(crate) period: Period,
    /// How long.
    pub(crate) seconds: u64,
}

/// What the agents of a process did.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Samples that were sent.
    pub(crate) samples: u64,
    /// CPU time after the first round, in seconds.
    pub(crate) cpu_s: f64,
    /// Agents whose last frames were never acknowledged.
    pub(crate) stuck: u64,
}

impl Summary {
    pub(crate) fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.cpu_s += other.cpu_s;
        self.stuck += other.stuck;
    }
}

/// The agents at work.
struct Crew {
    script: Script,
    encoder: Encoder,
    agents: Vec<MockAgent>,
    sockets: Vec<zmq::Socket>,
    /// Agents to a socket.
    per_socket: usize,
    /// The number of the first agent, and how far it is to the next.
    numbers: (u64, u64),
}

impl Fleet {
    /// Lets every agent speak once and waits until that is stored, says so, waits for a line on stdin, and lets them speak
    /// for as long as is wished.
    pub(crate) fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut crew = self.crew()?;
        let own = crew.agents.len() as u64;
        let period_ns = self.period.as_nanos();
        // Each has its turn at a time of its own: agent i of N at i / N of the period.
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
        for number in 0..agents.len().div_ceil(per_socket) {
            if number % SOCKETS_PER_CONTEXT == 0 {
                context = zmq::Context::new();
            }
            let socket = context.socket(zmq::DEALER)?;
            socket.set_linger(0)?;
            // As the agent's.
            socket.set_heartbeat_ivl(HEARTBEAT_MS.0)?;
            socket.set_heartbeat_timeout(HEARTBEAT_MS.1)?;
            socket.connect(&self.endpoint)?;
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
    /// Lets one agent send what it has sampled now.
    fn speak(&mut self, position: u64) -> Result<(), Box<dyn Error>> {
        let position = usize::try_from(position)?;
        let socket = self.sockets.get(position / self.per_socket).ok_or("an agent has no socket")?;
        let agent = self.agents.get_mut(position).ok_or("there is no such agent")?;
        let frame = agent.sample(&self.script, &mut self.encoder, wall_us(), 1)?;
        send(socket, frame)
    }

    /// Takes the answers that lie in one socket, and does what they ask. Says whether there were any.
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

    /// Waits until everything is acknowledged, and sends again what nobody answers to.
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

/// Sends without waiting. What finds no room stays in the agent's outbox, and the collector asks for it.
fn send(socket: &zmq::Socket, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    match socket.send(bytes, zmq::DONTWAIT) {
        Ok(()) | Err(zmq::Error::EAGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
