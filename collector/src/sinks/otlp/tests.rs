//! Tests of a receiver of OTLP: one that accepts, refuses, hangs, and takes a part.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::GzDecoder;
use prost::Message;

use super::messages::{ExportRequest, KeyValue, NumberDataPoint, PointList, SumKind};
use super::{GZIP, PLAIN};
use crate::sinks::outbound::request::{RequestBuilder, WriteRequest, encode_labels};
use crate::sinks::outbound::tests::fixture::{BEGIN_MS, Fixture, accept, offer};
use crate::sinks::outbound::tests::server::{Reply, Request, server};
use crate::sinks::outbound::{DropReason, Protocol, ReceiverUrl, STALE};
use crate::sinks::sink::Sink;
use crate::sinks::testing::TestSession;

const ACCEPTED: Reply = Reply::Answer("200 OK\r\nContent-Type: application/x-protobuf", b"");

fn text(bytes: &Bytes) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn pairs(attributes: &[KeyValue]) -> Vec<String> {
    let value = |attribute: &KeyValue| attribute.value.clone().unwrap().string_value.unwrap();
    attributes.iter().map(|of| format!("{}={}", text(&of.key), text(&value(of)))).collect()
}

/// Points by the name of their metric and its unit, and whether it is a sum.
type Points = BTreeMap<(String, String, bool), Vec<NumberDataPoint>>;

fn decode(request: &Request) -> Points {
    let mut body = Vec::new();
    if request.head.to_lowercase().contains("content-encoding: gzip") {
        GzDecoder::new(&request.body[..]).read_to_end(&mut body).unwrap();
    } else {
        body.clone_from(&request.body);
    }
    let mut points = Points::new();
    for resource in ExportRequest::decode(&body[..]).unwrap().resource_metrics {
        let attributes = pairs(&resource.resource.unwrap().attributes);
        assert_eq!(attributes, ["service.name=polymeter", "service.instance.id=n1", "host.name=n1"]);
        for metric in resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
            let is_sum = metric.sum.is_some();
            let bytes = metric.gauge.or(metric.sum).unwrap();
            let kind = SumKind::decode(&bytes[..]).unwrap();
            assert_eq!((kind.is_monotonic, kind.aggregation_temporality == 2), (is_sum, is_sum));
            let found = PointList::decode(bytes).unwrap().data_points;
            points.entry((text(&metric.name), text(&metric.unit), is_sum)).or_default().extend(found);
        }
    }
    points
}

fn fixture(
    protocol: &'static Protocol,
    (port, requests): (u16, Receiver<Request>),
) -> Fixture<Receiver<Request>> {
    Fixture::with(requests, protocol, url(port))
}

fn url(port: u16) -> ReceiverUrl {
    format!("http://127.0.0.1:{port}/v1/metrics").parse().unwrap()
}

/// What 300 samples of [`offer`] must become: begin, time and value of each.
fn expected() -> Vec<(i64, i64, f64)> {
    let of = |at: i64| {
        // The first value is the base; later ones begin behind the sample before.
        let begin = if at < 30 { 0 } else { at / 30 * 30 - 1 };
        (BEGIN_MS + begin, BEGIN_MS + at, f64::from(i32::try_from(at % 30).unwrap()))
    };
    (0..300).map(of).collect()
}

fn usage(points: &Points) -> Vec<(i64, i64, f64)> {
    let key = ("polymeter.cpu.usage".to_owned(), "{count}".to_owned(), true);
    let ms = |ns: u64| i64::try_from(ns / 1_000_000).unwrap();
    let points = points.get(&key).into_iter().flatten();
    let points = points.inspect(|point| assert_eq!(pairs(&point.attributes), ["device=a", "jobid=42"]));
    points
        .map(|point| (ms(point.start_time_unix_nano), ms(point.time_unix_nano), point.as_double.unwrap()))
        .collect()
}

#[test]
fn all_samples_arrive_as_points_in_spite_of_failures() {
    const REPLIES: &[Reply] = &[
        Reply::Answer("503 X\r\nRetry-After: 0", b""),
        ACCEPTED,
        Reply::Answer("429 X\r\nRetry-After: 0", b""),
        Reply::Answer("502 X", b""),
        Reply::Answer("504 X", b""),
    ];
    for protocol in [&GZIP, &PLAIN] {
        let fixture = fixture(protocol, server(REPLIES, ACCEPTED));
        let mut sink = fixture.sink();
        offer(&mut sink, &["a"]);
        fixture.drive_until(&mut sink, |counters| counters.sent.get() >= 301 && counters.pending.get() == 0);
        let (mut found, mut facts) = (Vec::new(), 0);
        for request in fixture.receiver.try_iter() {
            let head = request.head.to_lowercase();
            assert!(head.starts_with("post /v1/metrics http/1.1"), "{head}");
            assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");
            assert_eq!(head.contains("content-encoding: gzip"), protocol == &GZIP, "{head}");
            let points = decode(&request);
            found.extend(usage(&points));
            for point in
                points.get(&("polymeter.job.info".to_owned(), String::new(), false)).into_iter().flatten()
            {
                assert_eq!(
                    (point.as_double, pairs(&point.attributes)),
                    (Some(1.0), vec!["jobid=42".to_owned()])
                );
                facts += 1;
            }
        }
        assert_eq!(found, expected());
        assert!(facts > 0 && fixture.counters.retries.get() >= 4, "{facts}");
        assert_eq!(fixture.counters.dropped(DropReason::Refused), 0);
    }
}

#[test]
fn a_killed_collector_sends_the_rest_from_its_spool() {
    // Nobody listens yet.
    let mut fixture = Fixture::with((), &GZIP, url(1));
    let mut sink = fixture.sink();
    offer(&mut sink, &["a"]);
    sink.tick();
    fixture.drive_until(&mut sink, |counters| counters.retries.get() > 0 && counters.pending.get() >= 300);
    sink.kill();
    let (port, received) = server(&[], ACCEPTED);
    fixture.config.url = url(port);
    let mut sink = fixture.sink();
    let mut found = Vec::new();
    while found.len() < 250 {
        sink.tick();
        found.extend(
            received.recv_timeout(Duration::from_millis(1)).iter().map(decode).flat_map(|p| usage(&p)),
        );
    }
    // Those of the last batch were in memory, and are not in the store of this test.
    assert_eq!(found, expected()[..found.len()]);
}

#[test]
fn refusals_are_final_and_counted() {
    // A status in protobuf, and one that others repeat.
    const STATUS: &[u8] = b"\x08\x03\x12\x07too bad";
    for reply in [
        Reply::Answer("422 X\r\nContent-Type: application/x-protobuf", STATUS),
        Reply::Answer("500 X", b"broken"),
    ] {
        let fixture = fixture(&GZIP, server(&[], reply));
        let mut sink = fixture.sink();
        offer(&mut sink, &["a"]);
        fixture.drive_until(&mut sink, |counters| counters.dropped(DropReason::Refused) >= 301);
        assert_eq!((fixture.counters.retries.get(), fixture.counters.sent.get()), (0, 0));
    }
}

#[test]
fn a_partial_success_counts_the_rejected_points() {
    const PARTIAL: &[u8] = b"\x0a\x0b\x08\x03\x12\x07too old";
    const REPLIES: &[Reply] = &[Reply::Answer("200 OK\r\nContent-Type: application/x-protobuf", PARTIAL)];
    let fixture = fixture(&GZIP, server(REPLIES, ACCEPTED));
    let mut sink = fixture.sink();
    offer(&mut sink, &["a"]);
    fixture.drive_until(&mut sink, |counters| counters.sent.get() >= 298 && counters.pending.get() == 0);
    assert_eq!((fixture.counters.dropped(DropReason::Refused), fixture.counters.retries.get()), (3, 0));
    let points: usize = fixture.receiver.try_iter().map(|request| usage(&decode(&request)).len()).sum();
    assert_eq!(points, 300, "nothing is repeated");
}

#[test]
fn a_receiver_that_hangs_costs_no_sample() {
    let mut fixture = fixture(&GZIP, server(&[Reply::Hang, Reply::Hang], ACCEPTED));
    fixture.config.timeout = Duration::from_millis(50);
    let mut sink = fixture.sink();
    offer(&mut sink, &["a"]);
    let mut found = Vec::new();
    while found.len() < 300 {
        sink.tick();
        found.extend(
            fixture
                .receiver
                .recv_timeout(Duration::from_millis(1))
                .iter()
                .map(decode)
                .flat_map(|p| usage(&p)),
        );
    }
    assert!(fixture.counters.retries.get() >= 2);
    // A request whose answer came too late on a loaded machine arrives twice.
    found.sort_by(|a, b| a.partial_cmp(b).unwrap());
    found.dedup();
    assert_eq!(found, expected());
}

#[test]
fn windows_are_gauges_and_ends_have_no_value() {
    let fixture = fixture(&PLAIN, server(&[], ACCEPTED));
    let mut sink = fixture.sink();
    let mut session = TestSession::new(1, &["a"]);
    let mut frame = session.frame((0..100).map(|at| BEGIN_MS * 1000 + at * 100).collect());
    frame.job_ends.push((Arc::clone(&session.job), BEGIN_MS * 1000 + 10_000));
    accept(&mut sink, frame);
    fixture.drive_until(&mut sink, |counters| counters.sent.get() >= 35 && counters.pending.get() == 0);
    let mut points = Points::new();
    for request in fixture.receiver.try_iter() {
        decode(&request).into_iter().for_each(|(key, more)| points.entry(key).or_default().extend(more));
    }
    for (end, is_sum, last) in [("", true, 99.0), (".min", false, 90.0), (".max", false, 99.0)] {
        let key = (format!("polymeter.cpu.usage{end}"), "{count}".to_owned(), is_sum);
        let (end, values) = points[&key].split_last().unwrap();
        assert_eq!((values.len(), values[9].as_double), (10, Some(last)));
        assert!(values.iter().all(|point| point.flags == 0 && (point.start_time_unix_nano > 0) == is_sum));
        assert_eq!((end.flags, end.as_double), (1, None), "no recorded value");
        assert!(end.time_unix_nano > values[9].time_unix_nano);
    }
}

/// Compares with the bytes that protoc's encoder writes for the same message.
#[test]
fn body_is_that_of_the_protocol() {
    let labels = |name: &'static str, unit: &'static str, is_sum: bool| {
        let mut labels = vec![("__name__", name), ("__unit__", unit), ("jobid", "7"), ("node", "n1")];
        if is_sum {
            labels.insert(1, ("__type__", "counter"));
        }
        encode_labels(labels)
    };
    let mut builder = RequestBuilder::default();
    builder.add(&labels("a", "s", true), &[(2, 1.5_f64.to_bits()), (3, STALE)], Some(1));
    builder.add(&labels("b", "By", false), &[(1_767_225_600_000, 0)], None);
    let mut request = ExportRequest::from(WriteRequest::decode(builder.body()).unwrap());
    let mut scope = request.resource_metrics[0].scope_metrics[0].scope.clone().unwrap();
    assert_eq!((scope.name.as_str(), scope.version.as_str()), ("polymeter", env!("CARGO_PKG_VERSION")));
    scope.version = "V".to_owned();
    request.resource_metrics[0].scope_metrics[0].scope = Some(scope);
    let expected =
        b"\x0a\xec\x01\x0aM\x0a\x1b\x0a\x0cservice.name\x12\x0b\x0a\x09polymeter\x0a\x1b\x0a\x13servic\
        e.instance.id\x12\x04\x0a\x02n1\x0a\x11\x0a\x09host.name\x12\x04\x0a\x02n1\x12\x9a\x01\x0a\
        \x0e\x0a\x09polymeter\x12\x01V\x12[\x0a\x01a\x1a\x01s:S\x0a)\x11@B\x0f\x00\x00\x00\x00\x00\
        \x19\x80\x84\x1e\x00\x00\x00\x00\x00!\x00\x00\x00\x00\x00\x00\xf8?:\x0c\x0a\x05jobid\x12\x03\
        \x0a\x017\x0a\"\x11@B\x0f\x00\x00\x00\x00\x00\x19\xc0\xc6-\x00\x00\x00\x00\x00:\x0c\x0a\x05j\
        obid\x12\x03\x0a\x017@\x01\x10\x02\x18\x01\x12+\x0a\x01b\x1a\x02By*\"\x0a\x20\x19\x00\x00\
        \xfa\xedQr\x86\x18!\x00\x00\x00\x00\x00\x00\x00\x00:\x0c\x0a\x05jobid\x12\x03\x0a\x017";
    assert_eq!(request.encode_to_vec(), expected);
}
