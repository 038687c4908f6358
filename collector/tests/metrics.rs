//! Tests of the collector's own metrics, from the view of a scraper.

#![allow(
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a fault of a test is a failed test"
)]

mod common;

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use common::agent::{Agent, shape, values};
use common::{Kind, Site, now_us, wait_until};
use polymeter_collector::Collector;
use polymeter_collector::config::CollectorConfig;
use polymeter_collector::ingest::{OutOfRangePolicy, TimeRange};
use polymeter_proto::wire::message::{Lost, SkipReason, ToCollector};

polymeter_test_harness::tests![
    counts_stored_lost_and_refused_data,
    counts_samples_of_a_skewed_clock,
    reports_an_unreachable_store,
    invalid_and_silent_clients_do_no_harm
];

fn main() -> std::process::ExitCode {
    polymeter_test_harness::run(&[TESTS])
}

/// Sends a request and reads the answer to its end: status line, headers, body.
fn ask(address: SocketAddr, request: &[u8]) -> (String, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let (status, heads) = head.split_once("\r\n").unwrap();
    (status.to_owned(), heads.to_owned(), body.to_owned())
}

fn page(collector: &Collector) -> Page {
    let get = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    let (status, heads, body) = ask(collector.metrics().unwrap(), get);
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(
        heads.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{heads}"
    );
    assert!(heads.contains(&format!("Content-Length: {}", body.len())), "{heads}");
    Page::parse(&body)
}

/// A page that satisfies the rules of OpenMetrics 1.0.0, as far as this collector uses them.
struct Page {
    /// The type of each family, by name.
    families: BTreeMap<String, String>,
    /// The samples by name and labels.
    samples: BTreeMap<String, f64>,
}

impl Page {
    fn parse(text: &str) -> Self {
        let lines = text.strip_suffix("# EOF\n").expect("the page ends with its mark");
        let mut page = Self { families: BTreeMap::new(), samples: BTreeMap::new() };
        let mut family: Option<Family> = None;
        for line in lines.lines() {
            assert!(!line.is_empty() && line.trim() == line, "{line:?}");
            if let Some(rest) = line.strip_prefix("# HELP ") {
                if let Some(finished) = family.take() {
                    finished.check();
                }
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(is_name(name) && !name.ends_with("_total") && help.ends_with('.'), "{line}");
                family = Some(Family::new(name));
                continue;
            }
            let family = family.as_mut().unwrap_or_else(|| panic!("{line} is before any family"));
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(["counter", "gauge", "histogram", "info"].contains(&kind), "{line}");
                assert!(name == family.name && family.kind.is_empty(), "{line}");
                kind.clone_into(&mut family.kind);
                assert!(page.families.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
            } else if let Some(rest) = line.strip_prefix("# UNIT ") {
                let (name, unit) = rest.split_once(' ').unwrap();
                assert_eq!(name, family.name);
                assert!(name.ends_with(&format!("_{unit}")), "{line}");
            } else {
                let (name, value) = line.rsplit_once(' ').unwrap();
                family.sample(name, value);
                assert!(
                    page.samples.insert(name.to_owned(), value.parse().unwrap()).is_none(),
                    "{name} twice"
                );
            }
        }
        family.unwrap().check();
        page
    }

    fn value(&self, name: &str) -> f64 {
        let name = format!("polymeter_collector_{name}");
        *self.samples.get(&name).unwrap_or_else(|| panic!("no {name}"))
    }
}

struct Family {
    name: String,
    kind: String,
    /// For each set of labels except `le`: the buckets in their order, and the count.
    buckets: BTreeMap<String, Vec<(f64, f64)>>,
    counts: BTreeMap<String, f64>,
    sums: HashSet<String>,
    samples: usize,
}

impl Family {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: String::new(),
            buckets: BTreeMap::new(),
            counts: BTreeMap::new(),
            sums: HashSet::new(),
            samples: 0,
        }
    }

    fn sample(&mut self, name: &str, value: &str) {
        self.samples += 1;
        let (bare, labels) = match name.split_once('{') {
            Some((bare, rest)) => (bare, labels(rest.strip_suffix('}').unwrap())),
            None => (name, BTreeMap::new()),
        };
        let suffix =
            bare.strip_prefix(&self.name).unwrap_or_else(|| panic!("{name} is not of {}", self.name));
        let number: f64 = value.parse().unwrap();
        assert!(number.is_finite() && !value.contains(['e', 'E']), "{name} {value}");
        let others: BTreeMap<_, _> = labels.iter().filter(|(key, _)| *key != "le").collect();
        let others = format!("{others:?}");
        match (self.kind.as_str(), suffix) {
            ("counter", "_total") => assert!(number >= 0.0, "{name} {value}"),
            ("gauge", "") => {}
            ("info", "_info") => assert_eq!(value, "1"),
            ("histogram", "_bucket") => {
                let bound = &labels["le"];
                assert!(bound == "+Inf" || bound.contains('.'), "{name}: bounds are written as floats");
                let bound = bound.replace('+', "").parse().unwrap();
                self.buckets.entry(others).or_default().push((bound, number));
            }
            ("histogram", "_count") => assert!(self.counts.insert(others, number).is_none()),
            ("histogram", "_sum") => assert!(self.sums.insert(others)),
            _ => panic!("{name} is no sample of a {}", self.kind),
        }
    }

    fn check(&self) {
        assert!(!self.kind.is_empty() && self.samples > 0, "{}", self.name);
        assert_eq!(self.buckets.keys().collect::<Vec<_>>(), self.counts.keys().collect::<Vec<_>>());
        assert_eq!(self.sums.len(), self.counts.len());
        for (labels, buckets) in &self.buckets {
            assert!(
                buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1),
                "{buckets:?}"
            );
            assert_eq!(*buckets.last().unwrap(), (f64::INFINITY, self.counts[labels]));
        }
    }
}

fn is_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|c| c.is_ascii_lowercase())
        && characters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Parses the labels between braces, and checks that only the necessary characters are escaped.
fn labels(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (key, behind) = rest.split_once("=\"").unwrap();
        assert!(is_name(key), "{text}");
        let (value, behind) = behind.split_once('"').unwrap();
        assert!(!value.contains('\\'), "{text}: nothing here needs an escape");
        assert!(labels.insert(key.to_owned(), value.to_owned()).is_none(), "{text}");
        rest = behind.strip_prefix(',').unwrap_or(behind);
        assert_eq!(rest.is_empty(), behind.is_empty(), "{text}");
    }
    labels
}

fn start(site: &Site) -> Collector {
    let config = CollectorConfig { metrics_listen: Some("127.0.0.1:0".parse().unwrap()), ..site.config() };
    Collector::start(&config, &site.context).unwrap()
}

fn counts_stored_lost_and_refused_data() {
    let site = Site::new(Kind::Sqlite);
    let collector = start(&site);
    let first = page(&collector);
    assert_eq!((first.value("stored_samples_total"), first.value("store_up{writer=\"0\"}")), (0.0, 1.0));
    assert_eq!(first.families["polymeter_collector_commit_duration_seconds"], "histogram");

    let mut agent = Agent::to(&site.context, &collector, "n1", 1);
    for seed in 1..=3 {
        let at = now_us() - 10_000_000 + seed * 1_000_000;
        let sequence = agent.frame(&[(&shape(1, None), at, &values(seed).0)], &[], &[]);
        agent.send(sequence);
    }
    agent.settle();
    let times = (now_us(), now_us());
    let skipped = ToCollector::Skipped {
        session: polymeter_proto::series::SessionId(1),
        first: 4,
        last: 5,
        reason: SkipReason::OutboxFull,
        span_us: times,
        lost: vec![Lost { job: None, source: "stat".try_into().unwrap(), samples: 70 }],
    };
    agent.skip(&skipped);
    agent.send_bytes(b"PLM\x07 a frame of another version");
    agent.send_bytes(b"GET / HTTP/1.1\r\n\r\n");
    wait_until("all is counted", || {
        let page = page(&collector);
        page.value("lost_samples_total{reason=\"outbox_full\"}") == 70.0
            && page.value("refused_messages_total{reason=\"version\"}") == 1.0
            && page.value("refused_messages_total{reason=\"undecodable\"}") == 1.0
    });
    let page = page(&collector);
    assert_eq!((page.value("stored_samples_total"), page.value("quarantined_samples_total")), (9.0, 0.0));
    assert_eq!(page.value("stored_frames_total"), 4.0, "the note of what was lost is one");
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
        assert!(page.samples[name] >= *before, "{name} went back");
    }
    collector.stop().unwrap();
}

fn counts_samples_of_a_skewed_clock() {
    for (out_of_range, counted) in [
        (OutOfRangePolicy::Reject, "lost_samples_total{reason=\"clock\"}"),
        (OutOfRangePolicy::Quarantine, "quarantined_samples_total"),
    ] {
        let site = Site::new(Kind::Sqlite);
        let clock = TimeRange { out_of_range, ..TimeRange::default() };
        let config =
            CollectorConfig { metrics_listen: Some("127.0.0.1:0".parse().unwrap()), clock, ..site.config() };
        let collector = Collector::start(&config, &site.context).unwrap();
        let mut agent = Agent::to(&site.context, &collector, "n1", 3);
        let in_two_days = now_us() + 2 * 86_400 * 1_000_000;
        agent.frame(&[(&shape(1, None), in_two_days, &values(1).0)], &[], &[]);
        agent.send_from(0);
        agent.settle();
        wait_until("it is counted", || page(&collector).value(counted) == 3.0);
        assert_eq!(page(&collector).value("stored_samples_total"), 0.0);
        collector.stop().unwrap();
    }
}

fn reports_an_unreachable_store() {
    let mut site = Site::new(Kind::Postgres);
    let collector = start(&site);
    let mut agent = Agent::to(&site.context, &collector, "n1", 2);
    site.server.as_mut().unwrap().stop();
    let sequence = agent.frame(&[(&shape(1, None), now_us(), &values(1).0)], &[], &[]);
    agent.send(sequence);
    let is_up = |page: &Page| {
        (0..2).map(|writer| page.value(&format!("store_up{{writer=\"{writer}\"}}"))).sum::<f64>()
    };
    wait_until("a writer misses its store", || {
        let page = page(&collector);
        is_up(&page) == 1.0 && page.value("store_failures_total") >= 1.0
    });
    site.server.as_mut().unwrap().resume();
    agent.settle();
    wait_until("it is back", || is_up(&page(&collector)) == 2.0);
    assert_eq!(page(&collector).value("stored_samples_total"), 3.0);
    collector.stop().unwrap();
}

fn invalid_and_silent_clients_do_no_harm() {
    let site = Site::new(Kind::Sqlite);
    let collector = start(&site);
    let address = collector.metrics().unwrap();
    // More clients than are served concurrently: the next one waits until their timeout.
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    let status = |request: &[u8]| ask(address, request).0;
    assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
    assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(status(b"\x16\x03\x01\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    assert_eq!(status(&[b'x'; 8 * 1024 + 1]), "HTTP/1.1 431 Request Header Fields Too Large");
    let (status, heads, body) = ask(address, b"HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(status == "HTTP/1.1 200 OK" && heads.contains("Content-Length: ") && body.is_empty());
    drop(silent);
    page(&collector);
    collector.stop().unwrap();
    assert!(TcpStream::connect(address).is_err(), "it ends with the collector");
}
