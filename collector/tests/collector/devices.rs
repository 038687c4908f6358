//! Tests of sums over devices that contain each other: each byte is summed once, by every reader of a store.

use std::sync::Arc;

use polymeter_analysis::charts;
use polymeter_analysis::gather::gather;
use polymeter_analysis::model::Report;
use polymeter_proto::batch::{Column, Job, Shape};
use polymeter_proto::ledger::Event;
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Kind as MetricKind, Labels, MetricDescriptor, MetricId, Number, SeriesId, ShapeId, Unit,
};
use serde_json::Value;

use crate::api::{get, key};
use crate::energy::owned;
use crate::reading::Fixture;
use crate::support::agent::Agent;
use crate::support::{Kind, TestEnvironment, now_us};

scenarios! {
    each_byte_of_a_stack_is_summed_once,
}

const SECOND_US: i64 = 1_000_000;
const RUNS_S: i64 = 600;

/// Devices of a job with their roles, and the bytes that each reads per second: a volume on an array of two
/// disks, a volume on paths that the kernel does not count for the job, and compressed memory.
const OF_JOB: [(&str, &str, u64); 7] = [
    ("253:0", "stacked 259:1 259:0 9:127", 5_000_000),
    ("9:127", "stacked 259:1 259:0", 5_000_000),
    ("259:0", "physical", 3_000_000),
    ("259:1", "physical", 2_000_000),
    ("253:7", "stacked 8:32 8:16 253:2", 700_000),
    ("253:2", "stacked 8:32 8:16", 700_000),
    ("252:0", "local", 9_000_000),
];
const JOB_READS: u64 = 5_700_000;

/// Interfaces of the node, and the bytes that each receives per second. The last two have no recorded role.
const OF_NODE: [(&str, Option<&str>, u64); 8] = [
    ("lo", Some("local"), 8_000_000),
    ("left", Some("physical"), 1_500_000),
    ("bond-east", Some("physical"), 500_000),
    ("data0", Some("stacked bond-east left"), 2_000_000),
    ("vlan100", Some("stacked bond-east left data0"), 2_000_000),
    ("ovsbr0", Some("stacked"), 2_000_000),
    ("veth7", None, 400_000),
    ("eno9", None, 250_000),
];
const NODE_RECEIVES: u64 = 2_250_000;

fn column(series: u32, metric: u32, name: &'static str, label: (&str, &str), role: Option<&str>) -> Column {
    let descriptor = MetricDescriptor {
        name: MetricName::new(name).unwrap(),
        unit: Unit::Bytes,
        kind: MetricKind::Counter,
        number: Number::Unsigned,
    };
    let labels = Labels::new(vec![(label.0.to_owned(), label.1.to_owned())]).unwrap();
    let labels = labels.with_role(role.map(|role| role.parse().unwrap()));
    Column { series: SeriesId(series), metric: (MetricId(metric), descriptor), labels }
}

fn shape_of(id: u32, job: Option<Arc<Job>>, columns: Vec<Column>) -> Arc<Shape> {
    let source = "source".try_into().unwrap();
    Arc::new(Shape { id: ShapeId(id), job, source, period: Period::SECOND, window: None, columns })
}

fn record(agent: &mut Agent, started_us: i64) {
    let job = owned(1, "4711", 1000, started_us);
    let devices = (0..).zip(&OF_JOB).map(|(number, (name, role, _))| {
        column(10 + number, 1, "io.read.bytes", ("device", *name), Some(*role))
    });
    let interfaces = (0..).zip(&OF_NODE).map(|(number, (name, role, _))| {
        column(50 + number, 2, "node.network.receive.bytes", ("interface", *name), *role)
    });
    let of_job = shape_of(1, Some(Arc::clone(&job)), devices.collect());
    let of_node = shape_of(2, None, interfaces.collect());
    for second in (0..=RUNS_S).step_by(5) {
        let seconds = u64::try_from(second).unwrap();
        let reads = OF_JOB.map(|(_, _, rate)| Some(seconds * rate));
        let received = OF_NODE.map(|(_, _, rate)| Some(1_000_000_000 + seconds * rate));
        let at_us = started_us + second * SECOND_US;
        agent.frame(&[(&of_job, at_us, reads.as_slice()), (&of_node, at_us, received.as_slice())], &[], &[]);
    }
    let ended = Event::JobEnded { job: job.handle, at_us: started_us + RUNS_S * SECOND_US };
    agent.frame(&[], &[], &[ended]);
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

fn increase(environment: &TestEnvironment, metric: &str, of_jobs: &str, of_nodes: &str) -> i64 {
    environment.number(&format!(
        "SELECT round(sum(increase))::int8 FROM samples_chart('{{{metric}}}', {of_jobs}, {of_nodes},
                     now() - interval '1 h', now(), '1 s') AS chart WHERE chart.is_summed"
    ))
}

fn each_byte_of_a_stack_is_summed_once(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    let started_us = now_us() - 2 * RUNS_S * SECOND_US;
    record(&mut Agent::to(&environment.context, &fixture.collector, "stacked", 77), started_us);
    assert_roles(environment);
    let rows = environment.jobs();
    let row = rows.iter().find(|row| row.job_id == "4711").unwrap();
    assert_report(&gather(&mut environment.reader(), row, Some(4)).unwrap());
    assert_answers(&fixture, started_us);
    if environment.kind != Kind::Sqlite {
        let whole = |rate: u64| i64::try_from(rate).unwrap() * RUNS_S;
        let of_jobs = format!("ARRAY[{}]::int8[]", row.job_key);
        assert_eq!(increase(environment, "io.read.bytes", &of_jobs, "NULL"), whole(JOB_READS));
        assert_eq!(
            increase(environment, "node.network.receive.bytes", "NULL", "'{stacked}'"),
            whole(NODE_RECEIVES)
        );
    }
    fixture.collector.stop().unwrap();
}

fn assert_roles(environment: &TestEnvironment) {
    let roles = environment.lines(
        "SELECT DISTINCT metric || ' ' || coalesce(role, '-') FROM series WHERE node = 'stacked' AND role NOT LIKE 'stacked %'
         ORDER BY 1",
    );
    let expected = [
        "io.read.bytes local",
        "io.read.bytes physical",
        "node.network.receive.bytes local",
        "node.network.receive.bytes physical",
        "node.network.receive.bytes stacked",
    ];
    assert_eq!(roles, expected);
    let of_volume = "SELECT role FROM series WHERE node = 'stacked' AND CAST(labels AS text) LIKE '%253:0%'";
    assert_eq!(environment.lines(of_volume), [OF_JOB[0].1]);
}

fn assert_report(report: &Report) {
    let seconds = RUNS_S as f64;
    assert_eq!(report.used.read_bytes, Some(JOB_READS as f64 * seconds));
    assert_eq!(report.by_node[0].used.read_bytes, report.used.read_bytes);
    let shown = report.series.iter().filter(|series| series.metric == "io.read.bytes").count();
    assert_eq!(shown, OF_JOB.len(), "single devices stay visible");
    let [traffic] = &report.traffic[..] else { panic!("{:?}", report.traffic) };
    assert!((traffic.received_bytes / (NODE_RECEIVES as f64 * seconds) - 1.0).abs() < 0.02, "{traffic:?}");
    let charts = charts::of(report);
    for (id, rate) in [("read", JOB_READS), ("receive", NODE_RECEIVES)] {
        let chart = charts.charts.iter().find(|chart| chart.id == id).unwrap();
        assert!((chart.extent.mean / rate as f64 - 1.0).abs() < 0.02, "{id}: {:?}", chart.extent);
    }
}

fn role_and_below(series: &Value, name: &str) -> (Value, Value) {
    let all = series["series"].as_array().unwrap();
    let one = all.iter().find(|one| one["labels"]["interface"] == name).unwrap();
    (one["role"].clone(), one["below"].clone())
}

/// Answers over HTTP must sum the bytes of the job once, and have the roles.
fn assert_answers(fixture: &Fixture, started_us: i64) {
    let key = key(fixture, "4711");
    let time = format!("from_us={started_us}&until_us={}&points=10", started_us + RUNS_S * SECOND_US);
    let course = get(0, &fixture.api, &format!("/api/v1/jobs/{key}/course?quantity=read&{time}")).json();
    let mean = course["mean"].as_f64().unwrap();
    assert!((mean / JOB_READS as f64 - 1.0).abs() < 0.02, "{course}");
    let series = get(0, &fixture.api, "/api/v1/nodes/stacked/series").json();
    assert_eq!(role_and_below(&series, "data0"), ("stacked".into(), Value::from(vec!["bond-east", "left"])));
    assert_eq!(
        role_and_below(&series, "eno9"),
        ("physical".into(), Value::from(Vec::<String>::new())),
        "by its name"
    );
}
