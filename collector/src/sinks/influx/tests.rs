//! Tests of a receiver of InfluxDB's line protocol: an HTTP server that refuses first, and datagrams.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use polymeter_service::clock::Clock;
use polymeter_store::StoreUrl;

use super::PROTOCOL;
use crate::sinks::outbound::tests::fixture::{BEGIN_MS, accept, times};
use crate::sinks::outbound::{Counters, Credentials, DropReason, OutboundConfig, OutboundSink, ReceiverUrl};
use crate::sinks::sink::Sink;
use crate::sinks::testing::TestSession;

struct Request {
    /// In lower case.
    head: String,
    body: String,
}

/// Gives `replies`, and then 204.
fn server(replies: &'static [&'static str]) -> (u16, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (requests, received) = sync_channel(1000);
    std::thread::spawn(move || {
        let mut replies = replies.iter();
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            while let Some(request) = read_request(&mut reader) {
                let status = replies.next().unwrap_or(&"204 No Content");
                if status.starts_with("204") && requests.send(request).is_err() {
                    return;
                }
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                reader.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    (port, received)
}

/// None at the end of the connection.
fn read_request(reader: &mut BufReader<impl Read>) -> Option<Request> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.to_lowercase().lines().find_map(|line| {
        line.strip_prefix("content-length: ").map(|length| length.parse::<usize>().unwrap())
    });
    let mut body = vec![0; length.unwrap()];
    reader.read_exact(&mut body).ok()?;
    Some(Request { head, body: String::from_utf8(body).unwrap() })
}

struct Fixture {
    directory: tempfile::TempDir,
    config: OutboundConfig,
    counters: Counters,
}

impl Fixture {
    fn new(url: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = OutboundConfig {
            spool: directory.path().join("spool"),
            batch_samples: 50,
            batch_wait: Duration::from_millis(10),
            shards: 1,
            ..OutboundConfig::new(&PROTOCOL, ReceiverUrl::http_or_udp(url).unwrap())
        };
        Self { directory, config, counters: Counters::default() }
    }

    fn sink(&self) -> OutboundSink {
        let store = StoreUrl::sqlite(self.directory.path().join("store.db"));
        OutboundSink::with_counters(self.config.clone(), store, self.counters.clone(), Clock::start())
    }

    /// Sends 300 samples of a series, whose values begin anew with every 30.
    fn send(&self) -> OutboundSink {
        let mut sink = self.sink();
        let mut session = TestSession::new(1, &["a=\u{fc} b"]);
        for at in 0..10 {
            accept(&mut sink, session.frame(times(BEGIN_MS + at * 30, 30)));
        }
        while self.counters.sent.get() < 301 {
            sink.tick();
            std::thread::park_timeout(Duration::from_millis(1));
        }
        sink
    }
}

fn expected() -> BTreeSet<String> {
    let head = "polymeter_cpu_usage_total,device=a\\=\u{fc}\\ b,jobid=42,node=n1";
    (0..300).map(|at| format!("{head} value={}.0 {}000000", at % 30, BEGIN_MS + at)).collect()
}

/// Those of the counter; others are facts of the job.
fn samples(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with("polymeter_cpu")).map(str::to_owned)
}

#[test]
fn all_samples_arrive_as_lines_in_spite_of_failures() {
    let (port, received) = server(&["503 X", "204 No Content", "500 X", "429 X"]);
    let mut fixture = Fixture::new(&format!("http://127.0.0.1:{port}/api/v2/write?org=o&bucket=b"));
    let token = fixture.directory.path().join("token");
    fs::write(&token, "s3cret\n").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    fixture.config.credentials = Some(Credentials::Token { scheme: "Token", token_file: token });
    let sink = fixture.send();
    let (mut found, mut facts) = (Vec::new(), 0);
    for request in received.try_iter() {
        let head = request.head.to_lowercase();
        assert!(head.starts_with("post /api/v2/write?org=o&bucket=b http/1.1"), "{head}");
        assert!(head.contains("content-type: text/plain") && !head.contains("content-encoding"), "{head}");
        assert!(request.head.contains("Token s3cret"), "{head}");
        facts += request.body.matches("polymeter_job_info,jobid=42,node=n1 value=1.0 ").count();
        found.extend(samples(&request.body));
    }
    assert_eq!(found.len(), 300);
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected());
    assert!(facts > 0 && fixture.counters.retries.get() >= 3, "{facts}");
    drop(sink);
}

#[test]
fn values_that_are_no_numbers_are_counted() {
    let (port, received) = server(&[]);
    let fixture = Fixture::new(&format!("http://127.0.0.1:{port}/write?db=x"));
    let mut sink = fixture.sink();
    let mut frame = TestSession::new(1, &["a"]).frame(times(BEGIN_MS, 3));
    frame.samples[0].values[1] = f64::NAN.to_bits();
    accept(&mut sink, frame);
    while fixture.counters.dropped(DropReason::NotANumber) == 0 {
        sink.tick();
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let body: String = received.try_iter().map(|request| request.body).collect();
    assert_eq!(samples(&body).count(), 2, "{body}");
    assert_eq!(fixture.counters.dropped(DropReason::Refused), 0);
}

#[test]
fn datagrams_have_the_same_lines() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let fixture = Fixture::new(&format!("udp://{}", socket.local_addr().unwrap()));
    let sink = fixture.send();
    let mut found = BTreeSet::new();
    let mut datagram = vec![0; 65_536];
    while found.len() < 300 {
        let length = socket.recv(&mut datagram).unwrap();
        assert!(length <= 1400, "{length}");
        found.extend(samples(std::str::from_utf8(&datagram[..length]).unwrap()));
    }
    assert_eq!(found, expected());
    drop(sink);
}
