//! Lines of a client, with limits on length and time.

use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use polymeter_proto::limits::QUERY_BYTES;
use polymeter_service::clock::Clock;

use super::stream::ClientStream;
use crate::limits;

/// Reason for the end of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoLine {
    /// The client has disconnected, or the session was closed.
    Closed,
    TimedOut,
    TooLong,
}

#[derive(Debug)]
pub(super) struct QueryLines {
    stream: ClientStream,
    clock: Clock,
    timeout: Duration,
    /// Received bytes after the last line.
    buffer: Vec<u8>,
    /// Bytes in the buffer that contain no newline.
    searched: usize,
}

impl QueryLines {
    /// `received` was read from `stream` before.
    pub(super) const fn new(
        stream: ClientStream,
        received: Vec<u8>,
        clock: Clock,
        timeout: Duration,
    ) -> Self {
        Self { stream, clock, timeout, buffer: received, searched: 0 }
    }

    /// Excludes the newline.
    pub(super) fn next(&mut self) -> Result<Vec<u8>, NoLine> {
        let deadline = self.clock.now().since_start + self.timeout;
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(position) = rest.iter().position(|byte| *byte == b'\n') {
                let after = self.buffer.split_off(self.searched + position + 1);
                let mut line = std::mem::replace(&mut self.buffer, after);
                line.pop();
                self.searched = 0;
                return Ok(line);
            }
            self.searched = self.buffer.len();
            if self.buffer.len() >= QUERY_BYTES {
                return Err(NoLine::TooLong);
            }
            let left = deadline.saturating_sub(self.clock.now().since_start);
            if left.is_zero() {
                return Err(NoLine::TimedOut);
            }
            self.receive(left)?;
        }
    }

    fn receive(&mut self, timeout: Duration) -> Result<(), NoLine> {
        self.stream.set_read_timeout(timeout).map_err(|_closed| NoLine::Closed)?;
        let mut chunk = vec![0; limits::READ_CHUNK_BYTES];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(NoLine::Closed),
            Ok(count) => {
                self.buffer.extend(chunk.into_iter().take(count));
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if is_stalled(&error) => Err(NoLine::TimedOut),
            Err(_) => Err(NoLine::Closed),
        }
    }
}

/// A read or a write made no progress in time.
pub(super) fn is_stalled(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn lines_of(stream: UnixStream, received: &[u8]) -> QueryLines {
        let timeout = limits::READ_IDLE_TIMEOUT;
        QueryLines::new(ClientStream::Unix(stream), received.to_vec(), Clock::start(), timeout)
    }

    #[test]
    fn lines_are_separated_wherever_reads_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut lines = lines_of(ours, b"one\ntw");
        assert_eq!(lines.next(), Ok(b"one".to_vec()));
        theirs.write_all(b"o\n\nthree").unwrap();
        assert_eq!(lines.next(), Ok(b"two".to_vec()));
        assert_eq!(lines.next(), Ok(Vec::new()));
        drop(theirs);
        assert_eq!(lines.next(), Err(NoLine::Closed));
    }

    #[test]
    fn a_long_line_is_refused() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut lines = lines_of(ours, b"");
        let writer = std::thread::spawn(move || theirs.write_all(&vec![b'x'; QUERY_BYTES + 1]).is_ok());
        assert_eq!(lines.next(), Err(NoLine::TooLong));
        drop(lines);
        writer.join().unwrap();
    }
}
