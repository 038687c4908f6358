//! A client of streams of server-sent events.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::reading::connect_as;

/// Points, each with its time and value, by the id of their series.
pub(crate) type Points = BTreeMap<i64, Vec<(i64, Value)>>;

pub(crate) struct Client {
    stream: UnixStream,
    pub(crate) status: u16,
    /// Bytes of the body in chunks that are not complete yet.
    raw: Vec<u8>,
    /// Text of events that are not complete yet.
    text: String,
    pub(crate) is_complete: bool,
}

impl Client {
    /// Waits for the head of the answer.
    pub(crate) fn open(uid: u32, socket: &Path, target: &str) -> Self {
        Self::with_header(uid, socket, target, "")
    }

    pub(crate) fn with_header(uid: u32, socket: &Path, target: &str, header: &str) -> Self {
        let mut stream = connect_as(uid, socket);
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut client = Self { stream, status: 0, raw: Vec::new(), text: String::new(), is_complete: false };
        let end = loop {
            if let Some(end) = client.raw.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end;
            }
            assert!(client.receive(), "no head: {:?}", client.raw);
        };
        let head = String::from_utf8(client.raw.drain(..end + 4).collect()).unwrap().to_ascii_lowercase();
        client.status = head.split(' ').nth(1).unwrap().parse().unwrap();
        if client.status == 200 {
            for line in ["content-type: text/event-stream\r\n", "x-accel-buffering: no\r\n", "no-store"] {
                assert!(head.contains(line), "{head}");
            }
        }
        client
    }

    /// Returns false at the end of the connection.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 64 * 1024];
        let length = self.stream.read(&mut bytes).unwrap();
        self.raw.extend_from_slice(&bytes[..length]);
        length > 0
    }

    fn decode(&mut self) {
        while let Some(end) = self.raw.windows(2).position(|bytes| bytes == b"\r\n") {
            let length = usize::from_str_radix(std::str::from_utf8(&self.raw[..end]).unwrap(), 16).unwrap();
            if self.raw.len() < end + 4 + length {
                return;
            }
            self.text.push_str(std::str::from_utf8(&self.raw[end + 2..end + 2 + length]).unwrap());
            self.raw.drain(..end + 4 + length);
            self.is_complete |= length == 0;
        }
    }

    /// None at the end of the stream, or of the connection.
    pub(crate) fn next(&mut self) -> Option<(String, Value)> {
        loop {
            self.decode();
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let Some(named) = event.strip_prefix("event: ") else {
                    assert!(event == ":" || event == "retry: 5000", "{event:?}");
                    continue;
                };
                let (name, data) = named.split_once("\ndata: ").unwrap();
                assert!(!data.contains(['\n', '\r']), "{event:?}");
                return Some((name.to_owned(), serde_json::from_str(data).unwrap()));
            }
            if self.is_complete || !self.receive() {
                return None;
            }
        }
    }

    /// Data of the next event of a name. Others are skipped.
    pub(crate) fn next_of(&mut self, name: &str) -> Value {
        let mut skipped = Vec::new();
        while let Some((next, data)) = self.next() {
            if next == name {
                return data;
            }
            skipped.push((next, data));
        }
        panic!("the stream ended without `{name}`: {skipped:?}");
    }

    /// Takes the next `count` points, by series, and the names of the other events among them.
    pub(crate) fn points(&mut self, count: usize) -> (Points, Vec<String>) {
        let (mut points, mut others, mut found): (BTreeMap<_, Vec<_>>, _, _) =
            (BTreeMap::new(), Vec::new(), 0);
        while found < count {
            let (name, data) = self.next().expect("more points");
            if name != "values" {
                others.push(name);
                continue;
            }
            let [ids, times, values] =
                ["id", "time_us", "value"].map(|column| data[column].as_array().unwrap().clone());
            assert!(ids.len() == times.len() && ids.len() == values.len(), "{data}");
            for ((id, time_us), value) in ids.iter().zip(times).zip(values) {
                points.entry(id.as_i64().unwrap()).or_default().push((time_us.as_i64().unwrap(), value));
                found += 1;
            }
        }
        (points, others)
    }
}
