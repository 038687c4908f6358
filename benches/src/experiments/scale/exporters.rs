//! The exporters of one process: a single thread, a separate loopback address for each exporter, and
//! persistent connections like those of real exporters.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;

use polymeter_benches::clock::{SECOND_NS, now_ns, process_cpu_ns};
use polymeter_benches::mock::Script;
use polymeter_benches::recording::RECORDED;
use polymeter_benches::table::{say, to_f64};
use polymeter_proto::period::Period;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use serde::{Deserialize, Serialize};

use super::fleet::session;
use super::page::Page;
use super::request::{self, Asked};

/// Address of the first exporter, 127.64.0.1; the others follow it. All of 127.0.0.0/8 is the loopback
/// device.
const FIRST_ADDRESS: u32 = 0x7f40_0001;

/// Maximum number of exporters: below the number of addresses, and above the descriptor limit of any machine.
pub(crate) const MOST: u64 = 1_000_000;

/// Maximum number of connections of one exporter. Prometheus has one, and briefly a second one after it gave
/// up the first.
const CONNECTIONS: usize = 4;

const EVENTS: usize = 256;

/// Time between two looks for idle connections.
const LOOK_NS: i64 = 250_000_000;

/// Event data: standard input; a connection, with its slot; any other value is a listener's, the exporter's
/// index.
const STDIN: u64 = u64::MAX;
const CONNECTION: u64 = 1 << 32;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Exporters {
    /// Number of the first exporter.
    pub(crate) first: u64,
    /// Distance from one exporter's number to the next.
    pub(crate) step: u64,
    /// Number of exporters in all processes.
    pub(crate) exporters: u64,
    pub(crate) period: Period,
    /// Time in seconds after which an idle connection is closed; 0 closes it after its answer.
    pub(crate) idle_s: Option<u64>,
}

#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Served {
    pub(crate) pages: u64,
    /// Size of those pages, with HTTP headers.
    pub(crate) bytes: u64,
    /// Refused requests and connections.
    pub(crate) refused: u64,
    pub(crate) connections: u64,
    pub(crate) cpu_s: f64,
}

impl Served {
    pub(crate) fn add(&mut self, other: &Self) {
        self.pages += other.pages;
        self.bytes += other.bytes;
        self.refused += other.refused;
        self.connections += other.connections;
        self.cpu_s += other.cpu_s;
    }

    /// Difference to `before`; `connections` stays the current number.
    pub(crate) fn since(self, before: &Self) -> Self {
        Self {
            pages: self.pages - before.pages,
            bytes: self.bytes - before.bytes,
            refused: self.refused - before.refused,
            connections: self.connections,
            cpu_s: self.cpu_s - before.cpu_s,
        }
    }
}

impl Exporters {
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        (self.first..self.exporters.min(MOST)).step_by(usize::try_from(self.step.max(1)).unwrap_or(1))
    }

    /// Listens, prints the port, and serves requests. For each line on stdin it prints its counts; it exits
    /// at the end of stdin.
    pub(crate) fn run(&self) -> Result<(), Box<dyn Error>> {
        polymeter_agent::kernel::raise_descriptor_limit();
        let mut server = ExporterServer::open(self)?;
        epoll::add(&server.epoll, io::stdin(), EventData::new_u64(STDIN), EventFlags::IN)?;
        say(&server.port.to_string());
        let patience = self.idle_s.map(|_| Timespec { tv_sec: 0, tv_nsec: LOOK_NS });
        while server.poll(patience.as_ref())? {
            server.close_idle();
        }
        Ok(())
    }
}

pub(crate) fn address(number: u64) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_ADDRESS.saturating_add(u32::try_from(number).unwrap_or(u32::MAX)))
}

#[derive(Debug)]
struct Exporter {
    listener: TcpListener,
    tick: usize,
    connections: usize,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    of: usize,
    request: Vec<u8>,
    /// Answer, and the number of its bytes that were sent.
    answer: Vec<u8>,
    sent_bytes: usize,
    /// True if the connection closes after this answer.
    ends: bool,
    /// True if it waits until it can send, instead of for a request.
    waits: bool,
    /// Time of the last request, or of the connection.
    active_ns: u64,
}

#[derive(Debug)]
struct ExporterServer {
    script: Script,
    page: Page,
    /// Buffer of a page's text; the header follows from its length.
    text: Vec<u8>,
    epoll: OwnedFd,
    port: u16,
    exporters: Vec<Exporter>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    served: Served,
    idle_s: Option<u64>,
}

impl ExporterServer {
    fn open(which: &Exporters) -> Result<Self, Box<dyn Error>> {
        let script = Script::read(Path::new(RECORDED), which.period)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (mut port, mut exporters) = (0, Vec::new());
        for number in which.numbers() {
            let at = SocketAddrV4::new(address(number), port);
            let listener =
                TcpListener::bind(at).map_err(|error| format!("cannot listen at {at}: {error}"))?;
            listener.set_nonblocking(true)?;
            // The kernel chooses the port of the first exporter; the others use the same port with their own
            // addresses.
            port = listener.local_addr()?.port();
            epoll::add(&epoll, &listener, EventData::new_u64(exporters.len() as u64), EventFlags::IN)?;
            exporters.push(Exporter { listener, tick: script.first_tick(session(number)), connections: 0 });
        }
        let page = Page::of(&script);
        let (text, connections, free) = (Vec::new(), Vec::new(), Vec::new());
        let (served, idle_s) = (Served::default(), which.idle_s);
        Ok(Self { script, page, text, epoll, port, exporters, connections, free, served, idle_s })
    }

    /// Waits for events and handles them. Returns false at the end of stdin.
    fn poll(&mut self, patience: Option<&Timespec>) -> Result<bool, Box<dyn Error>> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), patience) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events {
            match event.data.u64() {
                STDIN if !self.is_asked()? => return Ok(false),
                STDIN => {}
                slot if slot & CONNECTION != 0 => self.attend(usize::try_from(slot ^ CONNECTION)?)?,
                position => self.accept(usize::try_from(position)?)?,
            }
        }
        Ok(true)
    }

    /// Prints the counts once for each line on stdin. Returns false at the end of stdin.
    fn is_asked(&mut self) -> Result<bool, Box<dyn Error>> {
        let mut bytes = [0; 64];
        let length = rustix::io::read(io::stdin(), &mut bytes)?;
        for _line in bytes.iter().take(length).filter(|byte| **byte == b'\n') {
            self.served.cpu_s = to_f64(process_cpu_ns()) / 1e9;
            self.served.connections = self.connections.iter().flatten().count() as u64;
            say(&serde_json::to_string(&self.served)?);
        }
        Ok(length > 0)
    }

    /// Accepts a connection, unless the exporter has the maximum number.
    fn accept(&mut self, position: usize) -> Result<(), Box<dyn Error>> {
        let exporter = self.exporters.get_mut(position).ok_or("there is no such exporter")?;
        let stream = match exporter.listener.accept() {
            Ok((stream, _)) => stream,
            // The client has aborted the connection.
            Err(error) if is_for_later(&error) || error.kind() == ErrorKind::ConnectionAborted => {
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if exporter.connections >= CONNECTIONS {
            self.served.refused += 1;
            return Ok(());
        }
        exporter.connections += 1;
        stream.set_nonblocking(true)?;
        // Disables Nagle's algorithm, as servers do: a page does not wait for the acknowledgement of the
        // previous one.
        stream.set_nodelay(true)?;
        let slot = self.free.pop().unwrap_or(self.connections.len());
        epoll::add(&self.epoll, &stream, EventData::new_u64(CONNECTION | slot as u64), EventFlags::IN)?;
        let (request, answer) = (Vec::new(), Vec::new());
        let (ends, waits) = (false, false);
        let active_ns = now_ns();
        let connection =
            Connection { stream, of: position, request, answer, sent_bytes: 0, ends, waits, active_ns };
        match self.connections.get_mut(slot) {
            Some(place) => *place = Some(connection),
            None => self.connections.push(Some(connection)),
        }
        Ok(())
    }

    /// Closes the connections that are idle for too long.
    fn close_idle(&mut self) {
        // Those that close after their answer wait for it.
        let idle_s = self.idle_s.filter(|idle_s| *idle_s > 0);
        let Some(idle_ns) = idle_s.map(|idle_s| idle_s * SECOND_NS) else { return };
        let now_ns = now_ns();
        for (slot, place) in self.connections.iter_mut().enumerate() {
            let is_idle = |connection: &mut Connection| now_ns - connection.active_ns > idle_ns;
            if let Some(connection) = place.take_if(is_idle) {
                if let Some(exporter) = self.exporters.get_mut(connection.of) {
                    exporter.connections -= 1;
                }
                self.free.push(slot);
            }
        }
    }

    /// Handles the events of a connection. A connection with an error is closed.
    fn attend(&mut self, slot: usize) -> Result<(), Box<dyn Error>> {
        // The same batch may contain an event of a connection that was closed just before.
        let Some(mut connection) = self.connections.get_mut(slot).and_then(Option::take) else {
            return Ok(());
        };
        if self.serve(&mut connection, slot).unwrap_or(false) {
            if let Some(place) = self.connections.get_mut(slot) {
                *place = Some(connection);
            }
        } else {
            // Closing the descriptor removes it from the epoll set.
            let exporter = self.exporters.get_mut(connection.of).ok_or("there is no such exporter")?;
            exporter.connections -= 1;
            self.free.push(slot);
        }
        Ok(())
    }

    /// Reads and answers requests. Returns false at the end of the connection.
    fn serve(&mut self, connection: &mut Connection, slot: usize) -> io::Result<bool> {
        if !connection.waits {
            let mut bytes = [0; request::REQUEST_BYTES];
            match connection.stream.read(&mut bytes) {
                Ok(0) => return Ok(false),
                Ok(length) => {
                    connection.request.extend_from_slice(bytes.get(..length).unwrap_or_default());
                }
                Err(error) if is_for_later(&error) => {}
                Err(error) => return Err(error),
            }
        }
        loop {
            if connection.answer.is_empty() && !self.take_request(connection) {
                return Ok(true);
            }
            let waits = !connection.send()?;
            if waits != connection.waits {
                connection.waits = waits;
                let flags = if waits { EventFlags::OUT } else { EventFlags::IN };
                let data = EventData::new_u64(CONNECTION | slot as u64);
                epoll::modify(&self.epoll, &connection.stream, data, flags)?;
            }
            if waits || connection.ends {
                return Ok(waits);
            }
        }
    }

    /// Prepares the answer to the first complete request. Returns false if there is none.
    fn take_request(&mut self, connection: &mut Connection) -> bool {
        match request::read(&connection.request) {
            Asked::Incomplete => return false,
            Asked::Wrong(status) => {
                self.served.refused += 1;
                connection.ends = true;
                request::answer(status, false, b"There is only GET /metrics.\n", &mut connection.answer);
            }
            Asked::Page { length_bytes, stays } => {
                connection.request.drain(..length_bytes);
                connection.active_ns = now_ns();
                let stays = stays && self.idle_s != Some(0);
                connection.ends = !stays;
                if let Some(exporter) = self.exporters.get_mut(connection.of) {
                    exporter.tick = self.script.tick_after(exporter.tick);
                    self.text.clear();
                    self.page.write(&self.script, exporter.tick, &mut self.text);
                }
                request::answer("200 OK", stays, &self.text, &mut connection.answer);
                self.served.pages += 1;
                self.served.bytes += connection.answer.len() as u64;
            }
        }
        true
    }
}

impl Connection {
    /// Sends the answer. Returns false if a part of it could not be sent without blocking.
    fn send(&mut self) -> io::Result<bool> {
        while let Some(rest) = self.answer.get(self.sent_bytes..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(length) => self.sent_bytes += length,
                Err(error) if is_for_later(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.answer.clear();
        self.sent_bytes = 0;
        Ok(true)
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAPE: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    fn server() -> ExporterServer {
        open_server(None)
    }

    fn open_server(idle_s: Option<u64>) -> ExporterServer {
        let which = Exporters { first: 0, step: 2, exporters: 3, period: Period::SECOND, idle_s };
        ExporterServer::open(&which).unwrap()
    }

    fn connect(server: &ExporterServer, number: u64) -> TcpStream {
        let stream = TcpStream::connect((address(number), server.port)).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        // With Nagle's algorithm a second segment waits for the acknowledgement of the first.
        stream.set_nodelay(true).unwrap();
        stream
    }

    fn until(server: &mut ExporterServer, done: impl Fn(&ExporterServer) -> bool) {
        for _ in 0..20 {
            if done(server) {
                return;
            }
            server.poll(Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap();
        }
        panic!("timeout: {:?}", server.served);
    }

    fn open(server: &ExporterServer) -> usize {
        server.connections.iter().flatten().count()
    }

    /// Reads one answer: its header, and the body of the length that the header states.
    fn answer(stream: &mut TcpStream) -> (String, String) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        let mut text = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut text).unwrap();
        (head, String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_connection_has_one_page_after_the_other() {
        let mut server = server();
        assert_eq!(server.exporters.len(), 2);
        let mut stream = connect(&server, 2);
        let mut pages = Vec::new();
        for number in 1..=2 {
            // A request may arrive in several segments.
            let (first, second) = SCRAPE.split_at(7);
            stream.write_all(first).unwrap();
            until(&mut server, |server| server.connections.iter().flatten().any(|c| c.request == first));
            stream.write_all(second).unwrap();
            until(&mut server, |server| server.served.pages == number);
            let (head, page) = answer(&mut stream);
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            pages.push(page);
        }
        assert_ne!(pages[0], pages[1], "values change");
        // Two requests at once, then the end of the stream.
        stream.write_all(&SCRAPE.repeat(2)).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        until(&mut server, |server| open(server) == 0);
        assert_ne!(answer(&mut stream), answer(&mut stream));
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        assert_eq!((server.served.pages, server.served.refused), (4, 0));
        assert!(server.served.bytes > 4 * 50 * 10);
    }

    #[test]
    fn a_connection_may_close_after_its_answer() {
        let mut server = open_server(Some(0));
        let mut stream = connect(&server, 0);
        until(&mut server, |server| open(server) == 1);
        server.close_idle();
        stream.write_all(SCRAPE).unwrap();
        until(&mut server, |server| server.served.pages == 1 && open(server) == 0);
        assert!(answer(&mut stream).0.contains("Connection: close\r\n"));
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn an_idle_connection_is_closed() {
        let mut server = open_server(Some(1));
        let mut stream = connect(&server, 0);
        stream.write_all(SCRAPE).unwrap();
        until(&mut server, |server| server.served.pages == 1);
        answer(&mut stream);
        server.close_idle();
        assert_eq!(open(&server), 1);
        polymeter_benches::clock::sleep_until(now_ns() + SECOND_NS * 21 / 20);
        server.close_idle();
        assert_eq!((open(&server), server.exporters[0].connections), (0, 0));
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_malformed_request_and_an_excess_connection_are_refused() {
        let mut server = server();
        let mut streams: Vec<_> = (0..=CONNECTIONS).map(|_| connect(&server, 0)).collect();
        until(&mut server, |server| server.served.refused == 1 && open(server) == CONNECTIONS);
        let refused = streams.pop().unwrap().read(&mut [0]);
        assert_eq!(refused.unwrap(), 0);
        let stream = &mut streams[0];
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        until(&mut server, |server| server.served.refused == 2 && open(server) == CONNECTIONS - 1);
        assert!(answer(stream).0.starts_with("HTTP/1.1 404 "));
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        // Its slot is free again; a late event has no effect.
        let free = server.free[0];
        server.attend(free).unwrap();
        let mut next = connect(&server, 0);
        next.write_all(SCRAPE).unwrap();
        until(&mut server, |server| server.served.pages == 1);
        assert!(answer(&mut next).0.starts_with("HTTP/1.1 200 OK\r\n"));
    }
}
