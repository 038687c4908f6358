//! Lines of the control socket, within bounds of length and time.

use std::io;
use std::time::Duration;

use polymeter_proto::control::{Answer, Refusal};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

pub(super) const LINE_BYTES: u64 = 64 * 1024;

/// Longest time without a complete line, and longest time in which answers may remain unread.
const SILENCE: Duration = Duration::from_secs(30);

/// Reads one line. Returns none at the end of the stream. The inner error refuses a line that is too long,
/// too late or incomplete; the outer one is that of the stream.
pub(super) async fn read_line(
    lines: &mut (impl AsyncBufRead + Unpin),
) -> io::Result<Result<Option<Vec<u8>>, Refusal>> {
    let mut line = Vec::new();
    let mut limited = lines.take(LINE_BYTES);
    let Ok(read) = tokio::time::timeout(SILENCE, limited.read_until(b'\n', &mut line)).await else {
        return Ok(Err(Refusal::new(
            "timeout",
            None,
            "no complete request within 30 s; end each request with a newline",
        )));
    };
    let read = read?;
    Ok(match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) if read as u64 == LINE_BYTES => Err(too_long()),
        Some(_) => {
            Err(Refusal::new("incomplete", None, "the line has no newline; every request ends with one"))
        }
    })
}

pub(super) fn too_long() -> Refusal {
    Refusal::new("too_long", None, &format!("the request is longer than {LINE_BYTES} bytes"))
}

pub(super) async fn write_answer(
    write: &mut (impl AsyncWriteExt + Unpin),
    answer: &Answer,
) -> io::Result<()> {
    write_lines(write, &answer.to_line()).await
}

/// Writes lines. Closes the connection of a client that does not read them for too long.
pub(super) async fn write_lines(write: &mut (impl AsyncWriteExt + Unpin), lines: &[u8]) -> io::Result<()> {
    tokio::time::timeout(SILENCE, write.write_all(lines))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
