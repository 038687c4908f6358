//! Answers to requests that the HTTP library cannot parse, or whose head is too large. It answers them
//! itself, with a status and nothing else; the client gets a problem as for every other error.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::http::StatusCode;
use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::answer::Problem;
use crate::limits;

/// Stream of a connection, on which the library's own answers are replaced.
#[derive(Debug)]
pub(crate) struct ProblemStream<S> {
    stream: S,
    /// Rest of an answer that is being written in place of the library's.
    answer: Option<Bytes>,
}

impl<S> ProblemStream<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self { stream, answer: None }
    }
}

/// Length of the library's answer: a status line, the length 0 and the date.
const OWN_BYTES: usize = 256;

/// Returns the problem in place of an answer of the library; none for other bytes. Every other error has a
/// type.
fn problem_for(bytes: &[u8]) -> Option<Problem> {
    let head = std::str::from_utf8(bytes.get(..bytes.len().min(OWN_BYTES))?).ok()?;
    let (status, rest) =
        head.strip_prefix("HTTP/1.").and_then(|rest| rest.split_once(' '))?.1.split_once(' ')?;
    let is_own = bytes.len() <= OWN_BYTES && rest.ends_with("\r\n\r\n") && !rest.contains("content-type");
    let (status, code, detail) = match status {
        "400" => (StatusCode::BAD_REQUEST, "malformed", "this is no valid request of HTTP/1.1".to_owned()),
        "414" => (
            StatusCode::URI_TOO_LONG,
            "too_large",
            "the address is too long; ask for fewer series".to_owned(),
        ),
        "431" => {
            let (bytes, headers) = (limits::HEAD_BYTES, limits::HEADERS);
            let detail = format!("the head of a request has at most {bytes} bytes and {headers} headers");
            (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too_large", detail)
        }
        _ => return None,
    };
    is_own.then(|| Problem::new(status, code, detail))
}

impl<S: AsyncWrite + Unpin> ProblemStream<S> {
    /// Writes the rest of the answer in place of `own`.
    fn write_answer(&mut self, context: &mut Context<'_>, own: &[u8]) -> Poll<io::Result<usize>> {
        while let Some(answer) = self.answer.as_mut().filter(|answer| !answer.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(context, answer))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => answer.advance(written),
            }
        }
        self.answer = None;
        Poll::Ready(Ok(own.len()))
    }

    /// Tells whether `bytes` are an answer of the library. Prepares the one in its place.
    fn replaces(&mut self, bytes: &[u8]) -> bool {
        if self.answer.is_none() {
            self.answer = problem_for(bytes).map(|problem| problem.last_answer().into());
        }
        self.answer.is_some()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ProblemStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ProblemStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.replaces(bytes) {
            return self.write_answer(context, bytes);
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // The library's answer has no body, thus it is one part.
        if let [head] = parts
            && self.replaces(head)
        {
            return self.write_answer(context, head);
        }
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const OWN: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\ndate: Tue, 24 Nov 2026 11:00:00 GMT\r\n\r\n";

    /// Returns what a client receives that reads a few bytes at a time.
    async fn received(parts: &[&[u8]]) -> String {
        let (stream, mut client) = tokio::io::duplex(7);
        let mut stream = ProblemStream::new(stream);
        let write = async {
            for part in parts {
                stream.write_all(part).await.unwrap();
            }
            drop(stream);
        };
        let mut text = String::new();
        let (_, read) = tokio::join!(write, client.read_to_string(&mut text));
        read.unwrap();
        text
    }

    #[tokio::test]
    async fn answers_of_the_library_become_problems() {
        let text = received(&[OWN]).await;
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Type: application/problem+json\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!((body["status"].as_u64(), body["code"].as_str()), (Some(431), Some("too_large")));
        for status in ["400 Bad Request", "414 URI Too Long"] {
            let text =
                received(&[format!("HTTP/1.0 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()]).await;
            assert!(text.contains("application/problem+json"), "{text}");
        }
    }

    #[tokio::test]
    async fn other_bytes_are_sent_as_they_are() {
        for text in [
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 is a text of an answer",
            "HTTP/1.",
            "\u{e9}",
        ] {
            assert_eq!(received(&[text.as_bytes(), b"more"]).await, format!("{text}more"));
        }
    }
}
