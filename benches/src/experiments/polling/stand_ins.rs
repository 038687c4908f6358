//! Stand-ins for devices in a process of their own: an agent of SNMP, and exporters, each at all addresses of
//! the loopback device.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use polymeter_benches::clock::{now_ns, process_cpu_ns, sleep_until};
use polymeter_benches::table::{say, to_f64};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use serde::{Deserialize, Serialize};

/// Objects of each device.
pub(crate) const OBJECTS: u32 = 4;

/// Address of the first device, 127.64.0.1; the others follow it.
const FIRST_ADDRESS: u32 = 0x7f40_0001;

/// Time between two looks at the clock, which show how late threads of this machine run.
const TIMER_NS: u64 = 1_000_000;

/// Lines of a page with one name.
const SERIES_OF_NAME: u32 = 50;

/// Sockets that are looked at together.
const EVENTS: usize = 64;

/// Stack of a thread that serves a connection.
const STACK_BYTES: usize = 128 * 1024;

pub(crate) fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_ADDRESS.saturating_add(number))
}

/// Names of the series of a page.
pub(crate) fn names(series: u32) -> impl Iterator<Item = String> {
    (0..series.div_ceil(SERIES_OF_NAME)).map(|name| format!("stand_in_{name}_bytes"))
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StandIns {
    /// Agents of SNMP. Each has a socket: an answer must come from the address that was asked.
    pub(crate) devices: u32,
    /// Series of an exporter, if there are no agents of SNMP.
    pub(crate) series: u32,
}

/// Work of the process since the last question.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Stood {
    /// Since its start.
    pub(crate) answered: u64,
    pub(crate) cpu_s: f64,
    /// Longest time that the agents of SNMP were busy between two looks for requests.
    pub(crate) longest_ns: u64,
    pub(crate) timer_ns: u64,
}

#[derive(Debug, Default)]
struct Counts {
    answered: AtomicU64,
    longest_ns: AtomicU64,
    timer_ns: AtomicU64,
}

impl StandIns {
    /// Prints the port, and answers requests. For each line on stdin it prints its counts; it exits at the
    /// end of stdin.
    pub(crate) fn run(&self) -> Result<(), Box<dyn Error>> {
        polymeter_agent::kernel::raise_descriptor_limit();
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        let series = self.series;
        if self.devices > 0 {
            let (sockets, port) = sockets(self.devices)?;
            say(&port.to_string());
            std::thread::spawn(move || answer_requests(&sockets, &counted));
        } else {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            say(&listener.local_addr()?.port().to_string());
            std::thread::spawn(move || serve_pages(&listener, series, &counted));
        }
        let timed = Arc::clone(&counts);
        std::thread::spawn(move || {
            loop {
                let due_ns = now_ns() + TIMER_NS;
                sleep_until(due_ns);
                timed.timer_ns.fetch_max(now_ns().saturating_sub(due_ns), Relaxed);
            }
        });
        for line in io::stdin().lock().lines() {
            line?;
            let stood = Stood {
                answered: counts.answered.load(Relaxed),
                cpu_s: to_f64(process_cpu_ns()) / 1e9,
                longest_ns: counts.longest_ns.swap(0, Relaxed),
                timer_ns: counts.timer_ns.swap(0, Relaxed),
            };
            say(&serde_json::to_string(&stood)?);
        }
        Ok(())
    }
}

struct Sockets {
    all: Vec<UdpSocket>,
    epoll: OwnedFd,
}

/// Sockets at the addresses of the devices, all with the port that is returned.
fn sockets(devices: u32) -> Result<(Sockets, u16), Box<dyn Error>> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let (mut all, mut port) = (Vec::new(), 0);
    for number in 0..devices {
        let socket = UdpSocket::bind((address(number), port))?;
        socket.set_nonblocking(true)?;
        port = socket.local_addr()?.port();
        epoll::add(&epoll, &socket, EventData::new_u64(number.into()), EventFlags::IN)?;
        all.push(socket);
    }
    Ok((Sockets { all, epoll }, port))
}

fn answer_requests(sockets: &Sockets, counts: &Counts) {
    let mut buffer = [0; 2048];
    let mut value = 0;
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        // It waits without a limit, and may be interrupted.
        epoll::wait(&sockets.epoll, spare_capacity(&mut events), None).ok();
        let begin_ns = now_ns();
        for event in &events {
            let socket = usize::try_from(event.data.u64()).ok().and_then(|index| sockets.all.get(index));
            if let Some(socket) = socket {
                value = (value + 1) % 100;
                answer_one(socket, value, &mut buffer, counts);
            }
        }
        counts.longest_ns.fetch_max(now_ns() - begin_ns, Relaxed);
    }
}

fn answer_one(socket: &UdpSocket, value: u8, buffer: &mut [u8], counts: &Counts) {
    let Ok((length, peer)) = socket.recv_from(buffer) else { return };
    let request = buffer.get(..length).unwrap_or_default();
    // An agent whose socket has no room loses the answer, as on a network.
    if let Some(answer) = response(request, value)
        && socket.send_to(&answer, peer).is_ok()
    {
        counts.answered.fetch_add(1, Relaxed);
    }
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const GAUGE: u8 = 0x42;
const RESPONSE: u8 = 0xa2;

/// Answer to a request for objects, each of which has this value.
fn response(request: &[u8], value: u8) -> Option<Vec<u8>> {
    let (_, message, _) = element(request)?;
    let (_, _, rest) = element(message)?;
    let (_, community, pdu) = element(rest)?;
    let (_, pdu, _) = element(pdu)?;
    let (_, id, pdu) = element(pdu)?;
    let (_, _, pdu) = element(pdu)?;
    let (_, _, pdu) = element(pdu)?;
    let (_, mut asked, _) = element(pdu)?;
    let mut objects = Vec::new();
    while !asked.is_empty() {
        let (_, object, behind) = element(asked)?;
        let (kind, name, _) = element(object)?;
        objects.extend(encoded(SEQUENCE, &[encoded(kind, name), encoded(GAUGE, &[100 + value])].concat()));
        asked = behind;
    }
    let pdu =
        [encoded(INTEGER, id), encoded(INTEGER, &[0]), encoded(INTEGER, &[0]), encoded(SEQUENCE, &objects)];
    let parts = [encoded(INTEGER, &[1]), encoded(0x04, community), encoded(RESPONSE, &pdu.concat())];
    Some(encoded(SEQUENCE, &parts.concat()))
}

/// Type and content of an element of BER, and what is behind it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (kind, length, rest) = match bytes {
        [kind, 0x81, length, rest @ ..] => (kind, usize::from(*length), rest),
        [kind, 0x82, high, low, rest @ ..] => (kind, usize::from(u16::from_be_bytes([*high, *low])), rest),
        [kind, length, rest @ ..] => (kind, usize::from(*length), rest),
        _ => return None,
    };
    let (content, behind) = rest.split_at_checked(length)?;
    Some((*kind, content, behind))
}

fn encoded(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    match u8::try_from(content.len()) {
        Ok(length @ ..0x80) => bytes.push(length),
        Ok(length) => bytes.extend([0x81, length]),
        Err(_longer) => {
            bytes.push(0x82);
            bytes.extend(u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    bytes.extend(content);
    bytes
}

fn serve_pages(listener: &TcpListener, series: u32, counts: &Arc<Counts>) {
    for stream in listener.incoming().flatten() {
        let counts = Arc::clone(counts);
        let serve = move || {
            // It ends with the connection.
            serve(stream, series, &counts).ok();
        };
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(serve).ok();
    }
}

fn serve(stream: TcpStream, series: u32, counts: &Counts) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(2048, stream);
    let mut line = String::new();
    loop {
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
        }
        let page = page(series, counts.answered.load(Relaxed));
        let length = page.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {length}\r\n\r\n"
        );
        reader.get_mut().write_all(&[head.as_bytes(), page.as_bytes()].concat())?;
        counts.answered.fetch_add(1, Relaxed);
    }
}

/// Every tenth value differs from page to page, as on an idle node.
fn page(series: u32, number: u64) -> String {
    let mut page = String::new();
    let mut left = series;
    for name in names(series) {
        writeln!(page, "# HELP {name} Bytes of a stand-in.\n# TYPE {name} gauge").ok();
        for index in 0..left.min(SERIES_OF_NAME) {
            let value = if index % 10 == 0 { number } else { u64::from(index) * 4096 };
            writeln!(page, "{name}{{device=\"sd{index}\",mountpoint=\"/data/{index}\"}} {value}").ok();
        }
        left = left.saturating_sub(SERIES_OF_NAME);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_series() {
        let page = page(120, 7);
        assert_eq!(page.lines().filter(|line| !line.starts_with('#')).count(), 120);
        assert_eq!(names(120).count(), 3);
    }

    #[test]
    fn a_request_is_answered_with_its_objects() {
        let object = encoded(SEQUENCE, &[encoded(6, &[0x2b, 6, 1]), encoded(5, &[])].concat());
        let objects = encoded(SEQUENCE, &[object.clone(), object].concat());
        let pdu = [encoded(INTEGER, &[77]), encoded(INTEGER, &[0]), encoded(INTEGER, &[0]), objects].concat();
        let message = [encoded(INTEGER, &[1]), encoded(4, b"public"), encoded(0xa0, &pdu)].concat();
        let answer = response(&encoded(SEQUENCE, &message), 5).unwrap();
        let of_answer = [encoded(6, &[0x2b, 6, 1]), encoded(GAUGE, &[105])].concat();
        let expected = encoded(SEQUENCE, &of_answer);
        assert!(answer.ends_with(&[expected.clone(), expected].concat()) && answer.contains(&77));
        assert_eq!(response(&message[..9], 5), None);
    }
}
