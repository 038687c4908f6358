//! A page over HTTP, from the daemons of this machine and others.

use std::io::{self, Read, Write};

use polymeter_client::connection::stream::Stream;

const ANSWER_BYTES: u64 = 16 * 1024 * 1024;

pub(crate) struct Page {
    pub(crate) body: Vec<u8>,
    /// The status is 200.
    pub(crate) is_ok: bool,
    pub(crate) status_line: String,
}

/// HTTP/1.0 ends the body with the connection.
pub(crate) fn get(mut stream: Stream, path: &str) -> io::Result<Page> {
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES).read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let (head, body) = end.and_then(|end| answer.split_at_checked(end + 4)).unwrap_or_default();
    let status_line = String::from_utf8_lossy(head).lines().next().unwrap_or_default().to_owned();
    let mut words = status_line.split(' ');
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/"));
    if !is_http {
        return Err(io::Error::other("the peer does not answer by HTTP; check the port"));
    }
    let is_ok = words.next() == Some("200");
    Ok(Page { body: body.to_vec(), is_ok, status_line })
}
