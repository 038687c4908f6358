//! Tests of sinks besides a store: they get the same rows, and a blocked sink causes no delay.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use crate::support::agent::{Agent, job, shape, values};
use crate::support::openmetrics::scrape;
use crate::support::{Kind, TestEnvironment, now_us, wait_until};
use polymeter_collector::sinks::outbound::OutboundConfig;
use polymeter_collector::sinks::remote_write::V1;
use polymeter_collector::{Collector, CollectorConfig};
use polymeter_store::reader::SeriesScope;
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::io::ioctl_fionread;

polymeter_test_harness::tests![
    sink_gets_the_rows_of_sqlite,
    sink_gets_the_rows_of_postgres,
    blocked_sink_delays_neither_acknowledgement_nor_stop,
    sink_that_cannot_be_opened_does_not_stop_the_collector,
    hanging_receiver_delays_neither_acknowledgement_nor_stop,
];

/// Node, job, metric, time in microseconds, and bits of the value.
type Row = (String, Option<String>, String, i64, u64);

fn config(environment: &TestEnvironment, sinks: &[&Path]) -> CollectorConfig {
    let sinks = sinks.iter().map(|path| format!("jsonl:{}", path.display()).parse().unwrap()).collect();
    CollectorConfig { sinks, commit_interval: Duration::from_millis(1), ..environment.config() }
}

/// Waits until all frames, each with rows of a job and of the node, are acknowledged.
pub(crate) fn send(agent: &mut Agent, begin_us: i64, count: i64) {
    let job = job(1, "42", begin_us);
    let (of_job, of_node) = (shape(1, Some(&job)), shape(2, None));
    for seed in 0..count {
        let at_us = begin_us + seed * 1000;
        let rows = values(seed).0;
        let sequence = agent.frame(&[(&of_job, at_us, &rows), (&of_node, at_us, &rows)], &[], &[]);
        agent.send(sequence);
    }
    agent.wait_until_acknowledged();
}

fn rows_in_store(environment: &TestEnvironment) -> BTreeSet<Row> {
    let mut reader = environment.reader();
    let mut rows = BTreeSet::new();
    let key = environment.jobs()[0].job_key;
    for (scope, job) in [(SeriesScope::Job(key), Some("42".to_owned())), (SeriesScope::Node("n1"), None)] {
        for series in reader.series(scope).unwrap() {
            for (time_ns, value) in reader.points(series.series_id, i64::MIN..i64::MAX).unwrap() {
                let (node, metric) = (series.node.clone(), series.metric.clone());
                assert!(rows.insert((node, job.clone(), metric, time_ns / 1000, value.to_bits())));
            }
        }
    }
    rows
}

fn rows_in_file(path: &Path) -> Vec<Row> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| {
            // serde_json does not read every double exactly.
            let value: f64 = line.rsplit_once(":").unwrap().1.trim_end_matches('}').parse().unwrap();
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |key: &str| line[key].as_str().map(str::to_owned);
            let time_us = line["time_us"].as_i64().unwrap();
            assert!(line["labels"].is_object() && line["unit"].is_string(), "{line}");
            (text("node").unwrap(), text("job"), text("metric").unwrap(), time_us, value.to_bits())
        })
        .collect()
}

fn assert_sink_gets_the_rows_of_the_store(kind: Kind) {
    let environment = TestEnvironment::new(kind);
    let directory = tempfile::tempdir().unwrap();
    let (path, rotated) = (directory.path().join("samples"), directory.path().join("samples.1"));
    let config = config(&environment, &[&path]);
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let begin_us = now_us();
    send(&mut agent, begin_us, 20);
    wait_until("the sink has the first rows", || path.exists() && rows_in_file(&path).len() == 120);
    fs::rename(&path, &rotated).unwrap();
    collector.reload(&config);
    send(&mut agent, begin_us + 1_000_000, 10);
    let totals = collector.stop().unwrap();
    assert_eq!(totals.samples, 180);
    let (before, after) = (rows_in_file(&rotated), rows_in_file(&path));
    assert_eq!((before.len(), after.len()), (120, 60));
    let in_sink: BTreeSet<Row> = before.into_iter().chain(after).collect();
    assert!(in_sink == rows_in_store(&environment), "the rows of the sink and of the store differ");
    assert_eq!(environment.number("SELECT count(*) FROM samples"), 180);
}

fn sink_gets_the_rows_of_sqlite() {
    assert_sink_gets_the_rows_of_the_store(Kind::Sqlite);
}

fn sink_gets_the_rows_of_postgres() {
    assert_sink_gets_the_rows_of_the_store(Kind::Postgres);
}

fn blocked_sink_delays_neither_acknowledgement_nor_stop() {
    let environment = TestEnvironment::new(Kind::Sqlite);
    let directory = tempfile::tempdir().unwrap();
    let (fifo, file) = (directory.path().join("fifo"), directory.path().join("file"));
    mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o600)).unwrap();
    // A reader that never reads: the pipe fills, and the sink's write blocks.
    let reader = OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    let config = CollectorConfig {
        metrics_listen: Some("127.0.0.1:0".parse().unwrap()),
        ..config(&environment, &[&fifo, &file])
    };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let begin_us = now_us();
    // Each round is at least one transaction: more than the queue of a sink holds.
    for round in 0..150 {
        send(&mut agent, begin_us + round * 100_000, 10);
    }
    let page = scrape(&collector);
    let count = |name: &str| page.value(&format!("sink_{name}{{sink=\"jsonl:{}\"}}", fifo.display()));
    // The last rows may still be in transit.
    let (accepted, dropped, queued) =
        (count("accepted_rows_total"), count("dropped_rows_total"), count("queued_rows"));
    assert!(dropped > 0.0 && queued > 0.0, "{accepted} {dropped} {queued}");
    assert!((8_000.0..=9_000.0).contains(&(accepted + dropped + queued)), "{accepted} {dropped} {queued}");
    // A stop that waited for the sink would never return, since nothing reads from the pipe.
    let totals = collector.stop().unwrap();
    assert!(ioctl_fionread(&reader).unwrap() > 0, "the pipe is still full");
    assert_eq!((totals.samples, totals.given_up), (9_000, 0));
    assert_eq!(environment.number("SELECT count(*) FROM samples"), 9_000);
    // The other sink has all rows.
    assert_eq!(rows_in_file(&file).len(), 9_000);
}

fn sink_that_cannot_be_opened_does_not_stop_the_collector() {
    let environment = TestEnvironment::new(Kind::Sqlite);
    let path = Path::new("/proc/no/such/directory/samples");
    let collector = Collector::start(&config(&environment, &[path]), &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    send(&mut agent, now_us(), 5);
    assert_eq!(collector.stop().unwrap().samples, 30);
    assert_eq!(environment.number("SELECT count(*) FROM samples"), 30);
}

fn hanging_receiver_delays_neither_acknowledgement_nor_stop() {
    let environment = TestEnvironment::new(Kind::Sqlite);
    let directory = tempfile::tempdir().unwrap();
    // It accepts connections, and never reads.
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/write", receiver.local_addr().unwrap());
    let remote_write = OutboundConfig {
        spool: directory.path().join("spool"),
        batch_wait: Duration::from_millis(10),
        ..OutboundConfig::new(&V1, url.parse().unwrap())
    };
    let config = CollectorConfig {
        metrics_listen: Some("127.0.0.1:0".parse().unwrap()),
        remote_write: Some(remote_write),
        ..config(&environment, &[])
    };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let begin_us = now_us();
    for round in 0..20 {
        send(&mut agent, begin_us + round * 100_000, 10);
    }
    wait_until("the samples wait in the spool", || {
        let page = scrape(&collector);
        let count = |name: &str| page.value(name);
        let dropped = count("sink_dropped_rows_total{sink=\"remote_write\"}");
        dropped == 0.0
            && count("remote_write_pending_samples") >= 1_200.0
            && count("remote_write_spool_bytes") > 1_000.0
    });
    let totals = collector.stop().unwrap();
    assert_eq!((totals.samples, totals.given_up), (1_200, 0));
    assert_eq!(environment.number("SELECT count(*) FROM samples"), 1_200);
    assert!(directory.path().join("spool/shard-0").is_dir());
}
