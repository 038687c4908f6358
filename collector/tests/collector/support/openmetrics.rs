//! A scraper of metrics, and a strict parser of their pages.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use polymeter_collector::Collector;

/// Reads the status line, the headers and the body to the end of the answer.
pub(crate) fn request(address: SocketAddr, request: &[u8]) -> (String, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let (status, headers) = head.split_once("\r\n").unwrap();
    (status.to_owned(), headers.to_owned(), body.to_owned())
}

pub(crate) fn scrape(collector: &Collector) -> Page {
    let get = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    let (status, headers, body) = request(collector.metrics().unwrap(), get);
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(
        headers.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{headers}"
    );
    assert!(headers.contains(&format!("Content-Length: {}", body.len())), "{headers}");
    Page::parse(&body)
}

/// Satisfies the rules of OpenMetrics 1.0.0, as far as this collector uses them.
pub(crate) struct Page {
    pub(crate) families: BTreeMap<String, String>,
    pub(crate) samples: BTreeMap<String, f64>,
}

impl Page {
    pub(crate) fn parse(text: &str) -> Self {
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

    pub(crate) fn value(&self, name: &str) -> f64 {
        let name = format!("polymeter_collector_{name}");
        *self.samples.get(&name).unwrap_or_else(|| panic!("no {name}"))
    }
}

struct Family {
    name: String,
    kind: String,
    /// Buckets in their order, and the count, for each set of labels except `le`.
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
