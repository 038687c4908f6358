//! A receiver of remote_write for tests: a small HTTP server that answers as the test orders.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::super::request::{DecodedSeries, Sample, decode_v1, decompress};
use crate::sinks::remote_write::tests::decode_v2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// Stores the samples, as a receiver of 1.0 that ignores the content type.
    V1,
    /// Stores the samples of 2.0 and reports their number.
    V2,
    /// Stores the samples in any order, and each once, as VictoriaMetrics.
    Unordered,
    /// [`Self::Unordered`] for 2.0.
    UnorderedV2,
    Status(u16, &'static str),
    /// Stores the samples, and closes the connection within the answer.
    Cut,
    Close,
    Hang,
}

pub(super) type Name = Vec<(String, String)>;

#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Replies to the next requests.
    pub(super) replies: VecDeque<Reply>,
    /// Reply to other requests.
    pub(super) usual: Option<Reply>,
    /// Series in the order of the arrival of their samples.
    pub(super) samples: BTreeMap<Name, Vec<Sample>>,
    /// Heads of all requests, in lower case.
    pub(super) heads: Vec<String>,
    pub(super) connections: usize,
    open: Vec<TcpStream>,
}

#[derive(Debug, Clone)]
pub(in crate::sinks) struct Receiver {
    pub(super) address: SocketAddr,
    contents: Arc<(Mutex<Contents>, Condvar)>,
}

impl Receiver {
    /// Gives `replies`, and then the usual one.
    pub(super) fn start(replies: impl IntoIterator<Item = Reply>, usual: Reply) -> Self {
        Self::start_with(replies, usual, None)
    }

    /// Accepts TLS only.
    pub(super) fn start_tls(usual: Reply, tls: ServerConfig) -> Self {
        Self::start_with([], usual, Some(Arc::new(tls)))
    }

    fn start_with(
        replies: impl IntoIterator<Item = Reply>,
        usual: Reply,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let contents =
            Contents { replies: replies.into_iter().collect(), usual: Some(usual), ..Contents::default() };
        let receiver = Self {
            address: listener.local_addr().unwrap(),
            contents: Arc::new((Mutex::new(contents), Condvar::new())),
        };
        let serving = receiver.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (serving, tls, stream) = (serving.clone(), tls.clone(), stream.unwrap());
                std::thread::spawn(move || {
                    let connection = serving.add_connection(&stream);
                    match tls {
                        Some(tls) => {
                            serving.serve(StreamOwned::new(ServerConnection::new(tls).unwrap(), stream))
                        }
                        None => serving.serve(stream),
                    }
                    connection.shutdown(Shutdown::Both).unwrap_or_default();
                });
            }
        });
        receiver
    }

    pub(super) fn wait_for<T>(&self, mut is_done: impl FnMut(&mut Contents) -> Option<T>) -> T {
        let (contents, changed) = &*self.contents;
        let mut contents = contents.lock().unwrap();
        loop {
            if let Some(done) = is_done(&mut contents) {
                return done;
            }
            contents = changed.wait(contents).unwrap();
        }
    }

    pub(super) fn restart(&self) {
        let mut contents = self.contents.0.lock().unwrap();
        contents.samples.clear();
        contents.open.drain(..).for_each(|stream| stream.shutdown(Shutdown::Both).unwrap_or_default());
    }

    /// Keeps the connection for [`Self::restart`]. Returns it, to be shut down at its end.
    fn add_connection(&self, stream: &TcpStream) -> TcpStream {
        let mut contents = self.contents.0.lock().unwrap();
        contents.connections += 1;
        contents.open.push(stream.try_clone().unwrap());
        stream.try_clone().unwrap()
    }

    fn serve(&self, stream: impl Read + Write) {
        let mut reader = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                match reader.read_line(&mut head) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
            }
            let head = head.to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            let mut body = vec![0; length.parse().unwrap()];
            if reader.read_exact(&mut body).is_err() {
                return;
            }
            if !self.answer(reader.get_mut(), &head, &body) {
                return;
            }
        }
    }

    fn answer(&self, stream: &mut (impl Read + Write), head: &str, body: &[u8]) -> bool {
        let is_v2 = head.contains("proto=io.prometheus.write.v2.request");
        assert!(
            head.contains("content-encoding: snappy") && head.starts_with("post /write http/1.1"),
            "{head}"
        );
        assert!(head.contains(if is_v2 { "version: 2.0.0" } else { "version: 0.1.0" }), "{head}");
        let (contents, changed) = &*self.contents;
        let mut contents = contents.lock().unwrap();
        contents.heads.push(head.to_owned());
        let reply = contents.replies.pop_front().or_else(|| contents.usual.clone()).unwrap();
        let (status, more, text) = match reply {
            Reply::V1 | Reply::Unordered | Reply::Cut if is_v2 => {
                ("204 No Content".to_owned(), String::new(), String::new())
            }
            Reply::Unordered | Reply::UnorderedV2 => {
                let written = store_unordered(&mut contents, parse(is_v2, body));
                ("200 OK".to_owned(), written_header(written), String::new())
            }
            Reply::V1 | Reply::V2 | Reply::Cut => match store(&mut contents, &parse(is_v2, body)) {
                Ok(written) if reply == Reply::V2 => {
                    ("200 OK".to_owned(), written_header(written), String::new())
                }
                Ok(_) => ("204 No Content".to_owned(), String::new(), String::new()),
                Err(text) => ("400 Bad Request".to_owned(), String::new(), text),
            },
            Reply::Status(status, more) => {
                (format!("{status} X"), more.to_owned(), "ordered by the test".to_owned())
            }
            Reply::Close => return false,
            Reply::Hang => {
                changed.notify_all();
                drop(contents);
                // Until the client gives up.
                let mut byte = [0];
                stream.read_exact(&mut byte).ok();
                return false;
            }
        };
        changed.notify_all();
        drop(contents);
        if reply == Reply::Cut {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-le").unwrap();
            return false;
        }
        let answer = format!("HTTP/1.1 {status}\r\n{more}Content-Length: {}\r\n\r\n{text}", text.len());
        stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).is_ok()
    }
}

fn parse(is_v2: bool, body: &[u8]) -> Vec<DecodedSeries> {
    let body = decompress(body).unwrap();
    let decoded = if is_v2 { decode_v2(&body) } else { decode_v1(&body) };
    decoded.unwrap()
}

fn written_header(written: usize) -> String {
    format!("X-Prometheus-Remote-Write-Samples-Written: {written}\r\n")
}

fn store_unordered(contents: &mut Contents, request: Vec<(Name, Vec<Sample>)>) -> usize {
    let mut written = 0;
    for (name, samples) in request {
        written += samples.len();
        let series = contents.samples.entry(name).or_default();
        series.extend(samples);
        series.sort_unstable();
        series.dedup();
    }
    written
}

/// Stores all samples of a request, or none as Prometheus does, if one is not newer than the last one of its
/// series. The last one may be repeated.
fn store(contents: &mut Contents, request: &[(Name, Vec<Sample>)]) -> Result<usize, String> {
    let before = contents.samples.clone();
    let mut written = 0;
    for (name, samples) in request {
        assert!(name.is_sorted(), "{name:?}");
        let series = contents.samples.entry(name.clone()).or_default();
        for sample in samples {
            match series.last() {
                Some(last) if last == sample => {}
                Some(last) if last.0 >= sample.0 => {
                    contents.samples = before;
                    return Err("out of order sample".to_owned());
                }
                _ => series.push(*sample),
            }
            written += 1;
        }
    }
    Ok(written)
}
