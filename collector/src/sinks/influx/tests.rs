//! Tests of a receiver of InfluxDB's line protocol: an HTTP server that refuses first, and datagrams.

use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;

use super::PROTOCOL;
use crate::sinks::outbound::tests::fixture::{BEGIN_MS, Fixture, accept, offer, times};
use crate::sinks::outbound::tests::server::{Reply, server};
use crate::sinks::outbound::{Credentials, DropReason, OutboundSink, ReceiverUrl};
use crate::sinks::testing::TestSession;

const ACCEPTED: Reply = Reply::Answer("204 No Content", b"");

fn fixture<R>(receiver: R, url: &str) -> Fixture<R> {
    Fixture::with(receiver, &PROTOCOL, ReceiverUrl::http_or_udp(url).unwrap())
}

/// Sends 300 samples of a series.
fn send<R>(fixture: &Fixture<R>) -> OutboundSink {
    let mut sink = fixture.sink();
    offer(&mut sink, &["a=\u{fc} b"]);
    fixture.drive_until(&mut sink, |counters| counters.sent.get() >= 301);
    sink
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
    const REPLIES: &[Reply] =
        &[Reply::Answer("503 X", b""), ACCEPTED, Reply::Answer("500 X", b""), Reply::Answer("429 X", b"")];
    let (port, received) = server(REPLIES, ACCEPTED);
    let mut fixture = fixture(received, &format!("http://127.0.0.1:{port}/api/v2/write?org=o&bucket=b"));
    let token = fixture.directory.path().join("token");
    fs::write(&token, "s3cret\n").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    fixture.config.credentials = Some(Credentials::Token { scheme: "Token", token_file: token });
    let sink = send(&fixture);
    let (mut found, mut facts) = (Vec::new(), 0);
    for request in fixture.receiver.try_iter() {
        let head = request.head.to_lowercase();
        assert!(head.starts_with("post /api/v2/write?org=o&bucket=b http/1.1"), "{head}");
        assert!(head.contains("content-type: text/plain") && !head.contains("content-encoding"), "{head}");
        assert!(request.head.contains("Token s3cret"), "{head}");
        let body = String::from_utf8(request.body).unwrap();
        facts += body.matches("polymeter_job_info,jobid=42,node=n1 value=1.0 ").count();
        found.extend(samples(&body));
    }
    assert_eq!(found.len(), 300);
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected());
    assert!(facts > 0 && fixture.counters.retries.get() >= 3, "{facts}");
    drop(sink);
}

#[test]
fn values_that_are_no_numbers_are_counted() {
    let (port, received) = server(&[], ACCEPTED);
    let fixture = fixture(received, &format!("http://127.0.0.1:{port}/write?db=x"));
    let mut sink = fixture.sink();
    let mut frame = TestSession::new(1, &["a"]).frame(times(BEGIN_MS, 3));
    frame.samples[0].values[1] = f64::NAN.to_bits();
    accept(&mut sink, frame);
    fixture.drive_until(&mut sink, |counters| counters.dropped(DropReason::NotANumber) > 0);
    let body = fixture.receiver.try_iter().flat_map(|request| request.body).collect();
    let body = String::from_utf8(body).unwrap();
    assert_eq!(samples(&body).count(), 2, "{body}");
    assert_eq!(fixture.counters.dropped(DropReason::Refused), 0);
}

#[test]
fn datagrams_have_the_same_lines() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let fixture = fixture((), &format!("udp://{}", socket.local_addr().unwrap()));
    let sink = send(&fixture);
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
