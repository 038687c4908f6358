//! Tests of devices whose labels name jobs: their values belong to these jobs, while they run there, and only
//! some agents may state values about other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polymeter_analysis::gather::gather;
use polymeter_collector::ingest::DeviceAgents;
use polymeter_collector::{Collector, CollectorConfig};
use polymeter_proto::batch::{Column, Job, Shape};
use polymeter_proto::ledger::Event;
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    JobDescriptor, JobHandle, Kind as MetricKind, Labels, MetricDescriptor, MetricId, Number, SeriesId,
    ShapeId, Unit,
};
use polymeter_store::reader::{Access, GuardedReader, JobRow, Read, SeriesScope};

use crate::energy::{ALICE, BOB};
use crate::support::agent::{Agent, job};
use crate::support::sql::query_as;
use crate::support::{TestEnvironment, now_us};

scenarios! {
    series_of_devices_belong_to_the_jobs_that_their_labels_name,
    compute_nodes_state_no_values_about_others,
    listed_agents_state_values_about_others,
}

const SECOND_US: i64 = 1_000_000;
const STEP_S: i64 = 5;
const RECORDED_S: i64 = 1500;

/// Time of all jobs, and the time around it that belongs to them.
const JOB_S: (i64, i64) = (300, 900);
const AROUND_S: (i64, i64) = (JOB_S.0 - 60, JOB_S.1 + 60);

/// Cluster and node of the job that a series belongs to.
type Owner = Option<(&'static str, &'static str)>;

type Pairs = &'static [(&'static str, &'static str)];

/// Series of the agent that polls.
const SERIES: [(&str, Pairs, Owner); 9] = [
    ("device.gpus1.power", &[("node", "n1"), ("job_id", "1"), ("gpu", "0")], Some(("a", "n1"))),
    ("device.gpus2.power", &[("node", "n2"), ("job_id", "1"), ("gpu", "0")], Some(("b", "n2"))),
    ("device.slurm.memory", &[("job_id", "1"), ("job_cluster", "a")], Some(("a", "n1"))),
    ("device.slurm.memory", &[("job_id", "1"), ("job_cluster", "b")], Some(("b", "n2"))),
    // Two clusters have such a job.
    ("device.slurm.memory", &[("job_id", "1")], None),
    // It runs on another node, and in another cluster.
    ("device.gpus1.power", &[("node", "n1"), ("job_id", "2"), ("gpu", "0")], None),
    ("device.gpus1.power", &[("node", "n1"), ("job_id", "1"), ("job_cluster", "b")], None),
    ("device.gpus1.power", &[("node", "n1"), ("job_id", "99"), ("gpu", "0")], None),
    // It names no job, and is the node's.
    ("device.gpus1.idle", &[("node", "n1"), ("gpu", "1")], None),
];

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn value(number: usize, second: i64) -> f64 {
    (number as f64 + 1.0) * 1e6 + second as f64
}

fn columns(series: &[(&str, Pairs)]) -> Vec<Column> {
    let names: BTreeSet<&str> = series.iter().map(|(metric, _)| *metric).collect();
    let column = |(number, (metric, labels)): (u32, &(&str, Pairs))| {
        let device = metric.split('.').nth(1).unwrap();
        let pairs = [("device", device)].into_iter().chain(labels.iter().copied());
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let id = names.iter().position(|name| name == metric).unwrap();
        let name = MetricName::new((*metric).to_owned()).unwrap();
        let (unit, kind, of) = (Unit::Watts, MetricKind::Gauge, Number::Float);
        Column {
            series: SeriesId(number),
            metric: (
                MetricId(u32::try_from(id).unwrap() + 1),
                MetricDescriptor { name, unit, kind, number: of },
            ),
            labels: Labels::new(pairs).unwrap(),
        }
    };
    (1..).zip(series).map(column).collect()
}

fn shape(id: u32, job: Option<&Arc<Job>>, columns: Vec<Column>) -> Arc<Shape> {
    let (source, period) = ("source".try_into().unwrap(), Period::SECOND);
    Arc::new(Shape { id: ShapeId(id), job: job.cloned(), source, period, window: None, columns })
}

fn poll(agent: &mut Agent, begin_us: i64, series: &[(&str, Pairs)]) {
    let shape = shape(9, None, columns(series));
    for second in (0..=RECORDED_S).step_by(5) {
        let values: Vec<_> = (0..series.len()).map(|number| Some(value(number, second).to_bits())).collect();
        agent.frame(&[(&shape, begin_us + second * SECOND_US, &values)], &[], &[]);
    }
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

/// Runs a job of a cluster on the node of an agent.
fn run(agent: &mut Agent, begin_us: i64, (cluster, job_id, uid): (&str, &str, u32)) {
    let (started_us, ended_us) = (begin_us + JOB_S.0 * SECOND_US, begin_us + JOB_S.1 * SECOND_US);
    let Job { descriptor, .. } = (*job(1, job_id, started_us)).clone();
    let cluster = Some(cluster.try_into().unwrap());
    let descriptor = JobDescriptor { cluster, owner_uid: Some(uid), owner: None, ..descriptor };
    let job = Arc::new(Job { handle: JobHandle(1), descriptor });
    let column = Column {
        series: SeriesId(101),
        metric: (
            MetricId(101),
            MetricDescriptor {
                name: MetricName::new("cpu.usage").unwrap(),
                unit: Unit::Nanoseconds,
                kind: MetricKind::Counter,
                number: Number::Unsigned,
            },
        ),
        labels: Labels::default(),
    };
    let of_job = shape(1, Some(&job), vec![column]);
    for at_us in [started_us, ended_us] {
        agent.frame(&[(&of_job, at_us, &[Some(1)])], &[], &[]);
    }
    agent.frame(&[], &[], &[Event::JobEnded { job: job.handle, at_us: ended_us }]);
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

fn begin_us() -> i64 {
    (now_us() / SECOND_US - 2 * 3600) * SECOND_US
}

/// Jobs by cluster, of those with this id.
fn jobs(environment: &TestEnvironment, job_id: &str) -> BTreeMap<String, JobRow> {
    let of_id = environment.jobs().into_iter().filter(|job| job.job_id == job_id);
    of_id.map(|job| (job.cluster.clone().unwrap(), job)).collect()
}

fn series_of_devices_belong_to_the_jobs_that_their_labels_name(environment: &mut TestEnvironment) {
    let (begin_us, collector) = (begin_us(), environment.collector());
    let place = [("n1", ("a", "1", ALICE)), ("n2", ("b", "1", BOB)), ("n3", ("b", "2", BOB))];
    for (session, (node, of)) in (1..).zip(place) {
        run(&mut Agent::to(&environment.context, &collector, node, session), begin_us, of);
    }
    let series: Vec<_> = SERIES.iter().map(|(metric, labels, _)| (*metric, *labels)).collect();
    poll(&mut Agent::to(&environment.context, &collector, "devices1", 9), begin_us, &series);
    collector.stop().unwrap();
    environment.execute("UPDATE job SET owner = CASE cluster WHEN 'a' THEN 'alice' ELSE 'bob' END");
    let jobs = jobs(environment, "1");
    for (cluster, node, uid, other) in [("a", "n1", ALICE, BOB), ("b", "n2", BOB, ALICE)] {
        let job = &jobs[cluster];
        assert_eq!(job.nodes, [node], "the agent that polls is no node of the job");
        assert_samples(environment, job, (cluster, node));
        let mut guard = GuardedReader::new(environment.reader(), Access::owner(uid));
        let report = gather(&mut guard, job, Some(4)).unwrap();
        let measured: Vec<_> =
            report.series.iter().filter(|series| series.metric.starts_with("device.")).collect();
        assert_eq!(measured.len(), 2 + usize::from(cluster == "a"), "{measured:?}");
        assert!(measured.iter().all(|series| series.node == node), "{measured:?}");
        let mut stranger = GuardedReader::new(environment.reader(), Access::owner(other));
        let reader: &mut dyn Read = &mut stranger;
        assert_eq!(reader.series(SeriesScope::Job(job.job_key)).unwrap(), []);
        assert_eq!(reader.device_series(job.job_key).unwrap(), []);
    }
    // Of the nodes of the job only what names no job.
    let of_node = environment.reader().series(SeriesScope::NodesOf(jobs["a"].job_key)).unwrap();
    assert_eq!(of_node.iter().map(|row| row.metric.as_str()).collect::<Vec<_>>(), ["device.gpus1.idle"]);
    let polled = environment.reader().series(SeriesScope::Node("devices1")).unwrap();
    let others = polled.iter().filter(|row| row.node == "devices1").count();
    // What belongs to jobs is the agent's own before and after them.
    assert_eq!(others, 8, "{polled:?}");
    assert_eq!(environment.number("SELECT count(*) FROM samples WHERE value > 100"), 9 * 301);
    assert_eq!(environment.number("SELECT count(*) FROM loss"), 0);
    if environment.server.is_some() {
        assert_views_of_users(environment);
    }
}

/// Compares the samples of a job with those of the series that name it.
fn assert_samples(environment: &TestEnvironment, job: &JobRow, place: (&str, &str)) {
    let own = || (0..SERIES.len()).filter(|number| SERIES[*number].2 == Some(place));
    let seconds = || (AROUND_S.0..=AROUND_S.1).step_by(5);
    let expected: f64 = own().flat_map(|number| seconds().map(move |second| value(number, second))).sum();
    let rows = environment.rows(&format!(
        "SELECT count(*), sum(value) FROM samples JOIN series USING (series_id)
         WHERE job_key = {} AND metric LIKE 'device.%'",
        job.job_key
    ));
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let count = (own().count() * seconds().count()) as f64;
    assert_eq!(rows, [[count, expected]]);
}

fn assert_views_of_users(environment: &mut TestEnvironment) {
    environment.execute(
        "CREATE ROLE alice LOGIN IN ROLE polymeter_user; CREATE ROLE bob LOGIN IN ROLE polymeter_user;
         CREATE ROLE carol LOGIN IN ROLE polymeter_user",
    );
    let server = environment.server.as_ref().unwrap();
    let samples = (AROUND_S.1 - AROUND_S.0) / STEP_S + 1;
    let of_node = (JOB_S.1 - JOB_S.0) / STEP_S + 1;
    for (user, expected) in [
        (
            "alice",
            format!("device.gpus1.idle {of_node},device.gpus1.power {samples},device.slurm.memory {samples}"),
        ),
        ("bob", format!("device.gpus2.power {samples},device.slurm.memory {samples}")),
        ("carol", String::new()),
    ] {
        for view in ["metrics_by_job", "metrics"] {
            let query = format!(
                "SELECT string_agg(metric_id || ' ' || count, ',' ORDER BY metric_id) FROM (
                     SELECT metric_id, count(*) AS count FROM {view} WHERE metric_id LIKE 'device.%' GROUP BY 1) AS rows"
            );
            assert_eq!(query_as(server, user, &query).trim(), expected, "{user}: {view}");
        }
    }
}

/// Series that the agent of a compute node states.
const OF_COMPUTE_NODE: [(&str, Pairs); 4] = [
    ("device.lie.power", &[("node", "n1")]),
    ("device.lie.power", &[("job_id", "1"), ("job_cluster", "a")]),
    ("device.lie.power", &[("node", "n4"), ("job_id", "4")]),
    ("device.lie.power", &[("node", "n4")]),
];

/// Runs a job of alice on n1 and one of bob on n4, whose agent then states values.
fn lie(environment: &TestEnvironment, device_agents: DeviceAgents) -> i64 {
    let config = CollectorConfig { device_agents, ..environment.config() };
    let (begin_us, collector) = (begin_us(), Collector::start(&config, &environment.context).unwrap());
    run(&mut Agent::to(&environment.context, &collector, "n1", 1), begin_us, ("a", "1", ALICE));
    run(&mut Agent::to(&environment.context, &collector, "n4", 2), begin_us, ("a", "4", BOB));
    // Another session of the same node, without a job.
    poll(&mut Agent::to(&environment.context, &collector, "n4", 3), begin_us, &OF_COMPUTE_NODE);
    collector.stop().unwrap();
    environment.number("SELECT count(*) FROM samples WHERE value > 100")
}

fn of_jobs(environment: &TestEnvironment) -> Vec<String> {
    environment.lines(
        "SELECT series.job_id || ' ' || measured_node || ' ' || count(*) FROM samples JOIN series USING (series_id)
         WHERE metric = 'device.lie.power' AND job_key IS NOT NULL GROUP BY series.job_id, measured_node ORDER BY 1",
    )
}

fn compute_nodes_state_no_values_about_others(environment: &mut TestEnvironment) {
    let stored = lie(environment, DeviceAgents::default());
    assert_eq!(stored, 3 * 301, "the others are stored");
    let lost = environment
        .lines("SELECT node || ' ' || reason || ' ' || sum(samples) FROM loss GROUP BY node, reason");
    assert_eq!(lost, ["n4 served_node 301"]);
    assert_eq!(of_jobs(environment), ["4 n4 145"], "a job on the agent's own node");
    let about = environment.lines(
        "SELECT DISTINCT measured_node FROM series WHERE metric = 'device.lie.power' ORDER BY measured_node",
    );
    assert_eq!(about, ["/n4", "n4"], "those that name other jobs are of no node");
}

fn listed_agents_state_values_about_others(environment: &mut TestEnvironment) {
    let stored = lie(environment, ["devices*", "n4"].map(str::to_owned).into_iter().collect());
    assert_eq!((stored, environment.number("SELECT count(*) FROM loss")), (4 * 301, 0));
    assert_eq!(of_jobs(environment), ["1 n1 145", "4 n4 145"]);
}
