//! Stream of an agent's answers to a `watch` request.

use std::path::{Path, PathBuf};
use std::time::Duration;

use polymeter_proto::control::{Request, WatchRequest};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::connection::agent::{request_line, unreachable, unreadable};
use crate::failure::Failure;
use crate::local::WatchLine;

/// Several times the agent's limit on the data that wait for a client.
const LINE_BYTES: u64 = 16 * 1024 * 1024;

/// The agent reports its progress every second.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct WatchStream {
    socket: PathBuf,
    stream: BufReader<UnixStream>,
    partial: Vec<u8>,
    /// Time at which the next line must be complete.
    due: Instant,
}

impl WatchStream {
    pub(super) async fn open(socket: &Path, watch: WatchRequest) -> Result<Self, Failure> {
        let failed = |error| unreachable(socket, &error);
        let line = request_line(&Request::Watch(watch))?;
        let mut stream = UnixStream::connect(socket).await.map_err(failed)?;
        stream.write_all(&line).await.map_err(failed)?;
        let (stream, partial, due) = (BufReader::new(stream), Vec::new(), Instant::now() + TIMEOUT);
        Ok(Self { socket: socket.to_owned(), stream, partial, due })
    }

    /// Cancel-safe: a partial line and its deadline are kept.
    pub(super) async fn next(&mut self) -> Result<WatchLine, Failure> {
        let room = LINE_BYTES.saturating_sub(self.partial.len() as u64);
        let mut limited = (&mut self.stream).take(room);
        match tokio::time::timeout_at(self.due, limited.read_until(b'\n', &mut self.partial)).await {
            Err(_) => return Err(self.lost("no data in time")),
            Ok(Err(error)) => return Err(self.lost(&error.to_string())),
            Ok(Ok(_)) if self.partial.last() != Some(&b'\n') => {
                return Err(self.lost("the agent closed the connection"));
            }
            Ok(Ok(_)) => {}
        }
        self.due = Instant::now() + TIMEOUT;
        let mut bytes = std::mem::take(&mut self.partial);
        bytes.pop();
        let text = String::from_utf8(bytes).map_err(|error| unreadable(&error))?;
        let answer = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
        Ok(WatchLine { text, answer })
    }

    fn lost(&self, cause: &str) -> Failure {
        Failure::Unreachable(format!(
            "cannot continue to watch the agent at {}: {cause}",
            self.socket.display()
        ))
    }
}
