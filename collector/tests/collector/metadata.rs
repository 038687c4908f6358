//! Tests of the lists that jobs share: series, changes of plan, lines of the ledger; in each kind of store.

use std::ops::Range;
use std::sync::Arc;
use std::thread;

use polymeter_collector::{Collector, CollectorConfig, limits};
use polymeter_proto::batch::{Column, Shape};
use polymeter_proto::ledger::{Cause, Event, PlanChange};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::series::{
    JobHandle, Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId, ShapeId, Unit,
};

use crate::support::agent::{Agent, job, shape, values};
use crate::support::{TestEnvironment, now_us};

scenarios! {
    jobs_share_the_lists_of_their_series_and_plans,
    collectors_register_the_same_series_once,
    series_of_users_are_bounded_over_restarts,
    units_of_a_metric_are_never_mixed,
}

const SERIES: &str = "SELECT series_id || '|' || node || '|' || metric || '|' || coalesce(CAST(job_key AS text), '-') || '|' || coalesce(job_id, '-')
         || '|' || CAST(labels AS text) FROM series ORDER BY series_id";

/// Number of blocks in which no series is inserted twice, or has the id of another one.
const TWICE: &str = "SELECT (SELECT count(*) FROM (
         SELECT 1 FROM series GROUP BY node, metric, job_key, labels HAVING count(*) > 1) AS same)
     + (SELECT count(*) FROM (SELECT 1 FROM series GROUP BY series_id HAVING count(*) > 1) AS same_id)";

/// Changes of plan are the same for all jobs.
fn send_jobs(environment: &TestEnvironment, collector: &Collector, session: u64, nodes: &[&str]) {
    let begin_us = now_us();
    for (number, node) in (1_u64..).zip(nodes) {
        let mut agent = Agent::to(&environment.context, collector, node, session + number);
        let job = job(1, &format!("on {node}"), begin_us);
        let events = ["memory.current", "cpu.usage"].map(|metric| {
            Event::PlanChange(PlanChange {
                at_us: begin_us,
                job: Some(JobHandle(1)),
                level: None,
                metric: MetricName::new(metric).unwrap(),
                old: None,
                new: Some(Sampling::raw(Period::SECOND)),
                cause: Cause::Baseline,
                by: None,
                until_us: None,
            })
        });
        let (of_node, of_job) = (shape(1, None), shape(2, Some(&job)));
        let row = values(1).0;
        agent.frame(&[(&of_node, begin_us, &row), (&of_job, begin_us, &row)], &[], &events);
        agent.send_from(0);
        agent.wait_until_acknowledged();
    }
}

fn assert_number(environment: &TestEnvironment, select: &str, expected: i64) {
    assert_eq!(environment.number(select), expected, "{select}");
}

fn jobs_share_the_lists_of_their_series_and_plans(environment: &mut TestEnvironment) {
    let nodes = ["n1", "n2", "n3", "n4"];
    let collector = environment.collector();
    send_jobs(environment, &collector, 0, &nodes);
    collector.stop().unwrap();
    assert_number(environment, "SELECT count(*) FROM series", 24);
    assert_number(environment, "SELECT count(*) FROM series_block", 8);
    assert_number(environment, "SELECT count(*) FROM series_shape", 1);
    assert_number(environment, "SELECT count(*) FROM series_shape_member", 3);
    assert_number(environment, "SELECT count(*) FROM plan_change", 8);
    assert_number(environment, "SELECT count(*) FROM plan_change_event", 4);
    assert_number(environment, "SELECT count(*) FROM plan_change_set", 1);
    let series = environment.lines(SERIES);
    // After a restart everything is found again.
    let collector = environment.collector();
    send_jobs(environment, &collector, 10, &nodes);
    collector.stop().unwrap();
    assert_eq!(environment.lines(SERIES), series);
    assert_number(environment, "SELECT count(*) FROM plan_change_set", 1);
    assert_number(environment, "SELECT count(*) FROM samples", 48);
    assert_number(environment, TWICE, 0);
    // Ids are not used again when series were deleted.
    let last = environment.number("SELECT max(series_id) FROM series");
    environment.execute("DELETE FROM series_block");
    let collector = environment.collector();
    send_jobs(environment, &collector, 20, &["n5"]);
    collector.stop().unwrap();
    assert_number(environment, "SELECT min(series_id) FROM series", last + 1);
}

fn collectors_register_the_same_series_once(environment: &mut TestEnvironment) {
    const JOBS: u32 = 40;
    // The first collector creates the schema.
    environment.collector().stop().unwrap();
    let begin_us = now_us();
    let collectors = ["inproc://collector1", "inproc://collector2"].map(|endpoint| {
        let config = CollectorConfig { listen: endpoint.to_owned(), ..environment.config() };
        Collector::start(&config, &environment.context).unwrap()
    });
    // Two sessions of the same node report the same jobs, each to another collector.
    thread::scope(|scope| {
        for (number, collector) in (1..).zip(&collectors) {
            let (context, endpoint) = (&environment.context, collector.endpoint().to_owned());
            scope.spawn(move || {
                let mut agent = Agent::new(context, &endpoint, "n1", number);
                for handle in 1..=JOBS {
                    let job = job(handle, &format!("{handle}"), begin_us);
                    let row = values(1).0;
                    let (of_node, of_job) = (shape(1, None), shape(handle + 1, Some(&job)));
                    let sequence =
                        agent.frame(&[(&of_node, begin_us, &row), (&of_job, begin_us, &row)], &[], &[]);
                    agent.send(sequence);
                }
                agent.wait_until_acknowledged();
            });
        }
    });
    for collector in collectors {
        collector.stop().unwrap();
    }
    assert_eq!(environment.number("SELECT count(*) FROM job"), i64::from(JOBS));
    assert_eq!(environment.number("SELECT count(*) FROM series"), i64::from(3 * (JOBS + 1)));
    assert_eq!(environment.number(TWICE), 0);
    assert_eq!(
        environment.number("SELECT count(*) FROM samples JOIN series USING (series_id)"),
        i64::from(2 * 6 * JOBS)
    );
    let balance = "SELECT sum(stored) FROM ledger_balance";
    assert_eq!(environment.number(balance), i64::from(2 * 6 * JOBS));
}

/// Sends frames of 128 values.
fn send_user_series(environment: &TestEnvironment, session: u64, node: &str, numbers: Range<u32>) {
    let collector = environment.collector();
    let begin_us = now_us();
    let mut agent = Agent::to(&environment.context, &collector, node, session);
    let job = job(1, "of users", begin_us);
    for first in numbers.clone().step_by(128) {
        let columns: Vec<Column> = (first..numbers.end.min(first + 128))
            .map(|number| {
                let name = MetricName::new(format!("user.m{number}")).unwrap();
                let of =
                    MetricDescriptor { name, unit: Unit::Count, kind: Kind::Gauge, number: Number::Float };
                let labels = vec![("rank".to_owned(), number.to_string())];
                Column {
                    series: SeriesId(number),
                    metric: (MetricId(number), of),
                    labels: Labels::new(labels).unwrap(),
                }
            })
            .collect();
        let row: Vec<Option<u64>> = columns.iter().map(|_| Some(1.5_f64.to_bits())).collect();
        let shape = Shape { columns, id: ShapeId(first), ..(*shape(1, Some(&job))).clone() };
        agent.frame(&[(&Arc::new(shape), begin_us, &row)], &[], &[]);
        agent.send_from(0);
        agent.wait_until_acknowledged();
    }
    collector.stop().unwrap();
}

fn assert_series_of_users(environment: &TestEnvironment, series: u32, samples: u32, lost: u32) {
    assert_eq!(environment.number("SELECT count(*) FROM series"), i64::from(series));
    assert_eq!(environment.number("SELECT count(*) FROM samples"), i64::from(samples));
    let select = "SELECT CAST(coalesce(sum(samples), 0) AS bigint) FROM loss WHERE reason = 'user_series'";
    assert_eq!(environment.number(select), i64::from(lost));
}

/// Neither a new collector nor a new agent forgets what users have supplied.
fn series_of_users_are_bounded_over_restarts(environment: &mut TestEnvironment) {
    let max = u32::try_from(limits::USER_SERIES_OF_JOB).unwrap();
    send_user_series(environment, 1, "n1", 1..max - 2);
    assert_series_of_users(environment, max - 3, max - 3, 0);
    // Four new ones, of which three fit.
    for number in 0..4 {
        let metric = max - 2 + number;
        send_user_series(environment, 2 + u64::from(number), "n1", metric..metric + 1);
    }
    assert_series_of_users(environment, max, max, 1);
    // The known ones are stored, as are those of the job on another node.
    send_user_series(environment, 10, "n1", 1..129);
    assert_series_of_users(environment, max, max + 128, 1);
    send_user_series(environment, 11, "n2", 9000..9010);
    assert_series_of_users(environment, max + 10, max + 138, 1);
}

/// Sends one row of two metrics from a node, of which one has the given unit and kind.
fn send_event(environment: &TestEnvironment, node: (&str, u64), unit: Unit, kind: Kind, rows: i64) {
    let collector = environment.collector();
    let begin_us = now_us();
    let mut agent = Agent::to(&environment.context, &collector, node.0, node.1);
    let of = |name: &'static str, unit, kind| {
        let name = MetricName::new(name).unwrap();
        MetricDescriptor { name, unit, kind, number: Number::Float }
    };
    let metrics = [of("node.pmu.imc.reads", unit, kind), of("node.load1", Unit::Count, Kind::Gauge)];
    let columns = (1..).zip(metrics).map(|(id, metric)| Column {
        series: SeriesId(id),
        metric: (MetricId(id), metric),
        labels: Labels::default(),
    });
    let shape = Arc::new(Shape { columns: columns.collect(), ..(*shape(1, None)).clone() });
    let row = [Some(2.5_f64.to_bits()), Some(4.5_f64.to_bits())];
    for number in 0..rows {
        agent.frame(&[(&shape, begin_us + number, &row)], &[], &[]);
        agent.send_from(0);
        agent.wait_until_acknowledged();
    }
    collector.stop().unwrap();
}

/// What the store has first counts, for other nodes, for the same node with another kernel, and after a new
/// start of the collector; the other metrics of the same source are stored.
fn units_of_a_metric_are_never_mixed(environment: &mut TestEnvironment) {
    send_event(environment, ("n1", 1), Unit::Joules, Kind::Counter, 2);
    send_event(environment, ("n2", 2), Unit::Count, Kind::Counter, 3);
    send_event(environment, ("n1", 3), Unit::Bytes, Kind::Counter, 1);
    send_event(environment, ("n3", 4), Unit::Joules, Kind::Gauge, 1);
    send_event(environment, ("n3", 5), Unit::Joules, Kind::Counter, 1);
    let of = "SELECT unit || ' ' || kind FROM metric WHERE metric = 'node.pmu.imc.reads'";
    assert_eq!(environment.lines(of), ["joules counter"]);
    let samples = |metric: &str| {
        let of = "SELECT node || ' ' || count(*) FROM samples JOIN series USING (series_id)";
        environment.lines(&format!("{of} WHERE metric = '{metric}' GROUP BY node ORDER BY node"))
    };
    assert_eq!(samples("node.pmu.imc.reads"), ["n1 2", "n3 1"]);
    assert_eq!(samples("node.load1"), ["n1 3", "n2 3", "n3 2"]);
    let lost = "SELECT node || ' ' || sum(samples) FROM loss WHERE reason = 'contradiction' GROUP BY node ORDER BY node";
    assert_eq!(environment.lines(lost), ["n1 1", "n2 3", "n3 1"]);
    let rejected = "SELECT CAST(sum(rejected) AS bigint) FROM ledger_balance";
    assert_eq!(environment.number(rejected), 5);
}
