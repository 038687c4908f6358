//! A running agent process, and a collector that acknowledges and forwards frames without storing them.

use std::error::Error;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use polymeter_proto::control::{Answer, FlushRequest, Request, StatusReport, StatusRequest};
use polymeter_proto::ledger::Tally;
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::ToAgent;

use crate::clock::wait_for;
use crate::job::{pause, write};
use crate::process::{KilledOnDrop, end};

const FRAMES: usize = 10_000;

const START_S: u64 = 10;

/// Dropping it kills the process.
#[derive(Debug)]
pub struct Agent {
    process: KilledOnDrop,
    socket: PathBuf,
}

/// An agent and its collector. Dropping it stops both.
#[derive(Debug)]
pub struct Running {
    agent: Agent,
    frames: mpsc::Receiver<Frame>,
}

#[derive(Debug)]
pub struct Line {
    stream: UnixStream,
    lines: Lines<BufReader<UnixStream>>,
}

/// Path of a program that was built together with this one.
pub fn program(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("{} is missing: run `cargo build --release --workspace` first", path.display()).into())
}

impl Agent {
    /// Starts an agent with this configuration, adding the collector's endpoint, or several in brackets, and
    /// a control socket in `scratch`.
    pub fn start(scratch: &Path, collector: &str, config: &str) -> Result<Self, Box<dyn Error>> {
        Self::start_program(&program("polymeter-agent")?, scratch, collector, config)
    }

    pub fn start_program(
        program: &Path,
        scratch: &Path,
        collector: &str,
        config: &str,
    ) -> Result<Self, Box<dyn Error>> {
        let (socket, path) = (scratch.join("agent.sock"), scratch.join("agent.toml"));
        let quote = if collector.starts_with('[') { "" } else { "\"" };
        let head =
            format!("collector = {quote}{collector}{quote}\ncontrol_socket = \"{}\"\n", socket.display());
        write(&path, &format!("{head}{config}"))?;
        let process = Command::new(program)
            .arg("--config")
            .arg(&path)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let agent = Self { process: KilledOnDrop(process), socket };
        wait_for("the agent opens its socket", START_S, || UnixStream::connect(&agent.socket).ok())?;
        Ok(agent)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn connect(&self) -> Result<Line, Box<dyn Error>> {
        let stream = UnixStream::connect(&self.socket)?;
        Ok(Line { lines: BufReader::new(stream.try_clone()?).lines(), stream })
    }

    pub fn cpu_s(&self) -> Result<f64, Box<dyn Error>> {
        Ok(crate::table::to_f64(self.connect()?.status()?.counts.cpu_ns) / 1e9)
    }

    /// Stops the agent with SIGTERM, as systemd does; it sends its pending frames first. Returns true if it
    /// exited successfully.
    pub fn stop(mut self) -> bool {
        end(&mut self.process, rustix::process::Signal::TERM, START_S)
    }
}

impl Running {
    /// Starts an agent with this configuration, adding the collector's endpoint and a control socket in
    /// `scratch`.
    pub fn start(scratch: &Path, config: &str) -> Result<Self, Box<dyn Error>> {
        Self::start_program(&program("polymeter-agent")?, scratch, config)
    }

    pub fn start_program(program: &Path, scratch: &Path, config: &str) -> Result<Self, Box<dyn Error>> {
        let endpoint = format!("ipc://{}/collector", scratch.display());
        let context = zmq::Context::new();
        let collector = context.socket(zmq::ROUTER)?;
        collector.bind(&endpoint)?;
        let (sender, frames) = mpsc::sync_channel(FRAMES);
        thread::Builder::new()
            .name("collector".to_owned())
            .spawn(move || acknowledge(&collector, &sender))?;
        Ok(Self { agent: Agent::start_program(program, scratch, &endpoint, config)?, frames })
    }

    /// Ends the agent after a measurement. Fails if it has ended before, since nothing was measured then.
    pub fn stop(self) -> Result<(), Box<dyn Error>> {
        if self.agent.stop() {
            return Ok(());
        }
        Err("the agent ended while it was measured, or failed at its end; run polymeter-agent by hand to see why"
            .into())
    }

    /// Takes the frames received since the previous call.
    pub fn frames(&self) -> impl Iterator<Item = Frame> {
        self.frames.try_iter()
    }
}

impl std::ops::Deref for Running {
    type Target = Agent;

    fn deref(&self) -> &Agent {
        &self.agent
    }
}

impl Line {
    pub fn ask(&mut self, verb: &Request) -> Result<Answer, Box<dyn Error>> {
        let mut line = serde_json::to_vec(verb)?;
        line.push(b'\n');
        self.stream.write_all(&line)?;
        let answer = self.lines.next().ok_or("the agent has hung up")??;
        Ok(serde_json::from_str(&answer)?)
    }

    /// Flushes all samples and returns the agent's status.
    pub fn status(&mut self) -> Result<StatusReport, Box<dyn Error>> {
        self.ask(&Request::Flush(FlushRequest {}))?;
        // The sender publishes its counters a moment after the flush.
        pause(50_000_000);
        let answer = self.ask(&Request::Status(StatusRequest {}))?;
        let Answer::Status(status) = answer else {
            return Err(format!("the agent does not say how it goes: {answer:?}").into());
        };
        Ok(status)
    }
}

pub fn tally_of_jobs(status: &StatusReport) -> Tally {
    let of_jobs = status.subjects.iter().filter(|subject| subject.job.is_some());
    let mut sum = Tally::default();
    of_jobs.flat_map(|subject| &subject.sources).for_each(|source| sum.add(&source.tally));
    sum
}

/// Acknowledges and forwards every frame until the receiving end of `shown` is closed.
fn acknowledge(collector: &zmq::Socket, shown: &mpsc::SyncSender<Frame>) {
    while let Ok(message) = collector.recv_multipart(0) {
        let [peer, bytes] = message.as_slice() else { continue };
        let Ok(frame) = Frame::decode(bytes) else { continue };
        let ack = ToAgent::Ack { session: frame.session, through: frame.sequence };
        let sent = collector.send_multipart([peer, &ack.encode()], 0);
        // A frame that does not fit into the queue is dropped.
        if sent.is_err() || matches!(shown.try_send(frame), Err(mpsc::TrySendError::Disconnected(_))) {
            return;
        }
    }
}
