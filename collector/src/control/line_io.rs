//! Lines over a stream, with limits on length and time.

use std::io;

use polymeter_proto::control::Refusal;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::limits;

/// Reads the next line without its newline, of at most `limit` bytes; none at the end of the stream. Refuses
/// a line that is too long, too late or incomplete.
pub(super) async fn read(
    stream: &mut (impl AsyncBufRead + Unpin),
    limit: u64,
) -> io::Result<Result<Option<Vec<u8>>, Refusal>> {
    let mut line = Vec::new();
    let mut limited = stream.take(limit);
    let Ok(read) = timeout(limits::CONTROL_TIMEOUT, limited.read_until(b'\n', &mut line)).await else {
        return Ok(Err(Refusal::new(
            "timeout",
            None,
            "no complete request within 30 s; end each request with a newline",
        )));
    };
    let read = read? as u64;
    Ok(match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) if read == limit => {
            Err(Refusal::new("too_long", None, &format!("the request is longer than {limit} bytes")))
        }
        Some(_) => {
            Err(Refusal::new("incomplete", None, "the line has no newline; every request ends with one"))
        }
    })
}

/// A client that does not read the line for too long ends the connection.
pub(super) async fn write(stream: &mut (impl AsyncWrite + Unpin), line: &[u8]) -> io::Result<()> {
    timeout(limits::CONTROL_TIMEOUT, stream.write_all(line)).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_long_and_incomplete_lines() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut stream = &b"one\n\nthree is too long\n"[..];
            assert_eq!(read(&mut stream, 8).await.unwrap(), Ok(Some(b"one".to_vec())));
            assert_eq!(read(&mut stream, 8).await.unwrap(), Ok(Some(Vec::new())));
            assert_eq!(read(&mut stream, 8).await.unwrap().unwrap_err().code, "too_long");
            let mut stream = &b"half"[..];
            assert_eq!(read(&mut stream, 8).await.unwrap().unwrap_err().code, "incomplete");
            assert_eq!(read(&mut stream, 8).await.unwrap(), Ok(None));
        });
    }
}
