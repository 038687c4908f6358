//! A test of OTLP with the messages of another project: Python's `opentelemetry-proto`, which `make test-otlp`
//! installs.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use polymeter_collector::sinks::otlp::GZIP;
use polymeter_collector::sinks::outbound::OutboundConfig;
use polymeter_collector::{Collector, CollectorConfig};
use polymeter_store::reader::SeriesScope;
use polymeter_test_harness::skip;
use serde_json::Value;

use crate::support::agent::Agent;
use crate::support::{Kind, TestEnvironment, now_us};

polymeter_test_harness::tests![a_receiver_has_the_samples_of_the_store];

/// Server at the port of its argument, which prints its port, and each point as it understands it. It first
/// answers 503. Values are printed as bits, which JSON does not round.
const SERVER: &str = r#"
import gzip, http.server, json, struct, sys, threading
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import *
replies = [503]
lock = threading.Lock()
def attributes(of):
    return {a.key: a.value.string_value for a in of.attributes}
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *of):
        pass
    def do_POST(self):
        body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
        status = replies.pop() if replies else 200
        self.send_response(status)
        answer = ExportMetricsServiceResponse().SerializeToString()
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        if status != 200:
            return
        request = ExportMetricsServiceRequest.FromString(body)
        # No field is unknown, and each has the place that the encoder of protoc gives it.
        assert request.SerializeToString() == body, "another encoding"
        lines = []
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    kind = metric.WhichOneof("data")
                    data = getattr(metric, kind)
                    if kind == "sum":
                        kind = [kind, data.is_monotonic, data.aggregation_temporality]
                    lines += [json.dumps({"resource": attributes(resource.resource), "scope": scope.scope.name,
                        "name": metric.name, "unit": metric.unit, "kind": kind, "attributes": attributes(p),
                        "start_ns": p.start_time_unix_nano, "time_ns": p.time_unix_nano, "flags": p.flags,
                        "bits": struct.unpack("<Q", struct.pack("<d", p.as_double))[0]}) for p in data.data_points]
        with lock:
            print("\n".join(lines), flush=True)
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"#;

struct Server {
    process: Child,
    port: u16,
    points: Receiver<Value>,
}

impl Server {
    /// Listens at a port, or a free one. Skips the running test if Python lacks the messages.
    fn start(port: u16) -> Self {
        let interpreter = std::env::var_os("POLYMETER_OTLP_PYTHON");
        let interpreter = interpreter.map_or_else(|| PathBuf::from("python3"), PathBuf::from);
        let mut python = Command::new(interpreter);
        python.args(["-c", SERVER, &port.to_string()]).stdout(Stdio::piped());
        let Ok(mut process) = python.spawn() else { skip("otlp", "Python is missing") };
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let Some(port) = lines.next().and_then(|line| line.ok()?.parse().ok()) else {
            process.wait().unwrap();
            skip("otlp", "Python has no opentelemetry-proto; `make test-otlp` installs it")
        };
        let (sender, points) = sync_channel(100_000);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { process, port, points }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Metric, unit, job, further attributes, time in milliseconds, and bits of the value.
type Point = (String, String, Option<String>, Vec<String>, i64, u64);

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn point(found: &Value) -> Point {
    let mut attributes = found["attributes"].as_object().unwrap().clone();
    let job = attributes.remove("jobid").map(|job| text(&job));
    let attributes = attributes.iter().map(|(name, value)| format!("{name}={}", text(value))).collect();
    let time_ms = found["time_ns"].as_i64().unwrap() / 1_000_000;
    (text(&found["name"]), text(&found["unit"]), job, attributes, time_ms, found["bits"].as_u64().unwrap())
}

/// Points that the samples of the store should have become.
fn expected(environment: &TestEnvironment) -> BTreeSet<Point> {
    let mut reader = environment.reader();
    let mut points = BTreeSet::new();
    let key = environment.jobs()[0].job_key;
    for (scope, job) in [(SeriesScope::Job(key), Some("42".to_owned())), (SeriesScope::Node("n1"), None)] {
        for series in reader.series(scope).unwrap() {
            let (unit, divisor) = match series.unit.as_str() {
                "nanoseconds" => ("s", 1e9),
                "bytes" => ("By", 1.0),
                "count" => ("{count}", 1.0),
                other => panic!("{other}"),
            };
            // The resource is the node, so that a label of this name keeps its place free.
            let label = |(name, value): (&str, &str)| {
                let prefix = if name == "node" { "exported_" } else { "" };
                format!("{prefix}{name}={value}")
            };
            let attributes: Vec<String> = series.labels.iter().map(label).collect();
            for (time_ns, value) in reader.points(series.series_id, i64::MIN..i64::MAX).unwrap() {
                let (name, bits) = (format!("polymeter.{}", series.metric), (value / divisor).to_bits());
                let time_ms = time_ns.div_euclid(1_000_000);
                points.insert((name, unit.to_owned(), job.clone(), attributes.clone(), time_ms, bits));
            }
        }
    }
    points
}

/// Takes points until there are `count` samples, and examines what all have in common.
fn take(server: &Server, points: &mut BTreeSet<Point>, count: usize) {
    while points.len() < count {
        let found = server.points.recv_timeout(Duration::from_secs(120)).unwrap();
        let resource = &found["resource"];
        assert_eq!(resource["service.name"], "polymeter");
        assert_eq!((&resource["host.name"], &resource["service.instance.id"]), (&"n1".into(), &"n1".into()));
        let name = text(&found["name"]);
        let is_sum = name == "polymeter.cpu.usage";
        assert_eq!(found["kind"], if is_sum { serde_json::json!(["sum", true, 2]) } else { "gauge".into() });
        let (start_ns, time_ns) = (found["start_ns"].as_u64().unwrap(), found["time_ns"].as_u64().unwrap());
        assert!(if is_sum { (1..=time_ns).contains(&start_ns) } else { start_ns == 0 }, "{found}");
        if name == "polymeter.job.info" {
            assert_eq!(
                (&found["attributes"]["user"], &found["attributes"]["cluster"]),
                (&"ada".into(), &"lab".into())
            );
        } else if found["flags"] == 0 {
            points.insert(point(&found));
        }
    }
}

fn a_receiver_has_the_samples_of_the_store() {
    let server = Server::start(0);
    let environment = TestEnvironment::new(Kind::Sqlite);
    let directory = tempfile::tempdir().unwrap();
    let url = format!("http://127.0.0.1:{}/v1/metrics", server.port);
    let otlp = OutboundConfig {
        spool: directory.path().join("spool"),
        batch_wait: Duration::from_millis(10),
        ..OutboundConfig::new(&GZIP, url.parse().unwrap())
    };
    let config = CollectorConfig { otlp: Some(otlp), ..environment.config() };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let begin_us = now_us();
    crate::sinks::send(&mut agent, begin_us, 20);
    let mut points = BTreeSet::new();
    take(&server, &mut points, 120);
    assert_eq!(points, expected(&environment));
    // The receiver is gone, and so is the collector before it is there again.
    let port = server.port;
    drop(server);
    crate::sinks::send(&mut agent, begin_us + 1_000_000, 20);
    collector.stop().unwrap();
    let server = Server::start(port);
    let collector = Collector::start(&config, &environment.context).unwrap();
    take(&server, &mut points, 240);
    assert_eq!(points, expected(&environment));
    collector.stop().unwrap();
}
