//! Tests of the collector's own metrics, from the view of a scraper.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use polymeter_collector::Collector;
use polymeter_collector::config::CollectorConfig;
use polymeter_collector::ingest::{OutOfRangePolicy, TimeRange};
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::message::{Lost, SkipReason, ToCollector};

use crate::support::agent::{Agent, shape, values};
use crate::support::openmetrics::{Page, request, scrape};
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

polymeter_test_harness::tests![
    counts_stored_lost_and_refused_data,
    counts_samples_of_a_skewed_clock,
    reports_an_unreachable_store,
    invalid_and_silent_clients_do_not_block_others
];

fn start(environment: &TestEnvironment) -> Collector {
    let config =
        CollectorConfig { metrics_listen: Some("127.0.0.1:0".parse().unwrap()), ..environment.config() };
    Collector::start(&config, &environment.context).unwrap()
}

fn counts_stored_lost_and_refused_data() {
    let environment = TestEnvironment::new(Kind::Sqlite);
    let collector = start(&environment);
    let first = scrape(&collector);
    assert_eq!((first.value("stored_samples_total"), first.value("store_up{writer=\"0\"}")), (0.0, 1.0));
    assert_eq!(first.families["polymeter_collector_commit_duration_seconds"], "histogram");

    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    for seed in 1..=3 {
        let at = now_us() - 10_000_000 + seed * 1_000_000;
        let sequence = agent.frame(&[(&shape(1, None), at, &values(seed).0)], &[], &[]);
        agent.send(sequence);
    }
    agent.wait_until_acknowledged();
    let times = (now_us(), now_us());
    let skipped = ToCollector::Skipped {
        session: SessionId(1),
        first: 4,
        last: 5,
        reason: SkipReason::OutboxFull,
        span_us: times,
        lost: vec![Lost { job: None, source: "stat".try_into().unwrap(), samples: 70 }],
    };
    agent.skip(&skipped);
    agent.send_bytes(b"PLM\x07 a frame of another version");
    agent.send_bytes(b"GET / HTTP/1.1\r\n\r\n");
    wait_until("everything is counted", || {
        let page = scrape(&collector);
        page.value("lost_samples_total{reason=\"outbox_full\"}") == 70.0
            && page.value("refused_messages_total{reason=\"version\"}") == 1.0
            && page.value("refused_messages_total{reason=\"undecodable\"}") == 1.0
    });
    let page = scrape(&collector);
    assert_eq!((page.value("stored_samples_total"), page.value("quarantined_samples_total")), (9.0, 0.0));
    assert_eq!(page.value("stored_frames_total"), 4.0, "the skip counts as one");
    assert!(page.value("received_messages_total") >= 6.0);
    assert!(page.value("received_bytes_total") > 100.0);
    assert!(page.value("sent_messages_total") >= 2.0);
    assert!(page.value("commit_duration_seconds_count{writer=\"0\"}") >= 2.0);
    assert_eq!(page.value("sessions{writer=\"0\"}"), 1.0);
    assert_eq!(
        (page.value("queue_messages{writer=\"0\"}"), page.value("queue_bytes{writer=\"0\"}")),
        (0.0, 0.0)
    );
    for (name, before) in first.samples.iter().filter(|(name, _)| name.contains("_total")) {
        assert!(page.samples[name] >= *before, "{name} decreased");
    }
    // The alert rules use metrics that are there; those of sections that are not configured are not.
    let alerts = include_str!("../../../deploy/prometheus/polymeter-alerts.yml");
    for part in alerts.split("polymeter_collector_").skip(1) {
        let name = part.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_').next().unwrap();
        let family = name.trim_end_matches("_total").trim_end_matches("_bucket");
        let is_configured =
            !["remote_write_", "job_end_", "sink_"].iter().any(|prefix| name.starts_with(prefix));
        let is_there = page.families.contains_key(&format!("polymeter_collector_{family}"));
        assert_eq!(is_there, is_configured, "{name}");
    }
    collector.stop().unwrap();
}

fn counts_samples_of_a_skewed_clock() {
    for (out_of_range, counted) in [
        (OutOfRangePolicy::Reject, "lost_samples_total{reason=\"clock\"}"),
        (OutOfRangePolicy::Quarantine, "quarantined_samples_total"),
    ] {
        let environment = TestEnvironment::new(Kind::Sqlite);
        let clock = TimeRange { out_of_range, ..TimeRange::default() };
        let config = CollectorConfig {
            metrics_listen: Some("127.0.0.1:0".parse().unwrap()),
            clock,
            ..environment.config()
        };
        let collector = Collector::start(&config, &environment.context).unwrap();
        let mut agent = Agent::to(&environment.context, &collector, "n1", 3);
        let in_two_days = now_us() + 2 * 86_400 * 1_000_000;
        agent.frame(&[(&shape(1, None), in_two_days, &values(1).0)], &[], &[]);
        agent.send_from(0);
        agent.wait_until_acknowledged();
        wait_until("the samples are counted", || scrape(&collector).value(counted) == 3.0);
        assert_eq!(scrape(&collector).value("stored_samples_total"), 0.0);
        collector.stop().unwrap();
    }
}

fn writers_with_store(page: &Page) -> f64 {
    (0..2).map(|writer| page.value(&format!("store_up{{writer=\"{writer}\"}}"))).sum::<f64>()
}

fn reports_an_unreachable_store() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let collector = start(&environment);
    let mut agent = Agent::to(&environment.context, &collector, "n1", 2);
    environment.server.as_mut().unwrap().stop();
    let sequence = agent.frame(&[(&shape(1, None), now_us(), &values(1).0)], &[], &[]);
    agent.send(sequence);
    wait_until("a writer reports that its store is unreachable", || {
        let page = scrape(&collector);
        writers_with_store(&page) == 1.0 && page.value("store_failures_total") >= 1.0
    });
    environment.server.as_mut().unwrap().resume();
    agent.wait_until_acknowledged();
    wait_until("the store is reachable again", || writers_with_store(&scrape(&collector)) == 2.0);
    assert_eq!(scrape(&collector).value("stored_samples_total"), 3.0);
    collector.stop().unwrap();
}

fn silent_clients(address: SocketAddr) -> Vec<TcpStream> {
    let clients = (0_u32..200).map(|number| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(if number.is_multiple_of(2) { b"" } else { b"GET /met" }).unwrap();
        stream
    });
    clients.collect()
}

fn invalid_and_silent_clients_do_not_block_others() {
    let environment = TestEnvironment::new(Kind::Sqlite);
    let collector = start(&environment);
    let address = collector.metrics().unwrap();
    // Far more clients than are served at once, some of which send a part of a request. They are not served
    // in their order: the newest of them still waits when a request behind it has its answer.
    let is_answered_before = (0..20).any(|_| {
        let mut all = silent_clients(address);
        request(address, b"GET /health HTTP/1.1\r\n\r\n");
        let mut newest = all.pop().unwrap();
        newest.set_nonblocking(true).unwrap();
        newest.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    });
    assert!(is_answered_before);
    let silent = silent_clients(address);
    let status = |text: &[u8]| request(address, text).0;
    assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
    assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(status(b"\x16\x03\x01\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    assert_eq!(status(&[b'x'; 8 * 1024 + 1]), "HTTP/1.1 431 Request Header Fields Too Large");
    let (status, headers, body) = request(address, b"HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(status == "HTTP/1.0 200 OK" && headers.contains("Content-Length: ") && body.is_empty());
    drop(silent);
    scrape(&collector);
    collector.stop().unwrap();
    assert!(TcpStream::connect(address).is_err(), "the listener stops with the collector");
}
