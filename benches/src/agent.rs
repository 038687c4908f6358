//! A running agent as users run it, and a collector that stores nothing but acknowledges, and shows what came.

use std::error::Error;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use polymeter_proto::control::{Answer, FlushRequest, Request, StatusReport, StatusRequest};
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::ToAgent;

use crate::clock::wait_for;
use crate::job::{pause, write};

/// Frames that wait for somebody to look at them.
const FRAMES: usize = 10_000;

/// How long a program may take to start, in seconds.
const START_S: u64 = 10;

/// An agent's process. Dropping it ends it.
#[derive(Debug)]
pub struct Agent {
    process: Child,
    socket: PathBuf,
}

/// An agent and its collector. Dropping it ends both.
#[derive(Debug)]
pub struct Running {
    agent: Agent,
    frames: mpsc::Receiver<Frame>,
}

/// One connection to the agent's control socket.
#[derive(Debug)]
pub struct Line {
    stream: UnixStream,
    lines: Lines<BufReader<UnixStream>>,
}

/// A program that was built together with this one.
///
/// # Errors
/// When it is not there.
pub fn program(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("{} is missing: run `cargo build --release --workspace` first", path.display()).into())
}

impl Agent {
    /// Starts an agent with this configuration, to which its collector and its socket in `scratch` are added.
    ///
    /// # Errors
    /// When the program is not there, or does not open its socket.
    pub fn start(scratch: &Path, collector: &str, config: &str) -> Result<Self, Box<dyn Error>> {
        let (socket, path) = (scratch.join("agent.sock"), scratch.join("agent.toml"));
        let head = format!("collector = \"{collector}\"\ncontrol_socket = \"{}\"\n", socket.display());
        write(&path, &format!("{head}{config}"))?;
        let process = Command::new(program("polymeter-agent")?)
            .arg("--config")
            .arg(&path)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let agent = Self { process, socket };
        wait_for("the agent opens its socket", START_S, || UnixStream::connect(&agent.socket).ok())?;
        Ok(agent)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// A connection to the control socket.
    ///
    /// # Errors
    /// When there is none.
    pub fn connect(&self) -> Result<Line, Box<dyn Error>> {
        let stream = UnixStream::connect(&self.socket)?;
        Ok(Line { lines: BufReader::new(stream.try_clone()?).lines(), stream })
    }

    /// CPU time that the agent has used, in seconds, all threads.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn cpu_s(&self) -> Result<f64, Box<dyn Error>> {
        Ok(crate::table::to_f64(self.connect()?.status()?.counts.cpu_ns) / 1e9)
    }

    /// Stops it as systemd would: it sends what it has. True if it was content.
    pub fn stop(mut self) -> bool {
        crate::process::end(&mut self.process, rustix::process::Signal::TERM, START_S)
    }
}

impl Running {
    /// Starts an agent with this configuration, to which its collector and its socket in `scratch` are added.
    ///
    /// # Errors
    /// When the program is not there, or does not open its socket.
    pub fn start(scratch: &Path, config: &str) -> Result<Self, Box<dyn Error>> {
        let endpoint = format!("ipc://{}/collector", scratch.display());
        let context = zmq::Context::new();
        let collector = context.socket(zmq::ROUTER)?;
        collector.bind(&endpoint)?;
        let (sender, frames) = mpsc::sync_channel(FRAMES);
        thread::Builder::new()
            .name("collector".to_owned())
            .spawn(move || acknowledge(&collector, &sender))?;
        Ok(Self { agent: Agent::start(scratch, &endpoint, config)?, frames })
    }

    /// The frames that have come since this was asked last.
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
    /// Asks one thing.
    ///
    /// # Errors
    /// When the connection ends, or the answer cannot be read.
    pub fn ask(&mut self, verb: &Request) -> Result<Answer, Box<dyn Error>> {
        let mut line = serde_json::to_vec(verb)?;
        line.push(b'\n');
        self.stream.write_all(&line)?;
        let answer = self.lines.next().ok_or("the agent has hung up")??;
        Ok(serde_json::from_str(&answer)?)
    }

    /// How the agent goes, with everything flushed before.
    ///
    /// # Errors
    /// When it does not say.
    pub fn status(&mut self) -> Result<StatusReport, Box<dyn Error>> {
        self.ask(&Request::Flush(FlushRequest {}))?;
        // The sender pins the tallies up a moment after the flush.
        pause(50_000_000);
        let answer = self.ask(&Request::Status(StatusRequest {}))?;
        let Answer::Status(status) = answer else {
            return Err(format!("the agent does not say how it goes: {answer:?}").into());
        };
        Ok(status)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It is ours, and has nothing that is worth waiting for. After a stop it has gone, and this does nothing.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Acknowledges every frame and shows it, until nobody looks any more.
fn acknowledge(collector: &zmq::Socket, shown: &mpsc::SyncSender<Frame>) {
    while let Ok(message) = collector.recv_multipart(0) {
        let [peer, bytes] = message.as_slice() else { continue };
        let Ok(frame) = Frame::decode(bytes) else { continue };
        let ack = ToAgent::Ack { session: frame.session, through: frame.sequence };
        let sent = collector.send_multipart([peer, &ack.encode()], 0);
        // What nobody looks at is not kept for ever.
        if sent.is_err() || matches!(shown.try_send(frame), Err(mpsc::TrySendError::Disconnected(_))) {
            return;
        }
    }
}
