//! Tests of live values over HTTP: users see the values and events of their own jobs as they are committed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use polymeter_collector::CollectorConfig;
use polymeter_proto::batch::Shape;
use polymeter_proto::ledger::{Cause, Event, Mark, MarkKind, PlanChange};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Sampling;
use polymeter_proto::series::{Identifier, Labels};
use polymeter_proto::wire::message::{Lost, SkipReason, ToCollector};
use serde_json::{Value, json};

use crate::api::{get, key};
use crate::reading::{Fixture, USERS};
use crate::support::agent::{Agent, shape, values};
use crate::support::events::Client;
use crate::support::{TestEnvironment, now_us};

scenarios! {
    users_see_the_values_of_their_own_jobs,
    values_do_not_wait_for_the_usual_commit,
    values_are_reduced_to_points_a_second,
    events_of_a_job_are_streamed_until_its_end,
    a_lost_agent_ends_its_jobs,
}

pub(crate) fn target(key: i64, query: &str) -> String {
    format!("/api/v1/jobs/{key}/live{query}")
}

/// Waits until the frame, which has one row, is committed.
pub(crate) fn send(agent: &mut Agent, shape: &Arc<Shape>, at_us: i64, seed: i64, events: &[Event]) {
    let values = values(seed).0;
    let number = agent.frame(&[(shape, at_us, &values)], &[], events);
    agent.send(number);
    agent.wait_until_acknowledged();
}

fn send_events(agent: &mut Agent, events: &[Event]) {
    let number = agent.frame(&[], &[], events);
    agent.send(number);
    agent.wait_until_acknowledged();
}

pub(crate) fn rows_of(environment: &TestEnvironment, job_key: i64) -> i64 {
    environment.number(&format!(
        "SELECT count(*) FROM samples JOIN series USING (series_id) WHERE job_key = {job_key}"
    ))
}

/// Time after the samples that the fixture has sent.
pub(crate) fn later_us() -> i64 {
    now_us() + 60_000_000
}

fn users_see_the_values_of_their_own_jobs(environment: &mut TestEnvironment) {
    let mut fixture = Fixture::new(environment);
    let keys = ["1", "2"].map(|id| key(&fixture, id));
    let other = get(USERS[1], &fixture.api, &target(keys[0], ""));
    assert_eq!(
        (other.status, &other.bytes),
        (404, &get(USERS[1], &fixture.api, &target(i64::MAX, "")).bytes)
    );
    for query in ["?per_second=0", "?per_second=21", "?seconds=0", "?metric=;", "?x=1"] {
        assert_eq!(get(USERS[0], &fixture.api, &target(keys[0], query)).status, 400, "{query}");
    }
    let open = |uid, key, query: &str| Client::open(uid, &fixture.api, &target(key, query));
    let mut clients =
        [open(USERS[0], keys[0], ""), open(0, keys[0], ""), open(USERS[0], keys[0], "?metric=cpu.*&node=n1")];
    let mut of_other = open(USERS[1], keys[1], "");
    let mut of_no_node = open(USERS[0], keys[0], "?node=n2");
    let listed = get(USERS[0], &fixture.api, &format!("/api/v1/jobs/{}/series", keys[0])).json();
    let mut described = Vec::new();
    for client in &mut clients {
        let (name, job) = client.next().unwrap();
        assert_eq!((name.as_str(), &job["key"], &job["id"]), ("job", &json!(keys[0]), &json!("1")));
        assert_eq!((&job["nodes"], &job["per_second"]), (&json!(["n1"]), &Value::Null));
        let (name, mut series) = client.next().unwrap();
        assert_eq!(name, "series");
        for row in series["series"].as_array_mut().unwrap() {
            assert_eq!(row.as_object_mut().unwrap().remove("period_us"), Some(Value::Null));
        }
        described.push(series["series"].as_array().unwrap().clone());
    }
    assert_eq!((&json!(described[0]), &described[0]), (&listed["series"], &described[1]));
    assert_eq!(
        (described[0].len(), described[2].len(), &described[2][0]["metric"]),
        (3, 1, &json!("cpu.usage"))
    );
    // One frame with samples of both jobs, and of the node.
    let (at_us, shapes) =
        (later_us(), [shape(1, Some(&fixture.jobs[0])), shape(2, Some(&fixture.jobs[1])), shape(4, None)]);
    let sent = [30, 40, 50].map(values);
    let rows: Vec<_> =
        shapes.iter().zip(&sent).map(|(shape, (values, _))| (shape, at_us, values.as_slice())).collect();
    let number = fixture.agent.frame(&rows, &[], &[]);
    fixture.agent.send(number);
    let metrics = ["cpu.usage", "memory.margin", "node.load1"];
    for (client, series) in clients.iter_mut().zip(&described) {
        let (points, others) = client.points(series.len());
        assert_eq!((points.len(), others.len()), (series.len(), 0), "{others:?}");
        for row in series {
            let expected = sent[0].1[metrics.iter().position(|metric| row["metric"] == *metric).unwrap()];
            assert_eq!(points[&row["id"].as_i64().unwrap()], [(at_us, json!(expected))], "{row}");
        }
    }
    let (points, _) = of_other.points(3);
    assert!(described[0].iter().all(|row| !points.contains_key(&row["id"].as_i64().unwrap())));
    // Whatever a stream sends was committed before.
    assert_eq!(rows_of(environment, keys[0]), 63);
    let mark = Event::Mark(Mark {
        at_us,
        job: Some(fixture.jobs[0].handle),
        name: "x".try_into().unwrap(),
        kind: MarkKind::Begin,
        by: None,
    });
    send_events(&mut fixture.agent, &[mark]);
    assert_eq!(clients[0].next_of("mark")["name"], "x");
    drop(clients);
    assert!(fixture.collector.stop().is_ok(), "no thread has panicked");
    assert_eq!(of_no_node.next_of("series"), json!({"series": []}));
    assert_eq!(
        of_no_node.next(),
        Some(("end".to_owned(), json!({"reason": "stopping"}))),
        "nothing of another node"
    );
}

fn values_do_not_wait_for_the_usual_commit(environment: &mut TestEnvironment) {
    let mut fixture = Fixture::new(environment);
    let hour = Duration::from_secs(3600);
    fixture.collector.reload(&CollectorConfig { commit_interval: hour, ..environment.config() });
    let key = key(&fixture, "1");
    let mut client = Client::open(USERS[0], &fixture.api, &target(key, ""));
    let (at_us, shape) = (later_us(), shape(1, Some(&fixture.jobs[0])));
    let number = fixture.agent.frame(&[(&shape, at_us, &values(30).0)], &[], &[]);
    fixture.agent.send(number);
    assert_eq!(client.points(3).0.len(), 3);
    assert_eq!(rows_of(environment, key), 63, "they were committed before");
}

fn values_are_reduced_to_points_a_second(environment: &mut TestEnvironment) {
    let mut fixture = Fixture::new(environment);
    let key = key(&fixture, "1");
    let open = |query: &str| Client::open(USERS[0], &fixture.api, &target(key, query));
    let (mut slow, mut fast) = (open("?per_second=1"), open("?per_second=10"));
    let job = slow.next_of("job");
    assert_eq!(job["per_second"], 1);
    let series = slow.next_of("series");
    let rows = series["series"].as_array().unwrap();
    let usage = rows.iter().find(|row| row["metric"] == "cpu.usage").unwrap()["id"].as_i64().unwrap();
    // Five seconds at 1 kHz. The counter increases by 1,000,003 ns each millisecond.
    let (shape, begin_us) = (shape(1, Some(&fixture.jobs[0])), later_us());
    let sent: Vec<_> = (0..5000).map(|number| (begin_us + number * 1000, values(number).0)).collect();
    for second in sent.chunks(1000) {
        let rows: Vec<_> = second.iter().map(|(at_us, values)| (&shape, *at_us, values.as_slice())).collect();
        let number = fixture.agent.frame(&rows, &[], &[]);
        fixture.agent.send(number);
    }
    fixture.agent.wait_until_acknowledged();
    let mut counts = BTreeMap::new();
    for (client, per_second) in [(&mut slow, 1), (&mut fast, 10)] {
        // Of two gauges the first sample is a point of its own.
        let (points, _) = client.points(3 * 4 * per_second);
        for (series_id, points) in &points {
            let times: Vec<i64> = points.iter().map(|(time_us, _)| *time_us).collect();
            assert!(times.is_sorted_by(|one, next| one < next), "{times:?}");
            counts.insert((per_second, *series_id), points.len());
        }
        assert_eq!(points.len(), 3);
        let rates = &points[&usage];
        assert!(rates.iter().all(|(_, rate)| (0.99..1.01).contains(&rate.as_f64().unwrap())), "{rates:?}");
    }
    assert!(counts.values().all(|count| *count <= 60), "{counts:?}");
    assert!(fixture.collector.stop().is_ok(), "no thread has panicked");
}

fn plan_change(fixture: &Fixture, new: Option<Sampling>) -> Event {
    Event::PlanChange(PlanChange {
        at_us: later_us(),
        job: Some(fixture.jobs[0].handle),
        level: None,
        metric: MetricName::new("cpu.usage").unwrap(),
        old: None,
        new,
        cause: Cause::Lease,
        by: Some("ada".try_into().unwrap()),
        until_us: None,
    })
}

fn events_of_a_job_are_streamed_until_its_end(environment: &mut TestEnvironment) {
    let mut fixture = Fixture::new(environment);
    let key = key(&fixture, "1");
    let mut client = Client::open(USERS[0], &fixture.api, &target(key, ""));
    client.next_of("series");
    let change = plan_change(&fixture, "10ms/1s".parse().ok());
    send_events(&mut fixture.agent, &[change]);
    let plan = client.next_of("plan");
    assert_eq!(
        (&plan["metric"], &plan["new_period_us"], &plan["new_window_us"], &plan["actor"]),
        (&json!("cpu.usage"), &json!(10_000), &json!(1_000_000), &json!("ada"))
    );
    // A later client sees the time between two values in the description.
    let mut later = Client::open(USERS[0], &fixture.api, &target(key, ""));
    let series = later.next_of("series");
    assert_eq!(series["series"][0]["period_us"], 1_000_000, "{series}");
    // A second node, with hostile labels.
    let mut second = Agent::to(&environment.context, &fixture.collector, "n2", 2);
    let mut hostile = (*shape(1, Some(&fixture.jobs[0]))).clone();
    let text = "data: {} [](x) event: end, id=1; DROP TABLE--%0a%3Cb%3E \u{fc}\u{1f600}";
    hostile.columns[0].labels = Labels::new(vec![("device".to_owned(), text.to_owned())]).unwrap();
    send(&mut second, &Arc::new(hostile), later_us(), 7, &[]);
    let node = client.next_of("node");
    assert_eq!((&node["node"], &node["state"]), (&json!("n2"), &json!("running")));
    let new = client.next_of("series");
    let rows = new["series"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().any(|row| row["labels"]["device"] == text && row["node"] == "n2"), "{rows:?}");
    let (points, _) = client.points(3);
    assert!(rows.iter().all(|row| points.contains_key(&row["id"].as_i64().unwrap())));
    let name: Identifier = "event: end".try_into().unwrap();
    let job = Some(fixture.jobs[0].handle);
    send_events(
        &mut second,
        &[Event::Mark(Mark { at_us: later_us(), job, name, kind: MarkKind::End, by: None })],
    );
    let mark = client.next_of("mark");
    assert_eq!(
        (&mark["name"], &mark["kind"], &mark["node"]),
        (&json!("event: end"), &json!("end"), &json!("n2"))
    );
    let end = [Event::JobEnded { job: fixture.jobs[0].handle, at_us: later_us() + 2_000_000 }];
    send_events(&mut second, &end);
    let node = client.next_of("node");
    assert_eq!((&node["node"], &node["state"]), (&json!("n2"), &json!("ended")));
    let lost = Lost { job, source: "stat".try_into().unwrap(), samples: 12 };
    let span_us = (later_us(), later_us() + 1_000_000);
    second.skip(&ToCollector::Skipped {
        session: polymeter_proto::series::SessionId(2),
        first: 4,
        last: 4,
        reason: SkipReason::OutboxFull,
        span_us,
        lost: vec![lost],
    });
    let loss = client.next_of("loss");
    assert_eq!(
        (&loss["samples"], &loss["reason"], &loss["source"], &loss["first_us"]),
        (&json!(12), &json!("outbox_full"), &json!("stat"), &json!(span_us.0))
    );
    send(&mut fixture.agent, &shape(1, Some(&fixture.jobs[0])), later_us() + 1_000_000, 70, &end);
    let (points, _) = client.points(3);
    assert_eq!(points.len(), 3, "the last values come before the end");
    let node = client.next_of("node");
    assert_eq!((&node["node"], &node["state"]), (&json!("n1"), &json!("ended")));
    assert_eq!(client.next_of("end"), json!({"reason": "ended"}));
    assert_eq!(client.next(), None);
    let ended = get(USERS[0], &fixture.api, &target(key, ""));
    assert_eq!((ended.status, ended.text()), (204, ""));
    assert!(fixture.collector.stop().is_ok(), "no thread has panicked");
}

fn a_lost_agent_ends_its_jobs(environment: &mut TestEnvironment) {
    let fixture = Fixture::with(environment, |config| config.session_timeout = Duration::from_secs(3));
    let mut client = Client::open(USERS[0], &fixture.api, &target(key(&fixture, "1"), ""));
    // The agent sends nothing more.
    let node = client.next_of("node");
    assert_eq!((&node["node"], &node["state"]), (&json!("n1"), &json!("lost")));
    assert_eq!(client.next_of("end"), json!({"reason": "ended"}));
    assert_eq!(client.next(), None);
    assert!(fixture.collector.stop().is_ok(), "no thread has panicked");
}
