//! remote_write to a real Prometheus and VictoriaMetrics: receiver and collector are killed, and afterwards
//! the receiver has exactly the samples of the store.

use std::collections::BTreeMap;

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Plan, collector_with};
use polymeter_e2e::receivers::{Labels, Receiver, ReceiverKind};
use polymeter_e2e::tests;
use polymeter_e2e::{Need, TestEnvironment, pause, require, stored, wait_until, wait_within};
use polymeter_store::reader::SeriesScope;

tests![
    prometheus_has_the_samples_of_the_store_after_kills,
    victoria_metrics_has_the_samples_of_the_store_after_kills,
];

const NEEDS: [Need; 4] = [Need::Root, Need::Cgroup1, Need::Cgroup2, Need::Receivers];
const BASELINE: [(&str, &str); 3] = [("memory.*", "10ms"), ("cpu.usage", "10ms"), ("pids.*", "50ms")];
const JOB: &str = "1";
const KILLS: usize = 3;

/// Samples of series: milliseconds since the epoch, and values.
type Samples = BTreeMap<Labels, Vec<(i64, f64)>>;

/// All values of a millisecond.
type Stored = BTreeMap<Labels, BTreeMap<i64, Vec<f64>>>;

fn prometheus_has_the_samples_of_the_store_after_kills() {
    receiver_has_the_samples_of_the_store_after_kills(ReceiverKind::Prometheus, "");
}

/// VictoriaMetrics answers before it writes to its disk, up to 13 s later in version 1.79.
fn victoria_metrics_has_the_samples_of_the_store_after_kills() {
    let more = "resend_window = \"1min\"\n";
    receiver_has_the_samples_of_the_store_after_kills(ReceiverKind::VictoriaMetrics, more);
}

fn receiver_has_the_samples_of_the_store_after_kills(kind: ReceiverKind, more: &str) {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let mut receiver = Receiver::start(&env, kind);
    let section = format!(
        "[remote_write]\nurl = \"{}\"\nspool = \"{}\"\nbatch_wait = \"1s\"\ntimeout = \"5s\"\n{more}",
        receiver.url(),
        env.path("remote-write").display()
    );
    let start = || collector_with(&env, &env.endpoint(), &section).0;
    let mut collector = start();
    let job = cgroups.job(JOB);
    let plan = Plan { collector: &env.endpoint(), jobs: &[cgroups.pattern()], baseline: &BASELINE };
    let agent = Agent::start(&env, &plan);
    agent.wait_until_tracked(JOB, &["v1/memory.stat", "v2/cpu.stat"]);
    for _ in 0..KILLS {
        wait_for_more(&receiver);
        receiver.kill();
        wait_for_more_taken(&agent);
        // It has a spool that it could not send.
        collector.kill();
        collector = start();
        wait_for_more_taken(&agent);
        receiver.restart(&env);
        wait_for_more(&receiver);
        // It is sending.
        collector.kill();
        collector = start();
    }
    wait_for_more(&receiver);
    job.remove();
    let key = stored::wait_for_end(&env, JOB).job_key;
    agent.daemon.terminate();
    let expected = stored_samples(&env, key);
    let expected_count: usize = expected.values().map(BTreeMap::len).sum();
    assert!(expected.len() > 20 && expected_count > 10_000, "{expected_count}");
    let mut found = Samples::new();
    wait_within(std::time::Duration::from_secs(120), "the receiver has all samples", || {
        pause(500);
        found = samples(&receiver);
        count(&found) >= expected_count
    });
    for (labels, samples) in &expected {
        let of_receiver = found.get(labels).unwrap_or_else(|| panic!("{labels:?} is missing"));
        assert_same(labels, samples, of_receiver);
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    let facts = receiver.samples("__name__", "polymeter_job_info");
    assert!(facts.keys().any(|labels| labels["jobid"] == JOB && labels["node"] == env.node), "{facts:?}");
    collector.terminate();
}

fn wait_for_more(receiver: &Receiver) {
    let before = count(&samples(receiver));
    wait_until("the receiver gets samples", || count(&samples(receiver)) > before + 100);
}

fn wait_for_more_taken(agent: &Agent) {
    let before = agent.count("taken");
    wait_until("the agent takes samples", || agent.count("taken") > before + 5000);
}

fn count(samples: &Samples) -> usize {
    samples.values().map(Vec::len).sum()
}

/// Samples of the job that the receiver has, without its facts.
fn samples(receiver: &Receiver) -> Samples {
    let mut samples = receiver.samples("jobid", JOB);
    samples.retain(|labels, _| labels["__name__"] != "polymeter_job_info");
    samples
}

/// Samples of the job in the store, as a receiver should have them: one of each millisecond.
fn stored_samples(env: &TestEnvironment, key: i64) -> Stored {
    let mut reader = env.reader();
    let mut all = Stored::new();
    for row in reader.series(SeriesScope::Job(key)).unwrap() {
        let (unit, divisor) = match row.unit.as_str() {
            "nanoseconds" => ("_seconds", 1e9),
            "bytes" => ("_bytes", 1.0),
            "pages" => ("_pages", 1.0),
            "count" => ("", 1.0),
            other => panic!("unexpected unit {other} of {}", row.metric),
        };
        let mut name = format!("polymeter_{}", row.metric.replace('.', "_"));
        if !name.ends_with(unit) {
            name.push_str(unit);
        }
        if row.kind == "counter" {
            name.push_str("_total");
        }
        let own = row.labels.iter().map(|(label, value)| (label.to_owned(), value.to_owned()));
        let fixed = [("__name__", name.as_str()), ("jobid", JOB), ("node", row.node.as_str())];
        let labels = own.chain(fixed.map(|(label, value)| (label.to_owned(), value.to_owned()))).collect();
        let mut values: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
        for (time_ns, value) in reader.points(row.series_id, i64::MIN..i64::MAX).unwrap() {
            values.entry(time_ns / 1_000_000).or_default().push(value / divisor);
        }
        assert!(all.insert(labels, values).is_none());
    }
    all
}

fn assert_same(labels: &Labels, expected: &BTreeMap<i64, Vec<f64>>, found: &[(i64, f64)]) {
    let times: Vec<i64> = found.iter().map(|(ms, _)| *ms).collect();
    assert_eq!(expected.keys().copied().collect::<Vec<_>>(), times, "{labels:?}");
    for (values, (ms, found)) in expected.values().zip(found) {
        // VictoriaMetrics keeps 15 digits.
        assert!(
            values.iter().any(|value| (value - found).abs() <= value.abs() * 1e-14),
            "{labels:?} {ms} {values:?} {found}"
        );
    }
}
