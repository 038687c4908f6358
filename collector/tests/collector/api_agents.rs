//! Tests of the agents over HTTP: their clocks, their connections, and the pages of their list.

use polymeter_proto::ledger::Event;
use serde_json::Value;

use crate::api::get;
use crate::reading::{Fixture, USERS};
use crate::support::agent::Agent;
use crate::support::{TestEnvironment, now_us, wait_until};

scenarios! {
    clocks_of_agents_are_compared_with_the_collectors,
    an_agent_that_has_stopped_is_not_connected,
    agents_are_listed_in_pages,
}

fn clocks_of_agents_are_compared_with_the_collectors(environment: &TestEnvironment) {
    let mut fixture = Fixture::new(environment);
    for (number, ahead_us) in (1..).zip([5_000_000_i64, -3_600_000_000]) {
        // A new session is measured at once. Of those that began at the same time any may be the newest.
        let session = 7 + ahead_us.unsigned_abs();
        fixture.agent = Agent::to(&environment.context, &fixture.collector, "n1", session);
        fixture.agent.descriptor.started_us += number * 1_000_000;
        fixture.agent.ahead_us = ahead_us;
        fixture.agent.frame(&[], &[], &[]);
        fixture.agent.send_from(0);
        let mut found = Value::Null;
        wait_until("the clock is measured", || {
            fixture.agent.receive(50);
            found = first_agent(&fixture);
            // Until its first frame is committed the predecessor is listed.
            found["session"] == format!("{session:016x}") && found["clock_offset_us"].is_i64()
        });
        let [offset_us, error_us, measured_us] =
            ["offset", "error", "measured"].map(|of| found[format!("clock_{of}_us")].as_i64().unwrap());
        assert!((offset_us - ahead_us).abs() <= error_us && error_us < 5_000_000, "{found}");
        assert!((now_us() - measured_us).abs() < 600_000_000, "{found}");
    }
}

fn first_agent(fixture: &Fixture) -> Value {
    get(0, &fixture.api, "/api/v1/agents").json()["agents"][0].clone()
}

fn nodes(uid: u32, fixture: &Fixture) -> Vec<Value> {
    get(uid, &fixture.api, "/api/v1/nodes").json()["nodes"].as_array().unwrap().clone()
}

fn an_agent_that_has_stopped_is_not_connected(environment: &TestEnvironment) {
    let mut fixture = Fixture::new(environment);
    let is_connected = |fixture: &Fixture| first_agent(fixture)["is_connected"].clone();
    assert_eq!((is_connected(&fixture), nodes(0, &fixture).len()), (Value::Bool(true), 1));
    assert_eq!(nodes(USERS[0], &fixture)[0]["jobs"], serde_json::json!(["1"]));
    let end = fixture.agent.frame(&[], &[], &[Event::SessionEnded { at_us: now_us() }]);
    fixture.agent.send(end);
    fixture.agent.wait_until_acknowledged();
    wait_until("the agent is not connected", || is_connected(&fixture) == Value::Bool(false));
    assert_eq!((nodes(0, &fixture), nodes(USERS[0], &fixture)), (Vec::new(), Vec::new()));
    // Its successor is.
    fixture.agent = Agent::to(&environment.context, &fixture.collector, "n1", 8);
    fixture.agent.descriptor.started_us += 1_000_000;
    fixture.agent.frame(&[], &[], &[]);
    fixture.agent.send_from(0);
    fixture.agent.wait_until_acknowledged();
    wait_until("the successor is connected", || is_connected(&fixture) == Value::Bool(true));
    assert_eq!(nodes(0, &fixture).len(), 1);
}

fn agents_are_listed_in_pages(environment: &TestEnvironment) {
    let fixture = Fixture::new(environment);
    for (number, node) in ["n3", "N2", "n-1", "n10"].into_iter().enumerate() {
        let session = 100 + u64::try_from(number).unwrap();
        let mut agent = Agent::to(&environment.context, &fixture.collector, node, session);
        agent.frame(&[], &[], &[]);
        agent.send_from(0);
        agent.wait_until_acknowledged();
    }
    let (mut listed, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = get(0, &fixture.api, &format!("/api/v1/agents?limit=2{cursor}")).json();
        let agents = page["agents"].as_array().unwrap();
        listed.extend(agents.iter().map(|agent| agent["node"].as_str().unwrap().to_owned()));
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!((listed, pages), (["N2", "n-1", "n1", "n10", "n3"].map(str::to_owned).to_vec(), 3));
    let whole = get(0, &fixture.api, "/api/v1/agents?limit=5").json();
    assert_eq!((whole["agents"].as_array().unwrap().len(), &whole["next"]), (5, &Value::Null));
    for wrong in ["limit=0", "limit=1001", "cursor="] {
        assert_eq!(get(0, &fixture.api, &format!("/api/v1/agents?{wrong}")).status, 400, "{wrong}");
    }
    assert!(
        get(USERS[0], &fixture.api, "/api/v1/agents?limit=5").json()["agents"].as_array().unwrap().is_empty()
    );
}
