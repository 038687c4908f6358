//! The agent's side of watching: its lines, one after the other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use polymeter_agent::control::{Answer, Verb, Watch};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::control::unreachable;
use crate::failure::Failure;

/// Bytes of one line: several times what the agent lets wait for one watcher.
const LINE_BYTES: u64 = 16 * 1024 * 1024;

/// How long nothing may come; the agent says every second how it goes.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the agent says, and how it said it.
#[derive(Debug)]
pub(super) struct Line {
    /// The line as it came, without its end.
    pub(super) text: String,
    /// What it means.
    pub(super) answer: Answer,
}

/// A connection on which the agent shows what it samples.
#[derive(Debug)]
pub(super) struct Lines {
    socket: PathBuf,
    stream: BufReader<UnixStream>,
    /// What came of a line whose end has not.
    begun: Vec<u8>,
}

impl Lines {
    /// Asks the agent at `socket` to show what is wanted.
    pub(super) async fn ask(socket: &Path, watch: Watch) -> Result<Self, Failure> {
        let failed = |error| unreachable(socket, &error);
        let mut line = serde_json::to_vec(&Verb::Watch(watch))
            .map_err(|error| Failure::refused("cannot ask", &error))?;
        line.push(b'\n');
        let mut stream = UnixStream::connect(socket).await.map_err(failed)?;
        stream.write_all(&line).await.map_err(failed)?;
        Ok(Self { socket: socket.to_owned(), stream: BufReader::new(stream), begun: Vec::new() })
    }

    /// The next line. What has come of it is kept when the caller waits for something else meanwhile.
    pub(super) async fn next(&mut self) -> Result<Line, Failure> {
        let room = LINE_BYTES.saturating_sub(self.begun.len() as u64);
        let mut limited = (&mut self.stream).take(room);
        let read = tokio::time::timeout(PATIENCE, limited.read_until(b'\n', &mut self.begun)).await;
        match read {
            Err(_) => return Err(self.gone("it says nothing any more")),
            Ok(Err(error)) => return Err(self.gone(&error.to_string())),
            Ok(Ok(_)) if self.begun.last() != Some(&b'\n') => {
                return Err(self.gone("it ended the connection"));
            }
            Ok(Ok(_)) => {}
        }
        let mut bytes = std::mem::take(&mut self.begun);
        bytes.pop();
        let unreadable = |error: &(dyn std::error::Error + 'static)| {
            Failure::refused("the agent's answer cannot be read; is it of another version?", error)
        };
        let text = String::from_utf8(bytes).map_err(|error| unreadable(&error))?;
        let answer = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
        Ok(Line { text, answer })
    }

    fn gone(&self, why: &str) -> Failure {
        Failure::Unreachable(format!("the agent at {} went away: {why}", self.socket.display()))
    }
}
