//! Connections to a collector.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connection to a collector.
#[derive(Debug)]
pub enum Stream {
    /// On this machine.
    Unix(UnixStream),
    /// To another machine.
    Tcp(TcpStream),
}

impl Stream {
    /// Sets the maximum time for which a read waits.
    pub fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(Some(timeout)),
            Self::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }

    /// Sets the maximum time for which a write waits.
    pub fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_write_timeout(Some(timeout)),
            Self::Tcp(stream) => {
                // Each query is one short segment, and its answer is waited for.
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(timeout))
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
