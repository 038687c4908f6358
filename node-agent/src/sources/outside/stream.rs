//! Streams of lines `name value [time]` by TCP, as wattmeters send them by themselves.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use super::connection::{Connection, DeviceError, Found, Number};
use super::lines::{LINE_BYTES, Value, Values};
use super::named_lines::{find_names, offer_names};
use super::settings::{DeviceMetric, DeviceUrl};
use crate::clock;

/// Bytes that are taken at once.
const PART_BYTES: usize = 4096;

/// Bytes that are taken in one read, which a device that sends without end reaches: 50 lines a second for
/// minutes.
const READ_BYTES: usize = 1024 * 1024;

/// Longest time without a read, after which a new connection is made: what waits in the old one is of unknown
/// age.
const UNREAD_NS: u64 = 5_000_000_000;

/// Time for which the names of a device are collected.
const LISTEN: Duration = Duration::from_secs(1);

const NOTHING_YET: [ErrorKind; 3] = [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted];

#[derive(Debug)]
struct Arrived {
    value: Value,
    at_ns: u64,
}

#[derive(Debug)]
pub(super) struct LineStream {
    url: DeviceUrl,
    timeout: Duration,
    stream: Option<TcpStream>,
    /// Time of the last read on the monotonic clock.
    read_ns: u64,
    /// Beginning of a line whose end has not arrived.
    rest: Vec<u8>,
    /// Newest values that were not read yet.
    arrived: BTreeMap<String, Arrived>,
    /// Times of the last measurements, by name, where lines state them.
    last: BTreeMap<String, f64>,
}

impl LineStream {
    pub(super) fn new(url: &DeviceUrl, timeout: Duration) -> Self {
        let (url, arrived, last) = (url.clone(), BTreeMap::new(), BTreeMap::new());
        Self { url, timeout, stream: None, read_ns: 0, rest: Vec::new(), arrived, last }
    }

    fn connect(&mut self) -> Result<(), DeviceError> {
        let unread_ns = clock::monotonic_ns().saturating_sub(self.read_ns);
        if self.stream.is_none() || unread_ns > UNREAD_NS {
            self.rest.clear();
            let stream = TcpStream::connect_timeout(&address(&self.url, None)?, self.timeout)?;
            self.stream = Some(stream);
        }
        self.read_ns = clock::monotonic_ns();
        Ok(())
    }

    /// Takes lines until `is_enough`, or until the time is over.
    fn receive(&mut self, within: Duration, is_enough: impl Fn(&Self) -> bool) -> Result<(), DeviceError> {
        self.connect()?;
        let until_ns = clock::monotonic_ns().saturating_add(nanoseconds(within));
        let mut taken = 0;
        loop {
            // What waits is taken first, so that the values are the newest.
            let part = self.receive_part(Duration::ZERO)?;
            taken += part;
            if part > 0 && taken < READ_BYTES {
                continue;
            }
            let left_ns = until_ns.saturating_sub(clock::monotonic_ns());
            if is_enough(self) || left_ns == 0 || taken >= READ_BYTES {
                return Ok(());
            }
            taken += self.receive_part(Duration::from_nanos(left_ns))?;
            self.read_ns = clock::monotonic_ns();
        }
    }

    /// Takes what arrives next within a time. Returns the number of bytes, 0 for none.
    fn receive_part(&mut self, within: Duration) -> Result<usize, DeviceError> {
        let Some(stream) = &mut self.stream else { return Err(DeviceError::Closed) };
        stream.set_nonblocking(within.is_zero())?;
        if !within.is_zero() {
            stream.set_read_timeout(Some(within))?;
        }
        let mut part = [0; PART_BYTES];
        match stream.read(&mut part) {
            Ok(0) => Err(DeviceError::Closed),
            Ok(bytes) => {
                self.take(part.get(..bytes).unwrap_or_default());
                Ok(bytes)
            }
            Err(error) if NOTHING_YET.contains(&error.kind()) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self, part: &[u8]) {
        self.rest.extend_from_slice(part);
        let mut values = Values::default();
        let whole = values.take_lines(&self.rest);
        self.rest.drain(..whole);
        if self.rest.len() > LINE_BYTES {
            // The rest of a line that is too long begins no other one: two words make no value.
            self.rest.truncate(LINE_BYTES + 1);
        }
        let at_ns = clock::monotonic_ns();
        for (name, value) in values.by_name {
            let is_known = value.time.is_some_and(|time| self.last.get(&name) == Some(&time));
            if !is_known && (self.arrived.len() < super::VALUES_MAX || self.arrived.contains_key(&name)) {
                self.arrived.insert(name, Arrived { value, at_ns });
            }
        }
    }

    fn has_all(&self, wanted: &[&str]) -> bool {
        wanted.iter().all(|address| self.arrived.contains_key(*address))
    }

    fn listen(&mut self) -> Result<(), DeviceError> {
        self.receive(LISTEN.min(self.timeout), |_| false)?;
        if self.arrived.is_empty() { Err(DeviceError::Timeout) } else { Ok(()) }
    }
}

impl Connection for LineStream {
    fn find(&mut self, metrics: &[DeviceMetric]) -> Result<Vec<Found>, DeviceError> {
        self.listen()?;
        Ok(find_names(metrics, self.arrived.keys()))
    }

    /// Waits for the next measurements of the wanted values. One that arrived before the last timeout is too
    /// old.
    fn read(&mut self, wanted: &[&str], numbers: &mut [Option<Number>]) -> Result<(), DeviceError> {
        let oldest_ns = clock::monotonic_ns().saturating_sub(nanoseconds(self.timeout));
        self.arrived.retain(|_, arrived| arrived.at_ns >= oldest_ns);
        self.receive(self.timeout, |stream| stream.has_all(wanted))?;
        let mut is_any = wanted.is_empty();
        for (address, number) in wanted.iter().zip(numbers) {
            let Some(Arrived { value, .. }) = self.arrived.remove(*address) else { continue };
            if let Some(time) = value.time {
                self.last.insert((*address).to_owned(), time);
            }
            *number = Some(Number::Double(value.number));
            is_any = true;
        }
        if is_any { Ok(()) } else { Err(DeviceError::Timeout) }
    }

    fn offers(&mut self) -> Result<Vec<DeviceMetric>, DeviceError> {
        self.listen()?;
        Ok(offer_names(self.arrived.keys()))
    }

    fn is_pushed(&self) -> bool {
        true
    }

    fn drain(&mut self) {
        // A failure is that of the next read, too.
        self.receive(Duration::ZERO, |_| true).ok();
    }
}

/// Finds the first address of a device.
///
/// # Errors
///
/// Fails if its name is unknown, or if neither the URL nor `usual_port` states a port.
pub(super) fn address(url: &DeviceUrl, usual_port: Option<u16>) -> Result<SocketAddr, DeviceError> {
    let port = url.port.or(usual_port).ok_or_else(|| std::io::Error::other("the URL has no port"))?;
    let mut addresses = (url.host.as_str(), port).to_socket_addrs()?;
    addresses.next().ok_or_else(|| std::io::Error::other("its name has no address").into())
}

/// Socket that sends to this address, and receives from it only.
pub(super) fn connect_datagrams(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
    };
    socket.connect(address)?;
    Ok(socket)
}

/// Receives one datagram; none if no one arrives until this time of the monotonic clock.
pub(super) fn receive_until<'b>(
    socket: &UdpSocket,
    buffer: &'b mut [u8],
    until_ns: u64,
) -> std::io::Result<Option<&'b [u8]>> {
    loop {
        let left_ns = until_ns.saturating_sub(clock::monotonic_ns());
        if left_ns == 0 {
            return Ok(None);
        }
        socket.set_read_timeout(Some(Duration::from_nanos(left_ns)))?;
        match socket.recv(buffer) {
            Ok(bytes) => return Ok(buffer.get(..bytes)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    fn connected() -> (LineStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        let mut stream = LineStream::new(&url, Duration::from_secs(60));
        stream.connect().unwrap();
        (stream, listener.accept().unwrap().0)
    }

    fn read(stream: &mut LineStream, name: &str) -> Option<f64> {
        stream.arrived.values_mut().for_each(|arrived| arrived.at_ns = clock::monotonic_ns());
        let metric =
            DeviceMetric::new(polymeter_proto::name::MetricName::new("power").unwrap(), name.to_owned());
        let names = [name.to_owned()];
        let found = find_names(&[metric], names.iter());
        let mut numbers = [None];
        stream.read(&[&*found[0].address], &mut numbers).ok()?;
        numbers[0].map(Number::to_f64)
    }

    #[test]
    fn a_read_has_the_newest_line_and_each_line_once() {
        let (mut stream, mut meter) = connected();
        meter.write_all(b"n1 1\nn1 2\nn2 7\nn1 3\nn1 ").unwrap();
        // Loopback delivers in order: all of it has arrived when the last line has.
        stream.receive(Duration::from_secs(60), |stream| !stream.rest.is_empty()).unwrap();
        assert_eq!(read(&mut stream, "n1"), Some(3.0));
        meter.write_all(b"4\n").unwrap();
        assert_eq!(read(&mut stream, "n1"), Some(4.0), "it waits for the next line");
        assert_eq!(read(&mut stream, "n2"), Some(7.0));
        meter.write_all(b"n3 5 100\n").unwrap();
        assert_eq!(read(&mut stream, "n3"), Some(5.0));
        meter.write_all(b"n3 6 100\nn3 7 101\n").unwrap();
        assert_eq!(read(&mut stream, "n3"), Some(7.0));
        drop(meter);
        assert_eq!(read(&mut stream, "n3"), None);
    }

    #[test]
    fn what_nobody_has_read_for_long_is_left_unread() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        let mut stream = LineStream::new(&url, Duration::from_secs(60));
        stream.connect().unwrap();
        let mut former = listener.accept().unwrap().0;
        former.write_all(b"n1 1\n").unwrap();
        stream.read_ns = 0;
        let meter = std::thread::spawn(move || {
            let mut meter = listener.accept().unwrap().0;
            meter.write_all(b"n1 2\n").unwrap();
            meter
        });
        assert_eq!(read(&mut stream, "n1"), Some(2.0));
        drop(meter.join());
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let (mut stream, _meter) = connected();
        for _ in 0..1000 {
            stream.take(&[b'x'; PART_BYTES]);
        }
        assert!(stream.rest.len() <= LINE_BYTES + 1);
        stream.take(b" 1\nn1 2\n");
        assert_eq!(stream.arrived.keys().collect::<Vec<_>>(), ["n1"]);
    }
}
