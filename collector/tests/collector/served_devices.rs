//! Tests of devices outside the nodes: their power and traffic belong to the jobs of the nodes that they
//! serve, in the time of the jobs, for those who may see the jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use polymeter_analysis::gather::gather;
use polymeter_analysis::model::{DeviceMeasurement, DeviceQuantity, Report};
use polymeter_proto::batch::{Column, Job, Shape};
use polymeter_proto::ledger::Event;
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::read::{JobsOf, Query, SampleSet};
use polymeter_proto::series::{
    Kind as MetricKind, Labels, MetricDescriptor, MetricId, Number, SeriesId, ShapeId, Unit,
};
use polymeter_store::reader::{Access, GuardedReader, JobRow, Read, RowBlock, SeriesOwner, SeriesScope};

use crate::energy::{ALICE, BOB, owned};
use crate::rollups::restart;
use crate::support::agent::Agent;
use crate::support::sql::query_as;
use crate::support::{TestEnvironment, now_us, wait_until};

scenarios! {
    jobs_have_the_measurements_of_the_devices_of_their_nodes,
    an_agent_that_returns_finds_the_series_of_its_devices,
}

const SECOND_US: i64 = 1_000_000;

/// Time between two samples, length of the recording, and the times of the two jobs.
const STEP_S: i64 = 5;
const RECORDED_S: i64 = 1500;
const OF_ALICE_S: (i64, i64) = (300, 900);
const OF_BOB_S: (i64, i64) = (600, 1200);

/// Metric, device, node that it serves, and a further label. The series without a node, and those of a node
/// without jobs, are nobody's.
type Series = (&'static str, &'static str, &'static str, (&'static str, &'static str));

const SERIES: [Series; 11] = [
    ("device.pdu3.outlet.power", "pdu3", "n1", ("outlet", "1")),
    ("device.pdu4.outlet.power", "pdu4", "n1", ("outlet", "1")),
    ("device.meter1.power", "meter1", "n1", ("", "")),
    ("device.sw2.port.receive.bytes", "sw2", "n1", ("port", "1")),
    ("device.sw2.port.transmit.bytes", "sw2", "n1", ("port", "1")),
    ("device.pdu3.outlet.power", "pdu3", "n2", ("outlet", "2")),
    ("device.sw2.port.receive.bytes", "sw2", "n2", ("port", "2")),
    ("device.sw2.port.transmit.bytes", "sw2", "n2", ("port", "2")),
    ("device.sw2.port.transmit.bytes", "sw2", "n4", ("port", "4")),
    ("device.pdu3.outlet.power", "pdu3", "n4", ("outlet", "4")),
    ("device.pdu3.total.power", "pdu3", "", ("", "")),
];

fn is_power(metric: &str) -> bool {
    metric.ends_with("power")
}

/// Value of a series at a second: a power that rises, or a counter that rises ever faster.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn value(number: usize, second: i64) -> f64 {
    let (factor, second) = (number as f64 + 1.0, second as f64);
    if is_power(SERIES[number].0) {
        factor * 100.0 + second / 10.0
    } else {
        factor * (1e6 * second + 100.0 * second * second)
    }
}

/// What a series measured from a second to another one, both with a sample: each power holds since the sample
/// before.
#[expect(clippy::cast_precision_loss, reason = "a small number")]
fn total(number: usize, (begin_s, end_s): (i64, i64)) -> f64 {
    if !is_power(SERIES[number].0) {
        return value(number, end_s) - value(number, begin_s);
    }
    let mut joules = 0.0;
    let mut second = begin_s + STEP_S;
    while second <= end_s {
        joules += value(number, second) * STEP_S as f64;
        second += STEP_S;
    }
    joules
}

fn columns() -> Vec<Column> {
    let names: BTreeSet<&str> = SERIES.iter().map(|(metric, ..)| *metric).collect();
    let column = |(number, (metric, device, node, other)): (u32, &Series)| {
        let power = (Unit::Watts, MetricKind::Gauge, Number::Float);
        let bytes = (Unit::Bytes, MetricKind::Counter, Number::Float);
        let (unit, kind, of) = if is_power(metric) { power } else { bytes };
        let labels = [("device", *device), ("node", *node), *other];
        let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let id = names.iter().position(|name| name == metric).unwrap();
        Column {
            series: SeriesId(number),
            metric: (
                MetricId(u32::try_from(id).unwrap() + 1),
                MetricDescriptor { name: MetricName::new(*metric).unwrap(), unit, kind, number: of },
            ),
            labels: Labels::new(labels).unwrap(),
        }
    };
    (1..).zip(&SERIES).map(column).collect()
}

fn shape(job: Option<&Arc<Job>>, columns: Vec<Column>) -> Arc<Shape> {
    let (source, period) = ("source".try_into().unwrap(), Period::SECOND);
    Arc::new(Shape { id: ShapeId(1), job: job.cloned(), source, period, window: None, columns })
}

/// Sends the samples of all devices.
fn poll(environment: &TestEnvironment, endpoint: &str, session: u64, begin_us: i64) {
    let mut agent = Agent::new(&environment.context, endpoint, "devices1", session);
    let of_devices = shape(None, columns());
    for second in (0..=RECORDED_S).step_by(5) {
        let values: Vec<_> = (0..SERIES.len()).map(|number| Some(value(number, second).to_bits())).collect();
        agent.frame(&[(&of_devices, begin_us + second * SECOND_US, &values)], &[], &[]);
    }
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

/// Runs a job on a node.
fn run(
    environment: &TestEnvironment,
    endpoint: &str,
    place: (&str, u64),
    job: &Arc<Job>,
    span_us: (i64, i64),
) {
    let (node, session) = place;
    let mut agent = Agent::new(&environment.context, endpoint, node, session);
    let column = Column {
        series: SeriesId(1),
        metric: (
            MetricId(1),
            MetricDescriptor {
                name: MetricName::new("cpu.usage").unwrap(),
                unit: Unit::Nanoseconds,
                kind: MetricKind::Counter,
                number: Number::Unsigned,
            },
        ),
        labels: Labels::default(),
    };
    let of_job = shape(Some(job), vec![column]);
    for at_us in [span_us.0, span_us.1] {
        agent.frame(&[(&of_job, at_us, &[Some(1)])], &[], &[]);
    }
    agent.frame(&[], &[], &[Event::JobEnded { job: job.handle, at_us: span_us.1 }]);
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

/// Records a job of alice on n1 and n2, one of bob on n2 and n3, and the devices. Returns the jobs.
fn record(environment: &mut TestEnvironment, begin_us: i64) -> Vec<JobRow> {
    let collector = environment.collector();
    let at = |(begin_s, end_s): (i64, i64)| (begin_us + begin_s * SECOND_US, begin_us + end_s * SECOND_US);
    for (number, (node, uid, span_s)) in
        [("n1", ALICE, OF_ALICE_S), ("n2", ALICE, OF_ALICE_S), ("n2", BOB, OF_BOB_S), ("n3", BOB, OF_BOB_S)]
            .into_iter()
            .enumerate()
    {
        let id = if uid == ALICE { "1" } else { "2" };
        let job = owned(1, id, uid, at(span_s).0);
        run(environment, collector.endpoint(), (node, number as u64 + 1), &job, at(span_s));
    }
    poll(environment, collector.endpoint(), 9, begin_us);
    // Maintenance may have claimed the time before the samples arrived.
    let collector = restart(environment, collector);
    let all = "SELECT CASE (SELECT sum(count) FROM samples_1min) WHEN (SELECT count(*) FROM samples) THEN 'all' END";
    wait_until("the rollups have all samples", || environment.lines(all) == ["all"]);
    collector.stop().unwrap();
    environment.execute(
        "UPDATE job SET owner = CASE job_id WHEN '1' THEN 'alice' ELSE 'bob' END, account = 'of' || job_id",
    );
    let mut jobs = environment.jobs();
    jobs.sort_by(|one, other| one.job_id.cmp(&other.job_id));
    assert_eq!(jobs.iter().map(|job| job.nodes.clone()).collect::<Vec<_>>(), [["n1", "n2"], ["n2", "n3"]]);
    jobs
}

fn manager(account: &str) -> Access {
    Access::Jobs(JobsOf { uid: 77, accounts: vec![account.to_owned()] })
}

fn report(environment: &TestEnvironment, access: Access, job: &JobRow) -> Report {
    gather(&mut GuardedReader::new(environment.reader(), access), job, Some(4)).unwrap()
}

/// Measurements that the job has to have: node, quantity, devices, whether the node is shared, and the total.
fn expected(job_id: &str) -> Vec<(&'static str, DeviceQuantity, Vec<&'static str>, bool, f64)> {
    use DeviceQuantity::{FromNode, Power, ToNode};
    let span_s = if job_id == "1" { OF_ALICE_S } else { OF_BOB_S };
    let of = |number| total(number, span_s);
    let of_n2 = vec![
        ("n2", Power, vec!["pdu3"], true, of(5)),
        ("n2", ToNode, vec!["sw2"], true, of(7)),
        ("n2", FromNode, vec!["sw2"], true, of(6)),
    ];
    if job_id == "2" {
        return of_n2;
    }
    let of_n1 = [
        ("n1", Power, vec!["pdu3", "pdu4"], false, of(0) + of(1)),
        ("n1", Power, vec!["meter1"], false, of(2)),
        ("n1", ToNode, vec!["sw2"], false, of(4)),
        ("n1", FromNode, vec!["sw2"], false, of(3)),
    ];
    of_n1.into_iter().chain(of_n2).collect()
}

fn assert_measured(found: &[DeviceMeasurement], job_id: &str) {
    let expected = expected(job_id);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (one, (node, quantity, devices, is_shared, total)) in found.iter().zip(expected) {
        let described = (one.node.as_str(), one.quantity, one.is_shared, one.devices.as_slice());
        assert_eq!((described.0, described.1, described.2), (node, quantity, is_shared), "{found:#?}");
        assert_eq!(described.3, devices, "{found:#?}");
        let value = one.joules.or(one.bytes).unwrap();
        assert!((value / total - 1.0).abs() < 1e-9, "{one:?}, not {total}");
        let watts = one.joules.map(|joules| joules / 600.0);
        assert_eq!(watts.map(f64::round), one.watts_mean.map(f64::round), "{one:?}");
    }
}

fn jobs_have_the_measurements_of_the_devices_of_their_nodes(environment: &mut TestEnvironment) {
    let begin_us = (now_us() / SECOND_US - 2 * 3600) * SECOND_US;
    let jobs = record(environment, begin_us);
    for (job, access) in [
        (&jobs[0], Access::owner(ALICE)),
        (&jobs[0], manager("of1")),
        (&jobs[0], Access::Support),
        (&jobs[1], Access::owner(BOB)),
        (&jobs[1], manager("of2")),
        (&jobs[1], Access::All),
    ] {
        let report = report(environment, access, job);
        assert_measured(&report.devices, &job.job_id);
        // Series of nodes that the job had alone have charts.
        let series: BTreeSet<(&str, &str)> = report
            .series
            .iter()
            .filter(|series| series.metric.starts_with("device."))
            .map(|series| (series.node.as_str(), series.metric.as_str()))
            .collect();
        let alone = SERIES.iter().filter(|series| job.job_id == "1" && series.2 == "n1");
        assert_eq!(series, alone.map(|(metric, _, node, _)| (*node, *metric)).collect());
    }
    assert_guarded(environment, &jobs, begin_us);
    assert_views(environment, &jobs);
    if environment.server.is_some() {
        assert_views_of_users(environment);
    }
}

/// Times of the samples that a reader gets of all series, by the node that they are about.
fn times_s(
    environment: &TestEnvironment,
    access: Access,
    job: &JobRow,
    begin_us: i64,
) -> BTreeMap<String, (i64, i64)> {
    let mut guard = GuardedReader::new(environment.reader(), access);
    let reader: &mut dyn Read = &mut guard;
    let series = reader.device_series(job.job_key).unwrap();
    let nodes: BTreeMap<i64, String> = series.into_iter().map(|row| (row.series_id, row.node)).collect();
    let mut times: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    let query = Query::Samples {
        of: SeriesOwner::NodesOf(job.job_key),
        series: (0..1000).collect(),
        span_ns: 0..i64::MAX,
        set: SampleSet::Plan,
    };
    reader
        .read(&query, &mut |block| {
            let RowBlock::Samples(rows) = block else { panic!("{block:?}") };
            for row in rows {
                let second = (row.time_ns / 1000 - begin_us) / SECOND_US;
                let ends = times.entry(nodes[&row.series_id].clone()).or_insert((second, second));
                *ends = (ends.0.min(second), ends.1.max(second));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    times
}

/// Users and managers read the series of the nodes of their jobs, a minute around the time of the job.
fn assert_guarded(environment: &TestEnvironment, jobs: &[JobRow], begin_us: i64) {
    let of = |access, job: &JobRow| times_s(environment, access, job, begin_us);
    // The end is excluded.
    let around = |(begin_s, end_s): (i64, i64)| (begin_s - 60, end_s + 60 - STEP_S);
    let of_alice = [("n1", around(OF_ALICE_S)), ("n2", around(OF_ALICE_S))];
    let of_bob = [("n2", around(OF_BOB_S))];
    let named = |times: &[(&str, (i64, i64))]| {
        times.iter().map(|(node, ends)| ((*node).to_owned(), *ends)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(of(Access::owner(ALICE), &jobs[0]), named(&of_alice));
    assert_eq!(of(manager("of1"), &jobs[0]), named(&of_alice));
    assert_eq!(of(Access::owner(BOB), &jobs[1]), named(&of_bob));
    for (access, job) in
        [(Access::owner(BOB), &jobs[0]), (Access::owner(ALICE), &jobs[1]), (manager("of2"), &jobs[0])]
    {
        assert_eq!(of(access.clone(), job), BTreeMap::new(), "{access:?}");
        assert_eq!(report(environment, access, job).devices, []);
    }
    // Administrators see the series of the agent and those about a node; users neither.
    let mut reader = environment.reader();
    assert_eq!(reader.series(SeriesScope::Node("devices1")).unwrap().len(), SERIES.len());
    let about = reader.series(SeriesScope::Node("n4")).unwrap();
    assert_eq!(about.iter().map(|row| row.node.as_str()).collect::<Vec<_>>(), ["n4", "n4"]);
    let mut guard = GuardedReader::new(environment.reader(), Access::owner(ALICE));
    let reader: &mut dyn Read = &mut guard;
    assert_eq!(reader.series(SeriesScope::Node("n1")).unwrap(), []);
}

/// Values in the views: the number, and the sum of the powers, by node.
const IN_VIEW: &str = "SELECT device_id || ' ' || count(*) || ' ' || CAST(sum(CASE WHEN metric_id LIKE '%.power' THEN value ELSE 0 END) AS text)
    FROM metrics_by_job WHERE job_id = '{job}' AND metric_id LIKE 'device.%' GROUP BY device_id ORDER BY 1";

fn of_view(job: &str) -> String {
    IN_VIEW.replace("{job}", job)
}

fn assert_of_view(lines: &str, job_id: &str) {
    let (begin_s, end_s) = if job_id == "1" { OF_ALICE_S } else { OF_BOB_S };
    let nodes: &[&str] = if job_id == "1" { &["n1", "n2"] } else { &["n2"] };
    let lines: Vec<Vec<&str>> = lines.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.iter().map(|line| line[0]).collect::<Vec<_>>(), nodes, "{lines:?}");
    for line in lines {
        let own = || (0..SERIES.len()).filter(|number| SERIES[*number].2 == line[0]);
        let seconds = || (begin_s..=end_s).step_by(5);
        assert_eq!(line[1], (own().count() * seconds().count()).to_string(), "{line:?}");
        let watts: f64 = own()
            .filter(|number| is_power(SERIES[*number].0))
            .flat_map(|number| seconds().map(move |second| value(number, second)))
            .sum();
        let found: f64 = line[2].parse().unwrap();
        assert!((found / watts - 1.0).abs() < 1e-9, "{line:?}, not {watts}");
    }
}

fn assert_views(environment: &TestEnvironment, jobs: &[JobRow]) {
    for job in jobs {
        let lines = environment.lines(&of_view(&job.job_id));
        assert_of_view(&lines.join("\n"), &job.job_id);
        // Whole minutes.
        let nodes = "SELECT DISTINCT device_id FROM metrics_by_job_summary WHERE metric_id LIKE 'device.%' AND job_id";
        let expected: &[&str] = if job.job_id == "1" { &["n1", "n2"] } else { &["n2"] };
        assert_eq!(environment.lines(&format!("{nodes} = '{}' ORDER BY 1", job.job_id)), expected);
    }
    let all = "SELECT device_id || ' ' || count(*) FROM metrics WHERE metric_id LIKE 'device.%' GROUP BY device_id ORDER BY 1";
    assert_eq!(environment.lines(all), ["devices1 301", "n1 1505", "n2 903", "n4 602"]);
}

/// Two users and a manager of the database.
fn assert_views_of_users(environment: &mut TestEnvironment) {
    environment.execute(
        "CREATE ROLE alice LOGIN IN ROLE polymeter_user; CREATE ROLE bob LOGIN IN ROLE polymeter_user;
         CREATE ROLE dora LOGIN IN ROLE polymeter_user; CREATE ROLE carol LOGIN IN ROLE polymeter_user;
         INSERT INTO account_manager VALUES ('of1', 'dora')",
    );
    let server = environment.server.as_ref().unwrap();
    for (user, own, other) in [("alice", "1", "2"), ("dora", "1", "2"), ("bob", "2", "1")] {
        assert_of_view(query_as(server, user, &of_view(own)).trim(), own);
        assert_eq!(query_as(server, user, &of_view(other)).trim(), "", "{user}");
        let functions = format!(
            "SELECT count(*) FROM get_metrics(job => '{own}', metrics => 'device.pdu3.outlet.power'),
                 (SELECT count(*) AS others FROM get_metrics(job => '{other}', metrics => 'device.pdu3.outlet.power')) AS other
             WHERE others = 0"
        );
        let values = if own == "1" { "242" } else { "121" };
        assert_eq!(query_as(server, user, &functions).trim(), values, "{user}");
        // Once each, and in the time of the own jobs.
        let all = "SELECT string_agg(device_id || ' ' || count, ',' ORDER BY device_id) FROM (
             SELECT device_id, count(*) AS count FROM metrics WHERE metric_id LIKE 'device.%' GROUP BY device_id) AS nodes";
        let expected = if own == "1" { "n1 605,n2 363" } else { "n2 363" };
        assert_eq!(query_as(server, user, all).trim(), expected, "{user}");
        let minutes =
            "SELECT string_agg(DISTINCT device_id, ',') FROM metrics_summary WHERE metric_id LIKE 'device.%'";
        assert_eq!(query_as(server, user, minutes).trim(), if own == "1" { "n1,n2" } else { "n2" });
    }
    for view in ["metrics", "metrics_by_job", "metrics_summary", "metrics_by_job_summary"] {
        let count = format!("SELECT count(*) FROM {view}");
        assert_eq!(query_as(server, "carol", &count).trim(), "0", "{view}");
    }
}

/// The series of a device have ids of their own, one for each value, whichever session announces them.
fn an_agent_that_returns_finds_the_series_of_its_devices(environment: &mut TestEnvironment) {
    let begin_us = (now_us() / SECOND_US - 2 * 3600) * SECOND_US;
    let collector = environment.collector();
    poll(environment, collector.endpoint(), 1, begin_us);
    let known = environment.lines(
        "SELECT series_id || node || measured_node || metric || labels FROM series ORDER BY series_id",
    );
    assert_eq!(known.len(), SERIES.len());
    poll(environment, collector.endpoint(), 2, begin_us + RECORDED_S * SECOND_US);
    collector.stop().unwrap();
    let again = environment.lines(
        "SELECT series_id || node || measured_node || metric || labels FROM series ORDER BY series_id",
    );
    assert_eq!(again, known);
    assert_eq!(environment.number("SELECT count(*) FROM series_block"), 4, "a block for each node");
    assert_eq!(environment.number("SELECT count(*) FROM series_block WHERE served_node IS NULL"), 1);
    assert_eq!(environment.number("SELECT count(*) FROM samples"), 2 * 301 * 11);
}
