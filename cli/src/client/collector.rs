//! Asking the collector, which passes a request on to all nodes of a job: over its Unix socket on its own machine, elsewhere
//! over TCP with a MUNGE credential.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use polymeter_agent::control::{Refusal, Verb};
use polymeter_collector::control::answer::{self, Answer, JobAnswer};
use polymeter_collector::control::payload;
use serde::Deserialize;

use super::is_silence;
use crate::failure::Failure;

/// The environment's word for where the collector is.
const ENVIRONMENT: &str = "POLYMETER_COLLECTOR";

/// What the administrator of a login node says.
const FILE: &str = "/etc/polymeter/client.toml";

/// Where a collector of this machine may be.
const SOCKET: &str = "/run/polymeter/collector.sock";

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// How long the greeting may take, which the collector sends of its own accord.
const GREETING: Duration = Duration::from_secs(5);

/// How long the answer may take; the collector waits some five seconds for the nodes.
const PATIENCE: Duration = Duration::from_secs(15);

/// The first byte of every ZeroMQ greeting, with which each side of a connection begins: ZMTP 3.1, "signature".
const ZMTP_SIGNATURE: u8 = 0xff;

/// Bytes of the line with which the collector begins.
const GREETING_BYTES: u64 = 1024;

/// Bytes of an answer: the collector keeps itself to a quarter.
const ANSWER_BYTES: u64 = 64 * 1024 * 1024;

/// What is wrong with a peer that does not greet as a collector does.
const NO_CONTROL: &str = "what listens there is not the control port of a collector of this version; check the port and both versions";

/// Where a collector is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// On this machine.
    Socket(PathBuf),
    /// HOST:PORT.
    Tcp(String),
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let has_port = |address: &str| {
            let parts = address.rsplit_once(':');
            parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        match text.strip_prefix("tcp://") {
            Some(address) if has_port(address) => Ok(Self::Tcp(address.to_owned())),
            None if Path::new(text).is_absolute() => Ok(Self::Socket(text.into())),
            Some(_) | None => {
                Err(format!("`{text}` is no collector: write tcp://HOST:PORT, or the path of its socket"))
            }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

/// What the administrator of a login node says.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    /// Where the collector is.
    collector: Option<String>,
    /// The socket of munged, where it is not the usual one.
    munge_socket: Option<PathBuf>,
}

/// A collector that can be asked.
#[derive(Debug)]
pub(crate) struct Collector {
    endpoint: Endpoint,
    munge_socket: Option<PathBuf>,
}

impl Collector {
    /// The collector at `named`, or else where the environment or the configuration says; none where nobody says.
    pub(crate) fn find(
        named: Option<&Endpoint>,
        munge_socket: Option<&PathBuf>,
    ) -> Result<Option<Self>, Failure> {
        let said = read(Path::new(FILE))?;
        let environment = std::env::var(ENVIRONMENT).ok().filter(|text| !text.is_empty());
        let told = environment.map(|text| (text, ENVIRONMENT));
        let told = told.or_else(|| said.collector.map(|text| (text, FILE)));
        let endpoint = match (named, told) {
            (Some(endpoint), _) => Some(endpoint.clone()),
            (None, Some((text, place))) => {
                Some(text.parse().map_err(|error| Failure::Usage(format!("{place}: {error}")))?)
            }
            (None, None) => Some(Endpoint::Socket(SOCKET.into())).filter(|_| Path::new(SOCKET).exists()),
        };
        let munge_socket = munge_socket.cloned().or(said.munge_socket);
        Ok(endpoint.map(|endpoint| Self { endpoint, munge_socket }))
    }

    /// Asks all nodes of the job that `verb` is about.
    pub(super) fn ask(&self, verb: &Verb) -> Result<JobAnswer, Failure> {
        let line = serde_json::to_string(verb).map_err(|error| Failure::refused("cannot ask", &error))?;
        match self.answer(&line)? {
            Answer::Nodes(answer) => Ok(answer),
            Answer::Done {} => Err(another_version()),
            Answer::Refused(refusal) => Err(answered(refusal)),
        }
    }

    /// Tells something that the collector stores.
    pub(crate) fn tell(&self, line: &str) -> Result<(), Failure> {
        match self.answer(line)? {
            Answer::Done {} => Ok(()),
            Answer::Nodes(_) => Err(another_version()),
            Answer::Refused(refusal) => Err(answered(refusal)),
        }
    }

    fn answer(&self, line: &str) -> Result<Answer, Failure> {
        let answer = match &self.endpoint {
            Endpoint::Socket(path) => ask_here(path, line),
            Endpoint::Tcp(address) => self.ask_there(address, line),
        };
        let answer = answer.map_err(|error| {
            Failure::Unreachable(format!("cannot ask the collector at {}: {error}", self.endpoint))
        })?;
        serde_json::from_str(&answer).map_err(|error| {
            Failure::refused("the collector's answer cannot be read; is it of another version?", &error)
        })
    }

    fn ask_there(&self, address: &str, line: &str) -> io::Result<String> {
        let mut stream = connect(address)?;
        stream.set_read_timeout(Some(GREETING))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut read = BufReader::new(stream.try_clone()?);
        let greeting = read_greeting(&mut read)?;
        let signed = payload::sign(&greeting, line).ok_or_else(|| io::Error::other(NO_CONTROL))?;
        let credential = munge(self.munge_socket.as_deref(), &signed)?;
        stream.write_all(&credential)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        read_line(&mut read, ANSWER_BYTES).map_err(|error| silence(error, PATIENCE))
    }
}

fn another_version() -> Failure {
    let message = "the collector answers something else than was asked; is it of another version?";
    Failure::Refused(message.to_owned())
}

/// A refusal of the collector's, in the form of an agent's.
fn answered(refusal: answer::Refusal) -> Failure {
    let answer::Refusal { code, field, message } = refusal;
    Failure::Answered(Box::new(Refusal::new(&code, field.as_deref(), &message)))
}

fn read(path: &Path) -> Result<Said, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            toml::from_str(&text).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Said::default()),
        Err(error) => Err(Failure::Usage(format!("{}: {error}", path.display()))),
    }
}

fn ask_here(path: &Path, line: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    read_line(&mut BufReader::new(stream), ANSWER_BYTES).map_err(|error| silence(error, PATIENCE))
}

/// The line with which a collector greets users.
fn read_greeting(stream: &mut impl BufRead) -> io::Result<String> {
    let bytes = stream.fill_buf().map_err(|error| match silence(error, GREETING) {
        error if error.kind() == io::ErrorKind::TimedOut => {
            io::Error::other(format!("{error}; {NO_CONTROL}"))
        }
        error => error,
    })?;
    if bytes.first() == Some(&ZMTP_SIGNATURE) {
        return Err(io::Error::other(
            "this is the port for agents, which speaks ZeroMQ; give the port of `control` in the collector's configuration, 7718 in the example",
        ));
    }
    read_line(stream, GREETING_BYTES).map_err(|error| {
        if error.kind() == io::ErrorKind::InvalidData {
            return io::Error::other(NO_CONTROL);
        }
        silence(error, GREETING)
    })
}

/// What has passed without an answer says so, and not that a "resource is temporarily unavailable".
fn silence(error: io::Error, patience: Duration) -> io::Error {
    if !is_silence(&error) {
        return error;
    }
    let message = format!("it did not answer within {} s", patience.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// Connects to the first of the host's addresses that answers.
fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the host has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn read_line(stream: &mut impl BufRead, limit: u64) -> io::Result<String> {
    let mut line = String::new();
    stream.take(limit).read_line(&mut line)?;
    if line.ends_with('\n') {
        Ok(line)
    } else {
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended the connection without an answer"))
    }
}

/// A credential for `payload`, on a line of its own.
fn munge(socket: Option<&Path>, payload: &str) -> io::Result<Vec<u8>> {
    let mut command = Command::new("munge");
    if let Some(socket) = socket {
        command.arg("--socket").arg(socket);
    }
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| {
        io::Error::new(error.kind(), format!("`munge`, which says who you are, cannot be run: {error}"))
    })?;
    if let Some(mut input) = child.stdin.take() {
        // One that has complained, and ended, is judged by its status.
        input.write_all(payload.as_bytes()).ok();
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("no credential can be had: {}", complaint.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_are_addresses_or_paths() {
        assert_eq!("tcp://head:7718".parse(), Ok(Endpoint::Tcp("head:7718".to_owned())));
        assert_eq!("/run/c.sock".parse(), Ok(Endpoint::Socket("/run/c.sock".into())));
        for text in ["", "head:7718", "tcp://head", "tcp://:7718", "tcp://head:x", "c.sock", "ipc:///x"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }

    /// What asking a peer comes to that says so much and then waits.
    fn asked_of_one_that_says(words: &'static [u8]) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(words).unwrap();
            // Until the other side is gone.
            stream.read(&mut [0]).unwrap_or(0)
        });
        let collector = Collector { endpoint: Endpoint::Tcp(address.clone()), munge_socket: None };
        let error = collector.ask_there(&address, "{}").unwrap_err().to_string();
        peer.join().unwrap();
        error
    }

    #[test]
    fn a_wrong_port_is_recognised() {
        // The signature of ZMTP, which libzmq sends before it has heard anything.
        let zmtp = asked_of_one_that_says(b"\xff\0\0\0\0\0\0\0\x01\x7f");
        assert!(zmtp.contains("port for agents") && zmtp.contains("`control`"), "{zmtp}");
        for words in [b"HTTP/1.1 400 Bad Request\r\n".as_slice(), b"\x80\x81\n"] {
            let other = asked_of_one_that_says(words);
            assert!(other.contains("not the control port"), "{other}");
        }
        let silent = silence(io::ErrorKind::WouldBlock.into(), GREETING).to_string();
        assert_eq!(silent, "it did not answer within 5 s");
    }

    #[test]
    fn the_example_says_where_the_collector_is() {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/client.toml");
        let said = read(&example).unwrap();
        assert!(said.collector.unwrap().parse::<Endpoint>().is_ok());
        assert_eq!(read(Path::new("/nowhere/client.toml")).unwrap(), Said::default());
    }
}
