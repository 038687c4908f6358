//! Leases whose samples go to the ring of a job, on a node without `[hindsight]`.

use polymeter_e2e::fixture::{Fixture, NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::{require, stored, tests, wait_until};
use serde_json::json;

tests![a_lease_of_the_ring_sends_what_is_kept_and_nothing_else, leases_of_the_ring_are_refused_as_others];

const RING: &str = "ring.cpu.usage";

/// Causes and new periods of the recorded plan of the ring.
fn ring_changes(fixture: &Fixture) -> Vec<(String, Option<i64>)> {
    let mut reader = fixture.env.reader();
    let Some(job) = stored::job(&mut reader, "x") else { return Vec::new() };
    let changes = reader.plan_changes(job.job_key).unwrap().into_iter();
    let of_ring = changes.filter(|change| change.metric == RING);
    of_ring.map(|change| (change.cause, change.new_period_us)).collect()
}

/// Samples that were taken for the ring, as the agent's status has them.
fn samples_for_the_ring(fixture: &Fixture) -> u64 {
    let status = fixture.agent.status();
    let subjects = status["subjects"].as_array().unwrap().iter();
    let sources = subjects.flat_map(|subject| subject["sources"].as_array().unwrap());
    let of_ring = sources.filter(|source| source["name"].as_str().unwrap().starts_with("ring/"));
    of_ring.map(|source| source["tally"]["taken"].as_u64().unwrap()).sum()
}

fn a_lease_of_the_ring_sends_what_is_kept_and_nothing_else() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let keep = ["--job", "x", "--last", "20s", "--reason", "looked odd"];
    assert!(fixture.refused(OWNER, "keep", &keep).contains("polymeter set --ring"));
    let sent = fixture.granted(OWNER, &["pids.current=1s"])["cost"]["samples_per_s"].as_f64().unwrap();
    let answer = fixture.granted(OWNER, &["--ring", "cpu.usage=10ms", "--for", "10min"]);
    assert_eq!(answer["metrics"], json!({RING: "10ms"}), "{answer}");
    assert!((answer["cost"]["samples_per_s"].as_f64().unwrap() - sent).abs() < 1e-6, "{answer}");
    assert!(answer["cost"]["cpu_percent"].as_f64().unwrap() > 0.0, "{answer}");
    assert!(fixture.is(RING, "10ms", "lease") && fixture.is("cpu.usage", "500ms", "baseline"));
    let shown = String::from_utf8(fixture.user(OWNER, "plan", &["--job", "x"]).stdout).unwrap();
    assert!(shown.contains(RING) && shown.contains("lease of you"), "{shown}");

    assert!(fixture.refused(OTHER_USER, "keep", &keep).contains("unknown job x, or not yours"));
    wait_until("the ring has taken enough samples", || samples_for_the_ring(&fixture) > 100);
    wait_until("the ring has samples to keep", || fixture.user(OWNER, "keep", &keep).status.success());
    wait_until("the store has the interval", || {
        let mut reader = fixture.env.reader();
        let job = stored::job(&mut reader, "x").unwrap();
        let kept = reader.kept_intervals(job.job_key).unwrap();
        kept.iter().any(|kept| kept.samples > 50 && kept.reason.contains("looked odd"))
    });
    // The first reading precedes the grid, and a stall makes a sample late; the ring has more than 100.
    let times = fixture.points("cpu.usage");
    let close = times.windows(2).filter(|pair| pair[1].0 - pair[0].0 < 100_000).count();
    assert!(close < 20, "the plan's samples alone: {times:?}");

    let reset = fixture.user(OWNER, "reset", &["--job", "x"]);
    assert_eq!(String::from_utf8(reset.stdout).unwrap(), "2 leases ended\n");
    assert_eq!(fixture.in_force(RING), None);
    let expected = [("lease".to_owned(), Some(10_000)), ("lease_end".to_owned(), None)];
    wait_until("the store knows both changes", || ring_changes(&fixture) == expected);
    fixture.end();
}

fn leases_of_the_ring_are_refused_as_others() {
    require(&NEEDS);
    let fixture = Fixture::with("[limits]\n");
    let set = |uid, more: &[&str]| fixture.refused(uid, "set", &[&["--job", "x", "--ring"], more].concat());
    assert!(set(OTHER_USER, &["cpu.usage=10ms"]).contains("unknown job x, or not yours"));
    assert!(set(OWNER, &["cpu.usage=100us"]).contains("the shortest period allowed for cpu.usage is 1ms"));
    assert!(set(OWNER, &["cpu.usage=10ms", "--for", "2h"]).contains("the longest lease allowed is 1h"));
    assert!(set(OWNER, &["*=1ms"]).contains("predicted cost above `job_cpu_percent`"));
    assert!(set(OWNER, &["cpu.usage=1ms/1s"]).contains("write cpu.usage=1ms"));
    assert!(set(OWNER, &["stacks.cpu=10ms"]).contains("the ring holds no call stacks"));
    let of_steps = fixture.user(OWNER, "set", &["--job", "x", "--ring", "--steps", "cpu.usage=10ms"]);
    assert_eq!(of_steps.status.code(), Some(2));
    let of_node = fixture.agent.ask(&json!({"verb": "set", "ring": true, "plan": {"node.load1": "1s"}}));
    assert_eq!((&of_node["code"], &of_node["field"]), (&json!("invalid"), &json!("ring")), "{of_node}");
    assert!(ring_changes(&fixture).is_empty(), "no refused request changed the plan");
    fixture.end();

    let forbidding = Fixture::with("[limits]\nring_leases = false\n");
    let refused = forbidding.refused(OWNER, "set", &["--job", "x", "--ring", "cpu.usage=10ms"]);
    assert!(refused.contains("`ring_leases`"), "{refused}");
    forbidding.granted(0, &["--ring", "cpu.usage=10ms"]);
    assert!(forbidding.is(RING, "10ms", "lease"), "no limit binds root");
    forbidding.end();
}
