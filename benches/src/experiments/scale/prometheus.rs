//! A server that scrapes, with its default settings, and a client of its HTTP API: Prometheus or
//! VictoriaMetrics.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polymeter_benches::clock::wait_for;
use polymeter_benches::process::{self, Usage};
use polymeter_benches::tool::is_program_here;
use polymeter_proto::period::Period;
use serde_json::Value;

/// A server that scrapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scraper {
    Prometheus,
    VictoriaMetrics,
}

impl Scraper {
    /// None for a tool of another name.
    pub(crate) fn of(tool: &str) -> Option<Self> {
        match tool {
            "Prometheus" => Some(Self::Prometheus),
            "VictoriaMetrics" => Some(Self::VictoriaMetrics),
            _ => None,
        }
    }

    /// Program of Debian's package of the same name.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::Prometheus => "prometheus",
            Self::VictoriaMetrics => "victoria-metrics",
        }
    }
}

const PATIENCE_S: u64 = 60;

/// Limit for a request: longer than the two minutes after which Prometheus aborts a query.
const ANSWER: Duration = Duration::from_secs(150);

/// Maximum size of an answer. A query's is a single number; the longest one is Prometheus' page of its own
/// metrics.
const ANSWER_BYTES: u64 = 16 << 20;

/// Job label of the exporters, Prometheus' name for a group of like targets.
pub(crate) const JOB: &str = "mock";

/// Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Prometheus {
    process: Child,
    address: String,
    data: PathBuf,
    log: PathBuf,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Block {
    pub(crate) chunks_bytes: u64,
    pub(crate) index_bytes: u64,
    /// Including those that Prometheus adds for each scrape.
    pub(crate) samples: u64,
}

/// Fails if Prometheus is not installed.
pub(crate) fn require() -> Result<(), Box<dyn Error>> {
    if is_program_here(Scraper::Prometheus.program()) {
        return Ok(());
    }
    Err("--prometheus: no prometheus is in PATH: install Debian's package `prometheus` (the experiment starts a server of its own; the service need not run)".into())
}

pub(crate) fn version() -> Result<String, Box<dyn Error>> {
    let output = Command::new(Scraper::Prometheus.program()).arg("--version").output()?;
    let printed = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    let printed = String::from_utf8_lossy(&printed).into_owned();
    Ok(printed.lines().next().unwrap_or_default().split(" (").next().unwrap_or_default().to_owned())
}

/// Configuration that scrapes these targets, each a name and an address.
pub(crate) fn configuration(period: Period, targets: impl Iterator<Item = (String, String)>) -> String {
    let mut text = format!(
        "global:\n  scrape_interval: {}ms\nscrape_configs:\n  - job_name: {JOB}\n    static_configs:\n",
        period.as_micros() / 1_000
    );
    for (node, address) in targets {
        text.push_str(&format!("      - {{targets: ['{address}'], labels: {{instance: {node}}}}}\n"));
    }
    text
}

impl Prometheus {
    /// Starts a server with this configuration, and waits until it is ready. `files` limits its open files.
    pub(crate) fn start(
        scraper: Scraper,
        scratch: &Path,
        configuration: &str,
        files: Option<u64>,
    ) -> Result<Self, Box<dyn Error>> {
        let (config, data, log) =
            (scratch.join("scraper.yml"), scratch.join("data"), scratch.join("scraper.log"));
        fs::write(&config, configuration)?;
        // A free port, which nothing else takes within the moment until the server listens.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let limit = files.map(|files| format!("ulimit -n {files}; ")).unwrap_or_default();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limit}exec \"$0\" \"$@\""), scraper.program()]);
        match scraper {
            Scraper::Prometheus => command
                .arg(argument("config.file", &config))
                .arg(argument("storage.tsdb.path", &data))
                .arg(format!("--web.listen-address={address}"))
                .arg("--web.enable-admin-api"),
            // Values are found as soon as they are stored.
            Scraper::VictoriaMetrics => command
                .arg(argument("promscrape.config", &config))
                .arg(argument("storageDataPath", &data))
                .arg(format!("--httpListenAddr={address}"))
                .args(["--search.latencyOffset=1s", "--search.disableCache"]),
        };
        let process = command
            .current_dir(scratch)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()?;
        let server = Self { process, address, data, log };
        let is_ready = || server.ask("GET", "/-/ready").ok();
        wait_for("the server is ready", PATIENCE_S, is_ready)
            .map_err(|error| format!("{error}: {}", server.log()))?;
        Ok(server)
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn usage(&self) -> io::Result<Usage> {
        process::usage(self.process.id())
    }

    /// Result of a query at an instant, in milliseconds since the epoch; 0 if the result is empty.
    pub(crate) fn number(&self, query: &str, at_ms: i64) -> Result<f64, Box<dyn Error>> {
        let (seconds, millis) = (at_ms.div_euclid(1_000), at_ms.rem_euclid(1_000));
        let path = format!("/api/v1/query?time={seconds}.{millis:03}&query={}", escaped(query));
        let answer = self.ask("GET", &path)?;
        answered_number(&answer).ok_or_else(|| format!("the server answers {query} with {answer}").into())
    }

    pub(crate) fn count(&self, query: &str, at_ms: i64) -> Result<u64, Box<dyn Error>> {
        Ok(polymeter_benches::table::to_u64(self.number(query, at_ms)?))
    }

    /// Size of the data on the disk: for the last two hours the write-ahead log and the memory-mapped chunks.
    pub(crate) fn disk_bytes(&self) -> io::Result<u64> {
        bytes_under(&self.data)
    }

    /// Writes all data as a block, and returns its contents.
    pub(crate) fn block(&self) -> Result<Block, Box<dyn Error>> {
        let answer: Value = serde_json::from_str(&self.ask("POST", "/api/v1/admin/tsdb/snapshot")?)?;
        let name = answer.pointer("/data/name").and_then(Value::as_str);
        let snapshot = self.data.join("snapshots").join(name.ok_or("Prometheus does not name its snapshot")?);
        let mut block = Block::default();
        for entry in fs::read_dir(snapshot)? {
            let of_block = entry?.path();
            let meta: Value = serde_json::from_str(&fs::read_to_string(of_block.join("meta.json"))?)?;
            block.chunks_bytes += bytes_under(&of_block.join("chunks"))?;
            block.index_bytes += fs::metadata(of_block.join("index"))?.len();
            block.samples += meta.pointer("/stats/numSamples").and_then(Value::as_u64).unwrap_or(0);
        }
        Ok(block)
    }

    fn ask(&self, method: &str, path: &str) -> Result<String, Box<dyn Error>> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(ANSWER))?;
        // With HTTP/1.0 the answer ends with the connection and is not chunked.
        let head = format!("{method} {path} HTTP/1.0\r\nHost: {}\r\nContent-Length: 0\r\n\r\n", self.address);
        stream.write_all(head.as_bytes())?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES).read_to_string(&mut answer)?;
        let body = answered(&answer).ok_or_else(|| format!("the server answers {path} with {answer}"))?;
        Ok(body.to_owned())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // The data are not needed any more, and writing them at shutdown would take long.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn argument(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

fn answered(answer: &str) -> Option<&str> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    (head.split(' ').nth(1)? == "200").then_some(body)
}

/// Single number of a query's result; 0 if the result is empty.
fn answered_number(answer: &str) -> Option<f64> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    match answer.pointer("/data/result")?.as_array()?.as_slice() {
        [] => Some(0.0),
        [one] => one.pointer("/value/1")?.as_str()?.parse().ok(),
        _ => None,
    }
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            if is_plain { char::from(byte).to_string() } else { format!("%{byte:02X}") }
        })
        .collect()
}

/// Size of all files under a directory. Files that are removed meanwhile are not counted.
fn bytes_under(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(data) if data.is_dir() => bytes_under(&entry.path()).unwrap_or(0),
            Ok(data) => data.len(),
            Err(_gone) => 0,
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_has_a_target_for_each_exporter() {
        let targets = [("n0".to_owned(), "127.64.0.1:7".to_owned()), ("n1".to_owned(), "[::1]:7".to_owned())];
        let text = configuration(Period::SECOND, targets.into_iter());
        assert_eq!(
            text,
            "global:\n  scrape_interval: 1000ms\nscrape_configs:\n  - job_name: mock\n    static_configs:\n      \
             - {targets: ['127.64.0.1:7'], labels: {instance: n0}}\n      \
             - {targets: ['[::1]:7'], labels: {instance: n1}}\n"
        );
    }

    #[test]
    fn answers_are_a_number_or_refused() {
        assert_eq!(answered("HTTP/1.0 200 OK\r\nA: b\r\n\r\n{}"), Some("{}"));
        assert_eq!(answered("HTTP/1.0 400 Bad Request\r\n\r\n{}"), None);
        assert_eq!(answered(""), None);
        let number = |result: &str| answered_number(&format!(r#"{{"data":{{"result":{result}}}}}"#));
        assert_eq!(number(r#"[{"metric":{},"value":[1.5,"42"]}]"#), Some(42.0));
        assert_eq!(number("[]"), Some(0.0));
        assert_eq!(number(r#"[{"value":[1,"1"]},{"value":[1,"2"]}]"#), None);
        assert_eq!(number(r#"[{"value":[1]}]"#), None);
        assert_eq!(answered_number("<html>"), None);
    }

    #[test]
    fn queries_are_escaped() {
        assert_eq!(escaped("sum(up{job=\"a b\"}[1s])"), "sum%28up%7Bjob%3D%22a%20b%22%7D%5B1s%5D%29");
    }
}
