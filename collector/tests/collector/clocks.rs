//! Tests of nodes whose clocks are wrong, with every kind of store: the times of a job are the collector's.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use polymeter_analysis::gather::gather;
use polymeter_collector::clock::Clock;
use polymeter_proto::batch::Shape;
use polymeter_proto::ledger::{Event, Mark, MarkKind};
use polymeter_proto::series::JobHandle;
use polymeter_store::StoreError;
use polymeter_store::reader::{JobRow, Read, Rollup, SeriesScope};

use crate::support::agent::{Agent, job, shape, values};
use crate::support::{Kind, TestEnvironment, now_us, only_job, wait_until};

scenarios! {
    a_job_whose_clock_was_set_back_has_all_its_samples,
    clocks_of_nodes_are_compared_by_the_collectors,
    an_agent_that_returns_with_another_clock_continues_the_job,
}

const SECOND_US: i64 = 1_000_000;

/// Time of a node, `seconds` after `begin_us`, whose clock is ahead.
fn at(begin_us: i64, seconds: i64, ahead_s: i64) -> i64 {
    begin_us + (seconds + ahead_s) * SECOND_US
}

/// Adds a frame for each second of a span, as if the clock was ahead.
fn add(agent: &mut Agent, shape: &Arc<Shape>, begin_us: i64, seconds: Range<i64>, ahead_s: i64) {
    for second in seconds {
        agent.frame(&[(shape, at(begin_us, second, ahead_s), &values(second).0)], &[], &[]);
    }
}

fn ended(at_us: i64) -> Event {
    Event::JobEnded { job: JobHandle(1), at_us }
}

fn deliver(agent: &mut Agent) {
    agent.send_from(0);
    agent.wait_until_acknowledged();
}

/// An offset is stored within this time: an agent that did not answer in time is asked again after a minute.
/// So is one whose answer took seconds on its way, and its offset is wrong by them until then.
const PATIENCE: Duration = Duration::from_secs(240);

/// Answers until the agent's offset is stored.
fn wait_for_offset(environment: &TestEnvironment, agent: &mut Agent) {
    let clock = Clock::start();
    let (ahead_us, error_us) = (agent.ahead_us, SECOND_US / 2);
    let stored = format!("SELECT count(*) FROM session WHERE abs(clock_offset_us - {ahead_us}) < {error_us}");
    while environment.number(&stored) != 1 {
        assert!(clock.now().since_start < PATIENCE, "the offset is not stored");
        agent.receive(500);
    }
}

/// Samples of the first series of each node of a job: times, rounded to seconds after `begin_us`, and values.
fn samples(environment: &TestEnvironment, job: &JobRow, begin_us: i64) -> Vec<(String, Vec<(i64, f64)>)> {
    let mut reader = environment.reader();
    let reader: &mut dyn Read = &mut reader;
    let scope = SeriesScope::Job(job.job_key);
    let rows = reader.job_series(job.job_key, &["cpu.usage"]).unwrap();
    let all = reader.series(scope).unwrap().iter().map(|row| row.series_id).collect::<Vec<_>>();
    let mut found = Vec::new();
    reader
        .samples(scope, &all, &job.sampled_ns, |sample| {
            found.push(sample);
            Ok::<_, StoreError>(())
        })
        .unwrap();
    assert!(found.is_sorted_by_key(|sample| (sample.series_id, sample.time_ns)));
    let of_nodes = rows.into_iter().map(|row| {
        let own = found.iter().filter(|sample| sample.series_id == row.series_id);
        (row.node, own.map(|sample| (rounded_s(sample.time_ns, begin_us), sample.value)).collect())
    });
    of_nodes.collect()
}

/// Whole seconds after `begin_us`: the offset is measured with an error of some milliseconds.
fn rounded_s(time_ns: i64, begin_us: i64) -> i64 {
    (time_ns / 1000 - begin_us + SECOND_US / 2).div_euclid(SECOND_US)
}

fn expected(seconds: Range<i64>) -> Vec<(i64, f64)> {
    seconds.map(|second| (second, values(second).1[0])).collect()
}

fn a_job_whose_clock_was_set_back_has_all_its_samples(environment: &mut TestEnvironment) {
    let begin_us = now_us() - 30 * SECOND_US;
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let of_job = shape(1, Some(&job(1, "7", begin_us)));
    add(&mut agent, &of_job, begin_us, 0..20, 0);
    // Set back by three days before the end.
    let back_s = -3 * 86_400;
    add(&mut agent, &of_job, begin_us, 20..30, back_s);
    agent.frame(&[], &[], &[ended(at(begin_us, 30, back_s))]);
    deliver(&mut agent);
    collector.stop().unwrap();
    let job = only_job(environment);
    let first_us = at(begin_us, 20, back_s);
    assert_eq!((job.started_ns, job.ended_ns), (first_us * 1000, Some(at(begin_us, 19, 0) * 1000)));
    let mut all: Vec<(i64, f64)> = expected(0..20);
    all.splice(0..0, (20..30).map(|second| (second + back_s, values(second).1[0])));
    assert_eq!(samples(environment, &job, begin_us), [("n1".to_owned(), all)]);
    let report = gather(&mut environment.reader(), &job, None).unwrap();
    assert_eq!((report.stored, report.series.len()), (90, 3));
}

fn clocks_of_nodes_are_compared_by_the_collectors(environment: &mut TestEnvironment) {
    let begin_us = now_us() - 90 * SECOND_US;
    let collector = environment.collector();
    let offsets = [("n1", 0), ("n2", 600), ("n3", -3 * 86_400)];
    let mut agents = Vec::new();
    for (session, (node, ahead_s)) in (1..).zip(offsets) {
        let mut agent = Agent::to(&environment.context, &collector, node, session);
        agent.ahead_us = ahead_s * SECOND_US;
        agent.descriptor.started_us = at(begin_us, -5, ahead_s);
        let of_job = shape(1, Some(&job(1, "8", at(begin_us, 0, ahead_s))));
        let of_node = shape(2, None);
        add(&mut agent, &of_job, begin_us, 0..75, ahead_s);
        add(&mut agent, &of_node, begin_us, 0..75, ahead_s);
        let mark = Mark {
            at_us: at(begin_us, 40, ahead_s),
            job: Some(JobHandle(1)),
            name: "step".try_into().unwrap(),
            kind: MarkKind::Instant,
            by: None,
        };
        agent.frame(&[], &[], &[Event::Mark(mark)]);
        deliver(&mut agent);
        if ahead_s != 0 {
            wait_for_offset(environment, &mut agent);
        }
        agents.push(agent);
    }
    let stored = "SELECT count(*) FROM session WHERE clock_offset_us IS NOT NULL";
    assert_eq!(environment.number(stored), 2, "no offset of the clock that is right");
    for (agent, (_, ahead_s)) in agents.iter_mut().zip(offsets) {
        agent.frame(&[], &[], &[ended(at(begin_us, 75, ahead_s))]);
        deliver(agent);
    }
    collector.stop().unwrap();
    // On a busy machine the measurement is wrong by its delay.
    for (node, ahead_s) in offsets {
        let exact_us = ahead_s * SECOND_US;
        environment.execute(&format!(
            "UPDATE session SET clock_offset_us = {exact_us} WHERE node = '{node}' AND clock_offset_us IS NOT NULL"
        ));
    }
    let job = only_job(environment);
    let ends = (rounded_s(job.started_ns, begin_us), job.ended_ns.map(|ended| rounded_s(ended, begin_us)));
    assert_eq!(ends, (0, Some(75)));
    for (node, found) in samples(environment, &job, begin_us) {
        assert_eq!(found, expected(0..75), "{node}");
    }
    assert_nodes(environment, &job, begin_us, &offsets);
    assert_series(environment, &job, begin_us);
    assert_views(environment, begin_us);
    // Over 74 s the counters of three nodes advance by as much as that of one does three times.
    let report = gather(&mut environment.reader(), &job, None).unwrap();
    assert!((report.wall_s - 75.0).abs() < 0.1, "{}", report.wall_s);
    let growth = (values(74).1[0] - values(0).1[0]) * 3.0 / 1e9;
    assert!((report.used.cpu_s.unwrap() - growth).abs() < 1e-9, "{:?}", report.used);
    let note = report.notes.iter().find(|note| note.contains("clocks")).unwrap();
    assert!(note.contains("n3 3 d") && note.contains("behind") && note.contains("n2 10 min ahead"), "{note}");
}

/// Checks the times of a job of 75 s on its nodes, and those of its marks.
fn assert_nodes(environment: &TestEnvironment, job: &JobRow, begin_us: i64, offsets: &[(&str, i64)]) {
    let mut reader = environment.reader();
    let reader: &mut dyn Read = &mut reader;
    for (row, (node, ahead_s)) in reader.job_nodes(job.job_key).unwrap().iter().zip(offsets) {
        let ended_s = row.ended_ns.map(|ended_ns| rounded_s(ended_ns, begin_us));
        assert_eq!((row.node.as_str(), rounded_s(row.started_ns, begin_us), ended_s), (*node, 0, Some(75)));
        let offset_s = row.clock_offset_us.map(|offset_us| rounded_s(offset_us * 1000, 0));
        assert_eq!(offset_s, (*ahead_s != 0).then_some(*ahead_s));
    }
    let marks = reader.marks(job.job_key).unwrap();
    assert_eq!(marks.iter().map(|mark| rounded_s(mark.time_ns, begin_us)).collect::<Vec<_>>(), [40; 3]);
}

/// Reads the series of the nodes in the time of the job, and its own from a rollup.
fn assert_series(environment: &TestEnvironment, job: &JobRow, begin_us: i64) {
    let mut reader = environment.reader();
    let reader: &mut dyn Read = &mut reader;
    let of_nodes = reader.node_series(job.job_key, &["cpu.usage"]).unwrap();
    let ids: Vec<i64> = of_nodes.iter().map(|row| row.series_id).collect();
    let span_ns = at(begin_us, 10, 0) * 1000 - 1_000_000..at(begin_us, 20, 0) * 1000 - 1_000_000;
    let mut count = 0;
    let scope = SeriesScope::NodesOf(job.job_key);
    reader
        .samples(scope, &ids, &span_ns, |_| {
            count += 1;
            Ok::<_, StoreError>(())
        })
        .unwrap();
    assert!((28..=32).contains(&count), "{count}");
    let all: Vec<i64> =
        reader.job_series(job.job_key, &["cpu.usage"]).unwrap().iter().map(|row| row.series_id).collect();
    // Samples that arrived after their buckets were computed are added by a round of the maintenance, with
    // which a collector begins.
    let collector = environment.collector();
    wait_until("the rollups have all samples", || {
        let mut counted = 0;
        reader
            .buckets(Rollup::TenSeconds, SeriesScope::Job(job.job_key), &all, &job.sampled_ns, |bucket| {
                counted += bucket.count;
                assert!((-11..76).contains(&rounded_s(bucket.time_ns, begin_us)), "{bucket:?}");
                Ok::<_, StoreError>(())
            })
            .unwrap();
        counted == 3 * 75
    });
    collector.stop().unwrap();
}

/// Views of a job and charts of dashboards must have the times of the collector.
fn assert_views(environment: &TestEnvironment, begin_us: i64) {
    let is_sqlite = environment.kind == Kind::Sqlite;
    let seconds = |time: &str| match is_sqlite {
        true => format!("round(({time} / 1000 - {begin_us}) / 1e6)"),
        false => format!("round(extract(epoch FROM {time}) - {begin_us} / 1e6)"),
    };
    let (least, most) = (seconds("min(timestamp)"), seconds("max(timestamp)"));
    let of_nodes = |columns: &str, view: &str, metric: &str| {
        let select = format!("SELECT {columns}, {least}, {most} FROM {view} WHERE job_id = '8' {metric}");
        environment.rows(&format!("{select} GROUP BY device_id"))
    };
    let metric = "AND metric_id = 'cpu.usage'";
    // A series of the job, and one of the node.
    assert_eq!(of_nodes("count(*)", "metrics_by_job", metric), [[150.0, 0.0, 74.0]; 3]);
    for row in of_nodes("1", "metrics_by_job_summary", metric) {
        assert!(row[1] > -61.0 && row[2] < 75.0, "{row:?}");
    }
    let (start, stop) = (seconds("start_time"), seconds("stop_time"));
    let times = format!("SELECT {start}, {stop} FROM nodetime_by_job WHERE job_id = '8'");
    assert_eq!(environment.rows(&times), [[0.0, 75.0]; 3]);
    let (start, stop) = (seconds("started"), seconds("ended"));
    let times = format!("SELECT {start}, {stop} FROM jobs WHERE job_id = '8'");
    assert_eq!(environment.rows(&times), [[0.0, 75.0]]);
    if is_sqlite {
        return;
    }
    let (begin_s, end_s) = (begin_us / SECOND_US - 20, begin_us / SECOND_US + 100);
    for (step_s, off_s) in [(5.0, 5.0), (10.0, 15.0), (60.0, 90.0)] {
        let chart = format!(
            "SELECT {}, {}, round(sum(increase) * 1e9) FROM job CROSS JOIN LATERAL samples_chart(
                 '{{cpu.usage}}', ARRAY[job_key], NULL, to_timestamp({begin_s}), to_timestamp({end_s}), '{step_s} s')
             WHERE job.job_id = '8' GROUP BY node",
            seconds("min(time)"),
            seconds("max(time)")
        );
        let rows = environment.rows(&chart);
        assert_eq!(rows.len(), 3, "{rows:?}");
        for row in rows {
            let is_near =
                row[0] > -off_s && row[0] < step_s && row[1] < 75.0 && row[1] > 75.0 - off_s - step_s;
            assert!(is_near && row[2] == values(74).1[0], "{step_s}: {row:?}");
        }
    }
}

fn an_agent_that_returns_with_another_clock_continues_the_job(environment: &mut TestEnvironment) {
    let begin_us = now_us() - 70 * SECOND_US;
    let collector = environment.collector();
    let of_job = |ahead_s| shape(1, Some(&job(1, "9", at(begin_us, 0, ahead_s))));
    let mut first = Agent::to(&environment.context, &collector, "n1", 1);
    first.ahead_us = -7200 * SECOND_US;
    first.descriptor.started_us = at(begin_us, -5, -7200);
    add(&mut first, &of_job(-7200), begin_us, 0..30, -7200);
    deliver(&mut first);
    wait_for_offset(environment, &mut first);
    drop(first);
    // The clock is set, and the agent starts again.
    let mut second = Agent::to(&environment.context, &collector, "n1", 2);
    second.descriptor.started_us = at(begin_us, 35, 0);
    add(&mut second, &of_job(0), begin_us, 36..60, 0);
    second.frame(&[], &[], &[ended(at(begin_us, 60, 0))]);
    deliver(&mut second);
    collector.stop().unwrap();
    let job = only_job(environment);
    let ends = (rounded_s(job.started_ns, begin_us), job.ended_ns.map(|ended| rounded_s(ended, begin_us)));
    assert_eq!(ends, (0, Some(60)));
    let all: Vec<(i64, f64)> = expected(0..30).into_iter().chain(expected(36..60)).collect();
    assert_eq!(samples(environment, &job, begin_us), [("n1".to_owned(), all)]);
}
