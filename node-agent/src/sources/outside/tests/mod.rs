//! A device that is asked by HTTP: a small server that answers as the test orders.

mod exporter;
mod http;
mod redfish;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::connection::{Connection, DeviceError, Found, Number};
use super::protocols::connect;
use super::settings::{DeviceMetric, DeviceSettings};

/// What an answer to a path is: all bytes of it, or a flow that does not end by itself.
#[derive(Debug, Clone)]
enum Reply {
    Bytes(Vec<u8>),
    /// The beginning, and then one more byte again and again, until the other side closes the connection.
    Slow(Vec<u8>),
}

type Replies = Arc<Mutex<Vec<(String, Reply)>>>;

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    /// Replies by path; the first one counts.
    replies: Replies,
    /// Heads of all requests, in lower case.
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start() -> Self {
        Self::start_with(None)
    }

    fn start_with(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server =
            Self { address: listener.local_addr().unwrap(), replies: Arc::default(), heads: Arc::default() };
        let (replies, heads) = (Arc::clone(&server.replies), Arc::clone(&server.heads));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (tls, stream) = (tls.clone(), stream.unwrap());
                let (replies, heads) = (Arc::clone(&replies), Arc::clone(&heads));
                std::thread::spawn(move || match tls {
                    Some(tls) => {
                        let connection = ServerConnection::new(tls).unwrap();
                        serve(StreamOwned::new(connection, stream), &replies, &heads);
                    }
                    None => serve(stream, &replies, &heads),
                });
            }
        });
        server
    }

    /// Answers requests of a path with all of these bytes.
    fn answer_raw(&self, path: &str, reply: Reply) {
        let mut replies = self.replies.lock().unwrap();
        replies.retain(|(known, _)| known != path);
        replies.push((path.to_owned(), reply));
    }

    fn answer(&self, path: &str, content_type: &str, body: impl AsRef<[u8]>) {
        self.answer_raw(path, Reply::Bytes(ok(&format!("content-type: {content_type}\r\n"), body.as_ref())));
    }

    fn page(&self, body: impl AsRef<[u8]>) {
        self.answer("/metrics", "text/plain; version=0.0.4", body);
    }

    fn settings(&self, path: &str, addresses: &[&str]) -> DeviceSettings {
        settings(&format!("http://{}{path}", self.address), addresses)
    }

    fn device(&self, path: &str, addresses: &[&str]) -> Asked {
        Asked::new(&self.settings(path, addresses))
    }
}

fn ok(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn serve(stream: impl Read + Write, replies: &Replies, heads: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match reader.read_line(&mut head) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        // The replies to other methods than GET have them before the path.
        let path = head.split(" HTTP").next().unwrap_or_default().trim_start_matches("GET ").to_owned();
        let length = head
            .to_lowercase()
            .split_once("content-length: ")
            .map_or(0, |(_, length)| length.split("\r\n").next().unwrap_or_default().parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        head.push_str(&String::from_utf8_lossy(&body));
        heads.lock().unwrap().push(head.to_lowercase());
        let known =
            replies.lock().unwrap().iter().find(|(known, _)| *known == path).map(|(_, of)| of.clone());
        let missing = || Reply::Bytes(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec());
        let is_sent = match known.unwrap_or_else(missing) {
            Reply::Bytes(bytes) => reader.get_mut().write_all(&bytes),
            Reply::Slow(bytes) => write_slowly(reader.get_mut(), &bytes),
        };
        // An answer without a length ends with the connection.
        if is_sent.is_err() || path.ends_with("/closing") {
            return;
        }
    }
}

fn write_slowly(stream: &mut impl Write, beginning: &[u8]) -> std::io::Result<()> {
    stream.write_all(beginning)?;
    loop {
        stream.write_all(b"x")?;
        stream.flush()?;
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
}

fn settings(url: &str, addresses: &[&str]) -> DeviceSettings {
    let metric = |(number, address): (usize, &&str)| {
        DeviceMetric::new(MetricName::new(format!("m{number}")).unwrap(), (*address).to_owned())
    };
    DeviceSettings {
        name: "a".try_into().unwrap(),
        word: "a".to_owned(),
        url: url.parse().unwrap(),
        credentials: None,
        node: None,
        nodes: BTreeMap::new(),
        job_label: None,
        // A machine under load answers in time.
        timeout: Period::MINUTE,
        metrics: addresses.iter().enumerate().map(metric).collect(),
    }
}

fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A device under test.
#[derive(Debug)]
struct Asked {
    connection: Box<dyn Connection>,
    metrics: Vec<DeviceMetric>,
}

impl Asked {
    fn new(settings: &DeviceSettings) -> Self {
        let connection = connect(settings, Path::new("/")).unwrap();
        Self { connection, metrics: settings.metrics.clone() }
    }

    fn find(&mut self) -> Result<Vec<Found>, DeviceError> {
        self.connection.find(&self.metrics)
    }

    fn read(&mut self, found: &[Found]) -> Result<Vec<Option<f64>>, DeviceError> {
        let wanted: Vec<&str> = found.iter().map(|found| &*found.address).collect();
        let mut numbers = vec![None; wanted.len()];
        self.connection.read(&wanted, &mut numbers)?;
        Ok(numbers.into_iter().map(|number| number.map(Number::to_f64)).collect())
    }

    /// Labels of found values, as `key=value,...`.
    fn labels(found: &[Found]) -> Vec<String> {
        let text = |found: &Found| {
            found.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
        };
        found.iter().map(text).collect()
    }
}
