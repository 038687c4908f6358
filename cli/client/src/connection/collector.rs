//! Requests to the collector, which forwards them to all nodes of a job: over its Unix socket on its own
//! machine, from other machines over TCP with a MUNGE credential. Of several collectors the first one that
//! can be reached answers.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use polymeter_proto::control::{
    CollectorAnswer, Greeting, JobAnswer, NoticeChoices, NoticesRequest, Request, TokenInfo, TokenRequest,
};
use polymeter_proto::control::{ReadAccess, ReadRequest, ReadSession};

use super::agent::{is_not_running, is_timeout};
use super::configuration::{CollectorConfig, CollectorEndpoint};
use super::munge;
use super::stream::{Stream, read_line};
use crate::failure::Failure;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The collector sends its greeting first.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// The collector waits about five seconds for the nodes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// First byte of every ZeroMQ greeting: ZMTP 3.1, "signature".
pub const ZMTP_SIGNATURE: u8 = 0xff;

const GREETING_BYTES: u64 = 1024;

/// Four times the collector's own limit on its answers.
const ANSWER_BYTES: u64 = 64 * 1024 * 1024;

const NOT_A_COLLECTOR: &str =
    "the peer does not answer as a collector of this version; check the port and the versions";

#[derive(Debug)]
pub struct Collector {
    config: CollectorConfig,
}

impl Collector {
    /// Prefers `endpoint` to the configuration; none if neither names a collector.
    pub fn find(
        endpoint: Option<&CollectorEndpoint>,
        munge_socket: Option<&Path>,
    ) -> Result<Option<Self>, Failure> {
        Ok(CollectorConfig::find(endpoint, munge_socket)?.map(|config| Self { config }))
    }

    /// Sends a request to all nodes of the job that it is about.
    pub fn ask(&self, verb: &Request) -> Result<JobAnswer, Failure> {
        let line = serde_json::to_string(verb)
            .map_err(|error| Failure::because("cannot write the request", &error))?;
        let CollectorAnswer::Nodes(answer) = self.accepted(&line)? else { return Err(unexpected()) };
        Ok(answer)
    }

    /// Sends a request that the collector executes itself.
    pub fn send(&self, line: &str) -> Result<(), Failure> {
        let CollectorAnswer::Done {} = self.accepted(line)? else { return Err(unexpected()) };
        Ok(())
    }

    pub fn tokens(&self, request: &TokenRequest) -> Result<Vec<TokenInfo>, Failure> {
        let CollectorAnswer::Tokens(list) = self.accepted(&request.to_line())? else {
            return Err(unexpected());
        };
        Ok(list.tokens)
    }

    pub fn notice_choices(&self) -> Result<NoticeChoices, Failure> {
        let CollectorAnswer::NoticeChoices(choices) =
            self.accepted(&NoticesRequest { rule: None, off: None }.to_line())?
        else {
            return Err(unexpected());
        };
        Ok(choices)
    }

    /// Begins a session of reading. Returns the connection, and the jobs that the session sees.
    pub fn read(&self) -> Result<(BufReader<Stream>, ReadAccess), Failure> {
        let (answer, stream) = self.answer_on(ReadRequest::LINE)?;
        match answer {
            CollectorAnswer::Reading(session) if session.version == ReadSession::VERSION => {
                Ok((stream, session.access))
            }
            CollectorAnswer::Refused(refusal) => Err(Failure::Refused(Box::new(refusal))),
            CollectorAnswer::Reading(_)
            | CollectorAnswer::Nodes(_)
            | CollectorAnswer::Done {}
            | CollectorAnswer::Tokens(_)
            | CollectorAnswer::NoticeChoices(_) => Err(unexpected()),
        }
    }

    pub fn endpoints(&self) -> &[CollectorEndpoint] {
        &self.config.endpoints
    }

    /// None for munge's default socket.
    pub fn munge_socket(&self) -> Option<&Path> {
        self.config.munge_socket.as_deref()
    }

    pub fn name(&self) -> String {
        let names: Vec<String> = self.config.endpoints.iter().map(ToString::to_string).collect();
        names.join(", ")
    }

    /// Returns the answer, unless it is a refusal.
    fn accepted(&self, line: &str) -> Result<CollectorAnswer, Failure> {
        let answer = self.answer(line)?;
        if let CollectorAnswer::Refused(refusal) = answer {
            return Err(Failure::Refused(Box::new(refusal)));
        }
        Ok(answer)
    }

    fn answer(&self, line: &str) -> Result<CollectorAnswer, Failure> {
        self.answer_on(line).map(|(answer, _)| answer)
    }

    fn answer_on(&self, line: &str) -> Result<(CollectorAnswer, BufReader<Stream>), Failure> {
        let mut failures = Vec::new();
        for endpoint in &self.config.endpoints {
            let connection = match self.connect(endpoint, line) {
                Ok(connection) => connection,
                // The request was not sent: another collector may take it.
                Err(error) => {
                    failures.push(unreachable(endpoint, &error));
                    continue;
                }
            };
            let (answer, stream) =
                connection.exchange().map_err(|error| Failure::Unreachable(unreachable(endpoint, &error)))?;
            let answer = serde_json::from_str(&answer).map_err(|error| {
                Failure::Failed(format!(
                    "cannot read the collector's answer: {error}; check that collector and command have the same version"
                ))
            })?;
            return Ok((answer, stream));
        }
        Err(Failure::Unreachable(failures.join("\n")))
    }

    /// Connects to a collector, as far as is possible without sending it the request.
    fn connect(&self, endpoint: &CollectorEndpoint, line: &str) -> io::Result<Connected> {
        match endpoint {
            CollectorEndpoint::Socket(path) => {
                let stream = Stream::unix(path, CONNECT_TIMEOUT)?;
                Ok(Connected { stream: BufReader::new(stream), request: format!("{line}\n").into_bytes() })
            }
            CollectorEndpoint::Tcp(address) => {
                let mut last = io::Error::other("the host name does not resolve to an address");
                for address in address.to_socket_addrs()? {
                    match self.connect_tcp(address, line) {
                        Ok(connected) => return Ok(connected),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    fn connect_tcp(&self, address: SocketAddr, line: &str) -> io::Result<Connected> {
        let (stream, greeting) = greeted(address)?;
        let signed = greeting.sign(line);
        let request = munge::credential(self.config.munge_socket.as_deref(), &signed)?;
        Ok(Connected { stream, request })
    }
}

pub fn greeted(address: SocketAddr) -> io::Result<(BufReader<Stream>, Greeting)> {
    let mut stream = BufReader::new(Stream::tcp(address, CONNECT_TIMEOUT)?);
    stream.get_mut().set_timeout(GREETING_TIMEOUT);
    let greeting = read_greeting(&mut stream)?;
    let greeting = Greeting::parse(&greeting).ok_or_else(|| io::Error::other(NOT_A_COLLECTOR))?;
    Ok((stream, greeting))
}

/// Holds the request that is to be sent.
struct Connected {
    stream: BufReader<Stream>,
    request: Vec<u8>,
}

impl Connected {
    fn exchange(mut self) -> io::Result<(String, BufReader<Stream>)> {
        self.stream.get_mut().set_timeout(ANSWER_TIMEOUT);
        let answer = self.stream.get_mut().write_all(&self.request);
        let answer = answer.and_then(|()| read_line(&mut self.stream, ANSWER_BYTES));
        Ok((answer.map_err(|error| timed_out(error, ANSWER_TIMEOUT))?, self.stream))
    }
}

fn unreachable(endpoint: &CollectorEndpoint, error: &io::Error) -> String {
    let remedy = if is_not_running(error) { "; check its address, and that it runs" } else { "" };
    format!("cannot reach the collector at {endpoint}: {error}{remedy}")
}

fn unexpected() -> Failure {
    let message =
        "unexpected answer of the collector; check that collector and command have the same version";
    Failure::Failed(message.to_owned())
}

fn read_greeting(stream: &mut impl BufRead) -> io::Result<String> {
    let bytes = stream.fill_buf().map_err(|error| match timed_out(error, GREETING_TIMEOUT) {
        error if error.kind() == io::ErrorKind::TimedOut => {
            io::Error::other(format!("{error}; {NOT_A_COLLECTOR}"))
        }
        error => error,
    })?;
    if bytes.first() == Some(&ZMTP_SIGNATURE) {
        return Err(io::Error::other(
            "this is the port for agents; use the port set by `control_listen` in the collector's configuration (7718 in the example)",
        ));
    }
    read_line(stream, GREETING_BYTES).map_err(|error| {
        if error.kind() == io::ErrorKind::InvalidData {
            return io::Error::other(NOT_A_COLLECTOR);
        }
        timed_out(error, GREETING_TIMEOUT)
    })
}

/// Replaces the system's text for a timeout, "resource temporarily unavailable".
pub fn timed_out(error: io::Error, timeout: Duration) -> io::Error {
    if !is_timeout(&error) {
        return error;
    }
    let message = format!("no answer within {} s", timeout.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, message)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// Error for a peer that sends `words` and then waits.
    fn error_for_peer(words: &'static [u8]) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(words).unwrap();
            // Waits until the other side closes the connection.
            stream.read(&mut [0]).unwrap_or(0)
        });
        let endpoints = vec![CollectorEndpoint::Tcp(address)];
        let collector = Collector { config: CollectorConfig { endpoints, munge_socket: None } };
        let error = collector.answer("{}").unwrap_err().to_string();
        peer.join().unwrap();
        error
    }

    #[test]
    fn a_wrong_port_is_detected() {
        // The signature of ZMTP, which libzmq sends first.
        let zmtp = error_for_peer(b"\xff\0\0\0\0\0\0\0\x01\x7f");
        assert!(zmtp.contains("port for agents") && zmtp.contains("`control_listen`"), "{zmtp}");
        for words in [b"HTTP/1.1 400 Bad Request\r\n".as_slice(), b"\x80\x81\n"] {
            let other = error_for_peer(words);
            assert!(other.contains("check the port"), "{other}");
        }
        let timeout = timed_out(io::ErrorKind::WouldBlock.into(), GREETING_TIMEOUT).to_string();
        assert_eq!(timeout, "no answer within 5 s");
    }

    #[test]
    fn the_first_collector_that_can_be_reached_answers() {
        let directory = std::env::temp_dir().join(format!("polymeter-collectors-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = |name: &str| directory.join(name);
        let listener = std::os::unix::net::UnixListener::bind(socket("second")).unwrap();
        let peer = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut stream = BufReader::new(stream);
            let mut request = String::new();
            stream.read_line(&mut request).unwrap();
            stream.get_mut().write_all(b"{\"answer\":\"done\"}\n").unwrap();
            request
        });
        let endpoints = ["first", "second", "third"].map(|name| CollectorEndpoint::Socket(socket(name)));
        let config = CollectorConfig { endpoints: endpoints.into(), munge_socket: None };
        let answer = Collector { config }.answer("{}");
        assert_eq!(peer.join().unwrap(), "{}\n");
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(matches!(answer, Ok(CollectorAnswer::Done {})), "{answer:?}");
        let none = ["first", "third"].map(|name| CollectorEndpoint::Socket(socket(name)));
        let config = CollectorConfig { endpoints: none.into(), munge_socket: None };
        let failure = Collector { config }.answer("{}").unwrap_err().to_string();
        assert!(failure.contains("first") && failure.contains("third"), "{failure}");
    }
}
