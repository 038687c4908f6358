//! Tests of many and of hostile clients of live values: streams are limited, and no client delays anything.

use std::time::Duration;

use serde_json::json;

use crate::api::{get, key};
use crate::live::{later_us, rows_of, send, target};
use crate::reading::{ADMINISTRATOR, Fixture, USERS};
use crate::support::agent::{shape, values};
use crate::support::events::Client;
use crate::support::{TestEnvironment, wait_until};

scenarios! {
    a_client_that_does_not_read_is_told_what_it_missed,
    a_client_that_never_reads_is_disconnected,
    streams_are_limited_and_released,
    hundred_streams_get_the_same_values,
    a_stopping_collector_ends_its_streams,
}

/// Times in a frame of [`flood`]: its 6000 points fit into what may wait for a client that reads.
const FLOOD_TIMES: i64 = 2000;

fn flood(fixture: &mut Fixture, what: &str, mut is_enough: impl FnMut(&Fixture) -> bool) {
    let (shape, mut at_us) = (shape(1, Some(&fixture.jobs[0])), later_us());
    wait_until(what, || {
        let sent: Vec<_> = (0..FLOOD_TIMES).map(|number| (at_us + number, values(number).0)).collect();
        let rows: Vec<_> = sent.iter().map(|(at_us, values)| (&shape, *at_us, values.as_slice())).collect();
        let number = fixture.agent.frame(&rows, &[], &[]);
        fixture.agent.send(number);
        fixture.agent.wait_until_acknowledged();
        at_us += FLOOD_TIMES;
        is_enough(fixture)
    });
}

fn a_client_that_does_not_read_is_told_what_it_missed(environment: &mut TestEnvironment) {
    // No client is disconnected, however long the test takes.
    let mut fixture = Fixture::with(environment, |config| {
        config.api.as_mut().unwrap().limits.stream_stall = Duration::from_secs(600);
    });
    let key = key(&fixture, "1");
    let mut slow = Client::open(USERS[0], &fixture.api, &target(key, ""));
    slow.next_of("series");
    // A client that reads gets all of them meanwhile.
    let mut reader = Client::open(0, &fixture.api, &target(key, ""));
    reader.next_of("series");
    // The mailbox and the buffers of the socket hold about a MiB: 180,000 points are some seven times as
    // much.
    let mut frames = 0;
    flood(&mut fixture, "the slow client has missed events", |_| {
        let (points, others) = reader.points(6000);
        assert_eq!((points.len(), others), (3, Vec::<String>::new()), "the reader misses nothing");
        frames += 1;
        frames == 30
    });
    assert_eq!(rows_of(environment, key), 180_060);
    let missed = slow.next_of("missed");
    assert!(missed["events"].as_u64().unwrap() > 0);
    let names: Vec<String> = (0..2).map(|_| slow.next().unwrap().0).collect();
    assert_eq!(names, ["job", "series"], "it is described anew");
    let at_us = later_us() + 100_000_000;
    send(&mut fixture.agent, &shape(1, Some(&fixture.jobs[0])), at_us, 3, &[]);
    let (points, others) = slow.points(3);
    assert_eq!(others, [""; 0]);
    assert!(points.values().all(|points| points[0].0 == at_us), "{points:?}");
    assert!(fixture.collector.stop().is_ok(), "no thread has panicked");
}

fn a_client_that_never_reads_is_disconnected(environment: &mut TestEnvironment) {
    let mut fixture = Fixture::with(environment, |config| {
        let limits = &mut config.api.as_mut().unwrap().limits;
        (limits.stream_stall, limits.user_streams) = (Duration::from_millis(500), 1);
    });
    let target = target(key(&fixture, "1"), "");
    let mut client = Client::open(USERS[0], &fixture.api, &target);
    flood(&mut fixture, "its place is free", |fixture| {
        Client::open(USERS[0], &fixture.api, &format!("{target}?seconds=1")).status == 200
    });
    while client.next().is_some() {}
    assert!(!client.is_complete, "the connection was closed in the middle");
    assert!(fixture.collector.stop().is_ok(), "no thread has panicked");
}

fn streams_are_limited_and_released(environment: &mut TestEnvironment) {
    let fixture = Fixture::with(environment, |config| {
        let limits = &mut config.api.as_mut().unwrap().limits;
        (limits.user_streams, limits.streams, limits.user_requests) = (2, 3, 1);
    });
    let target = target(key(&fixture, "1"), "");
    let open = |uid| Client::open(uid, &fixture.api, &target);
    let mut held: Vec<Client> = (0..2).map(|_| open(USERS[0])).collect();
    assert!(held.iter().all(|client| client.status == 200));
    assert_eq!(open(USERS[0]).status, 429);
    assert_eq!(
        get(USERS[0], &fixture.api, "/api/v1/jobs").status,
        200,
        "other requests have places of their own"
    );
    // The last place, and one of those that only administrators have.
    let of_root = [open(0), open(0)];
    assert_eq!((of_root[0].status, of_root[1].status, open(0).status), (200, 200, 429));
    held.pop();
    drop(of_root);
    wait_until("places are free", || open(USERS[0]).status == 200 && open(0).status == 200);
    // A stream that ends by itself releases its place, too.
    drop(held);
    wait_until("places are free", || {
        let mut short = Client::open(USERS[0], &fixture.api, &format!("{target}?seconds=1"));
        short.status == 200 && short.next_of("end") == json!({"reason": "renew"}) && short.next().is_none()
    });
    assert!(fixture.collector.stop().is_ok(), "no thread has panicked");
}

fn hundred_streams_get_the_same_values(environment: &mut TestEnvironment) {
    // A proxy may have any number of connections.
    const PROXY: &str = "nobody";
    let mut fixture = Fixture::with(environment, |config| {
        let api = config.api.as_mut().unwrap();
        api.trusted_proxies = vec![format!("user:{PROXY}").parse().unwrap()];
        api.limits.user_streams = 100;
    });
    let key = key(&fixture, "1");
    let (uid, header) =
        (polymeter_service::users::uid_of(PROXY).unwrap(), format!("X-Remote-User: {ADMINISTRATOR}\r\n"));
    let mut clients: Vec<Client> = (0..100)
        .map(|number| {
            let query = if number % 2 == 0 { "?per_second=1" } else { "?metric=memory.*" };
            Client::with_header(uid, &fixture.api, &target(key, query), &header)
        })
        .collect();
    clients.iter_mut().for_each(|client| drop(client.next_of("series")));
    let (shape, begin_us) = (shape(1, Some(&fixture.jobs[0])), later_us());
    for second in 0..5 {
        send(&mut fixture.agent, &shape, begin_us + second * 1_000_000, second, &[]);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        // The counter has no rate at its first sample.
        let (points, others) = client.points(if number % 2 == 0 { 14 } else { 5 });
        assert_eq!((points.len(), others), (if number % 2 == 0 { 3 } else { 1 }, Vec::<String>::new()));
    }
    drop(clients);
    wait_until("all places are free", || {
        let probe = Client::with_header(uid, &fixture.api, &target(key, "?seconds=1"), &header);
        probe.status == 200
    });
    assert!(fixture.collector.stop().is_ok(), "no thread has panicked");
}

fn a_stopping_collector_ends_its_streams(environment: &mut TestEnvironment) {
    let fixture = Fixture::new(environment);
    let key = key(&fixture, "1");
    let mut clients: Vec<Client> =
        (0..10).map(|_| Client::open(USERS[0], &fixture.api, &target(key, ""))).collect();
    clients.iter_mut().for_each(|client| drop(client.next_of("series")));
    assert!(fixture.collector.stop().is_ok(), "no thread has panicked");
    for client in &mut clients {
        assert_eq!(client.next(), Some(("end".to_owned(), json!({"reason": "stopping"}))));
        assert_eq!(client.next(), None);
        assert!(client.is_complete, "the answer is complete");
    }
}
