//! Real receivers of remote_write: Prometheus and VictoriaMetrics, which `make test-remote-write` extracts
//! from Debian's packages.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::daemons::Daemon;
use crate::{TestEnvironment, wait_until};

/// Environment variable with the directory of the programs.
const DIRECTORY: &str = "POLYMETER_RECEIVERS";

pub type Labels = BTreeMap<String, String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiverKind {
    Prometheus,
    VictoriaMetrics,
}

impl ReceiverKind {
    const fn program(self) -> &'static str {
        match self {
            Self::Prometheus => "prometheus",
            Self::VictoriaMetrics => "victoria-metrics",
        }
    }

    fn path(self) -> PathBuf {
        path_of(self.program())
    }
}

fn path_of(program: &str) -> PathBuf {
    std::env::var_os(DIRECTORY)
        .map_or_else(|| PathBuf::from(program), |directory| PathBuf::from(directory).join(program))
}

/// What `promtool check metrics` says about a page; empty if it finds no fault.
pub fn promtool(page: &str) -> String {
    let mut command = Command::new(path_of("promtool"));
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(output.status.success(), text.is_empty(), "{text}");
    text
}

pub(crate) fn missing() -> Option<String> {
    [ReceiverKind::Prometheus, ReceiverKind::VictoriaMetrics].into_iter().find_map(|kind| {
        let output = Command::new(kind.path()).arg("--version").output();
        (!output.is_ok_and(|output| output.status.success()))
            .then(|| format!("{} is missing; `make test-remote-write` extracts it", kind.program()))
    })
}

/// A receiver, whose data survives a restart.
pub struct Receiver {
    kind: ReceiverKind,
    port: u16,
    /// Of a Prometheus.
    config: String,
    daemon: Option<Daemon>,
}

impl Receiver {
    /// Starts a receiver with an empty database and waits until it answers.
    pub fn start(env: &TestEnvironment, kind: ReceiverKind) -> Self {
        Self::with_config(env, kind, "global: {}\n")
    }

    /// Starts a Prometheus that scrapes what its configuration says.
    pub fn scraping(env: &TestEnvironment, config: &str) -> Self {
        Self::with_config(env, ReceiverKind::Prometheus, config)
    }

    fn with_config(env: &TestEnvironment, kind: ReceiverKind, config: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut receiver = Self { kind, port, config: config.to_owned(), daemon: None };
        receiver.restart(env);
        receiver
    }

    pub fn restart(&mut self, env: &TestEnvironment) {
        let data = env.path("receiver");
        let mut command = Command::new(self.kind.path());
        match self.kind {
            ReceiverKind::Prometheus => {
                let config = env.path("prometheus.yml");
                fs::write(&config, &self.config).unwrap();
                command
                    .arg(format!("--config.file={}", config.display()))
                    .arg(format!("--storage.tsdb.path={}", data.display()))
                    .arg(format!("--web.listen-address=127.0.0.1:{}", self.port))
                    .arg("--web.enable-remote-write-receiver");
            }
            ReceiverKind::VictoriaMetrics => {
                command
                    .arg(format!("-storageDataPath={}", data.display()))
                    .arg(format!("-httpListenAddr=127.0.0.1:{}", self.port))
                    .arg("-dedup.minScrapeInterval=1ms");
            }
        }
        self.daemon = Some(Daemon::of(env, command));
        let ready = match self.kind {
            ReceiverKind::Prometheus => "/-/ready",
            ReceiverKind::VictoriaMetrics => "/health",
        };
        wait_until("the receiver is ready", || get(self.port, ready).is_some());
    }

    pub fn kill(&mut self) {
        self.daemon.take().unwrap().kill();
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/api/v1/write", self.port)
    }

    /// Samples of all series with a label: milliseconds since the epoch and values, by the labels of the
    /// series. Marks of ends are left out.
    pub fn samples(&self, label: &str, value: &str) -> BTreeMap<Labels, Vec<(i64, f64)>> {
        let selector = format!("%7B{label}%3D%22{value}%22%7D");
        let mut all = BTreeMap::new();
        match self.kind {
            ReceiverKind::Prometheus => {
                let answer = get(self.port, &format!("/api/v1/query?query={selector}%5B1h%5D")).unwrap();
                let answer: Value = serde_json::from_str(&answer).unwrap();
                for series in answer["data"]["result"].as_array().unwrap() {
                    let samples = series["values"].as_array().unwrap().iter().map(|pair| {
                        let ms = (pair[0].as_f64().unwrap() * 1000.0).round() as i64;
                        (ms, pair[1].as_str().unwrap().parse().unwrap())
                    });
                    add(&mut all, series, samples.collect());
                }
            }
            ReceiverKind::VictoriaMetrics => {
                // What was accepted in the last second is not found yet.
                get(self.port, "/internal/force_flush");
                let answer = get(self.port, &format!("/api/v1/export?match%5B%5D={selector}")).unwrap();
                for line in answer.lines() {
                    let series: Value = serde_json::from_str(line).unwrap();
                    let times =
                        series["timestamps"].as_array().unwrap().iter().map(|ms| ms.as_i64().unwrap());
                    let values = series["values"].as_array().unwrap().iter().map(Value::as_f64);
                    let samples = times.zip(values).filter_map(|(ms, value)| Some((ms, value?))).collect();
                    add(&mut all, &series, samples);
                }
            }
        }
        all
    }
}

fn add(all: &mut BTreeMap<Labels, Vec<(i64, f64)>>, series: &Value, samples: Vec<(i64, f64)>) {
    let labels: Labels = serde_json::from_value(series["metric"].clone()).unwrap();
    assert!(all.insert(labels, samples).is_none(), "{series}");
}

/// Body of the answer to a request, if it succeeds.
fn get(port: u16, target: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    // HTTP/1.0: the answer ends with the connection.
    write!(stream, "GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let is_success = head.split(' ').nth(1).is_some_and(|status| status.starts_with('2'));
    is_success.then(|| body.to_owned())
}
