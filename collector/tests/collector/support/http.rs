//! A client of the HTTP API.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use super::reading::connect_as;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Status line and headers, in lower case.
    pub(crate) head: String,
    pub(crate) bytes: Vec<u8>,
}

impl Response {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Each header ends with CR and LF. The body is a JSON text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) headers: &'a str,
    pub(crate) body: Option<&'a str>,
}

impl<'a> Request<'a> {
    pub(crate) const fn get(target: &'a str) -> Self {
        Self { method: "GET", target, headers: "", body: None }
    }

    pub(crate) fn send(&self, stream: &mut impl Write) {
        let Self { method, target, headers, body } = self;
        let body = body.map(|body| {
            format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        });
        let rest = body.unwrap_or_else(|| "\r\n".to_owned());
        let request =
            format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}{rest}");
        send(stream, &request);
    }

    pub(crate) fn response(&self, uid: u32, socket: &Path) -> Response {
        let mut stream: UnixStream = connect_as(uid, socket);
        self.send(&mut stream);
        receive(&mut stream)
    }
}

pub(crate) fn send(stream: &mut impl Write, request: &str) {
    match stream.write_all(request.as_bytes()) {
        // A server that refuses a connection may answer and close it before it reads anything.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.unwrap(),
    }
}

/// Decodes a body in chunks. The last chunk must be there.
fn decoded(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|bytes| bytes == b"\r\n").expect("a chunk");
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return body;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 4 + length..];
    }
}

pub(crate) fn receive(stream: &mut impl Read) -> Response {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        // A server that refuses a request may close the connection before it has read the body.
        Err(error) if error.kind() == ErrorKind::ConnectionReset && !bytes.is_empty() => {}
        read => drop(read.unwrap()),
    }
    let end = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = &bytes[end + 4..];
    let bytes = if head.contains("transfer-encoding: chunked") { decoded(body) } else { body.to_vec() };
    Response { status, head, bytes }
}
