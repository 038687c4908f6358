//! Connections to an agent or a collector. Everything that is read and written on one has a deadline, which a
//! peer that sends or takes a byte at a time does not move.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use polymeter_service::clock;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// A connection with a deadline.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    /// Time on the monotonic clock.
    until_ns: u64,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Connecting must end within `timeout`, the reads and writes within another one.
    pub fn unix(path: &Path, timeout: Duration) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // A listener that accepts nothing would keep connect(2) waiting.
        set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self::new(Socket::Unix(socket.into()), timeout))
    }

    /// Connecting must end within `timeout`, the reads and writes within another one.
    pub fn tcp(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        // Each query is one short segment, and its answer is waited for.
        stream.set_nodelay(true)?;
        Ok(Self::new(Socket::Tcp(stream), timeout))
    }

    fn new(socket: Socket, timeout: Duration) -> Self {
        let mut stream = Self { socket, until_ns: 0 };
        stream.set_timeout(timeout);
        stream
    }

    /// Sets the time within which all reads and writes from now on must end.
    pub fn set_timeout(&mut self, timeout: Duration) {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.until_ns = clock::monotonic_ns().saturating_add(timeout_ns);
    }

    fn left(&self) -> io::Result<Duration> {
        match self.until_ns.saturating_sub(clock::monotonic_ns()) {
            0 => Err(ErrorKind::TimedOut.into()),
            left_ns => Ok(Duration::from_nanos(left_ns)),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = Some(self.left()?);
        match &mut self.socket {
            Socket::Unix(stream) => stream.set_read_timeout(left).and_then(|()| stream.read(buffer)),
            Socket::Tcp(stream) => stream.set_read_timeout(left).and_then(|()| stream.read(buffer)),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = Some(self.left()?);
        match &mut self.socket {
            Socket::Unix(stream) => stream.set_write_timeout(left).and_then(|()| stream.write(bytes)),
            Socket::Tcp(stream) => stream.set_write_timeout(left).and_then(|()| stream.write(bytes)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn read_line(stream: &mut impl BufRead, limit: u64) -> io::Result<String> {
    let mut line = String::new();
    stream.take(limit).read_line(&mut line)?;
    if line.ends_with('\n') {
        Ok(line)
    } else if line.len() as u64 == limit {
        Err(io::Error::other(format!("the answer has more than {limit} bytes")))
    } else {
        Err(io::Error::new(ErrorKind::UnexpectedEof, "the connection was closed without an answer"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// A timeout that a peer with a byte each millisecond exceeds.
    const TIMEOUT: Duration = Duration::from_millis(100);

    /// Sends a byte at a time until the other side closes the connection.
    fn drip(mut stream: impl Write) {
        while stream.write_all(b"x").is_ok() {
            clock::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_peer_that_sends_slowly_does_not_move_the_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let (unix, tcp) = (UnixListener::bind(&path).unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = tcp.local_addr().unwrap();
        let of_unix = thread::spawn(move || drip(unix.accept().unwrap().0));
        let of_tcp = thread::spawn(move || drip(tcp.accept().unwrap().0));
        for stream in [Stream::unix(&path, TIMEOUT).unwrap(), Stream::tcp(address, TIMEOUT).unwrap()] {
            let error = read_line(&mut BufReader::new(stream), u64::MAX).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{error}");
        }
        of_unix.join().unwrap();
        of_tcp.join().unwrap();
    }

    #[test]
    fn a_peer_that_takes_nothing_does_not_move_the_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut connected = Vec::new();
        // Nobody accepts: at last the queue of the listener is full.
        let error = loop {
            match Stream::unix(&path, TIMEOUT) {
                Ok(stream) => connected.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let stream = connected.first_mut().unwrap();
        stream.set_timeout(TIMEOUT);
        let error = stream.write_all(&vec![0; 64 << 20]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{error}");
        drop(listener);
    }

    #[test]
    fn a_line_is_bounded() {
        assert_eq!(read_line(&mut &b"abc\nd"[..], 4).unwrap(), "abc\n");
        assert!(read_line(&mut &b"abcd\n"[..], 4).unwrap_err().to_string().contains("more than 4 bytes"));
        assert_eq!(read_line(&mut &b"abc"[..], 4).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
