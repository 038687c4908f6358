//! Leases: users change the sampling of their own jobs for a limited time, and nothing else.

use polymeter_e2e::fixture::{Fixture, NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::tests;
use polymeter_e2e::{require, stored, wait_until};
use polymeter_proto::period::Period;
use polymeter_store::reader::PlanChangeRow;
use serde_json::{Value, json};

tests![
    lease_takes_effect_at_once_and_expires,
    lease_can_be_changed_and_revoked,
    users_cannot_change_other_jobs_or_the_node,
];

fn lease_takes_effect_at_once_and_expires() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let answer = fixture.granted(OWNER, &["cpu.usage=5ms", "perf.page_faults=20ms", "--for", "3s"]);
    assert_eq!(answer["metrics"]["cpu.usage"], "5ms", "{answer}");
    assert!(answer["cost"]["cpu_percent"].as_f64().unwrap() > 0.0, "{answer}");
    assert!(answer["cost"]["samples_per_s"].as_f64().unwrap() > 200.0, "{answer}");
    assert!(fixture.is("cpu.usage", "5ms", "lease"), "{:?}", fixture.in_force("cpu.usage"));
    assert!(fixture.is("pids.current", "50ms", "baseline"), "the other metrics keep their periods");
    let shown = fixture.user(OWNER, "plan", &["--job", "x"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("lease of you"), "{shown}");
    wait_until("the samples come close together", || {
        fixture.points("cpu.usage").windows(2).filter(|pair| pair[1].0 - pair[0].0 < 100_000).count() > 50
    });
    wait_until("the lease ends", || fixture.is("cpu.usage", "500ms", "baseline"));
    assert_eq!(fixture.in_force("perf.page_faults"), None, "only the lease requested it");

    wait_until("the store knows the end of the lease", || plan_changes(&fixture).len() == 3);
    let lease_changes = plan_changes(&fixture);
    let causes: Vec<_> =
        lease_changes.iter().map(|change| (change.cause.as_str(), change.new_period_us)).collect();
    assert_eq!(causes, [("baseline", Some(500_000)), ("lease", Some(5_000)), ("lease_end", Some(500_000))]);
    assert_eq!(lease_changes[1].actor.as_deref(), Some("uid 64001"));
    assert!(lease_changes[1].until_ns.unwrap() > lease_changes[1].time_ns);
    // A perf event that was counted before, during and after the lease was counted without interruption.
    let clock = fixture.points("perf.task_clock");
    assert!(clock.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{clock:?}");
    fixture.end();
}

fn plan_changes(fixture: &Fixture) -> Vec<PlanChangeRow> {
    let mut reader = fixture.env.reader();
    let job = stored::job(&mut reader, "x").unwrap();
    let mut changes = reader.plan_changes(job.job_key).unwrap();
    changes.retain(|change| change.metric == "cpu.usage");
    changes
}

fn lease_can_be_changed_and_revoked() {
    require(&NEEDS);
    let fixture = Fixture::new();
    fixture.granted(OWNER, &["cpu.*=10ms"]);
    fixture.granted(OWNER, &["cpu.*=20ms"]);
    assert!(fixture.is("cpu.usage", "20ms", "lease"), "a repeated request replaces the lease");
    fixture.granted(0, &["cpu.usage=100us"]);
    assert!(fixture.is("cpu.usage", "100us", "lease"), "no limit binds root");
    let reset = fixture.user(OWNER, "reset", &["--job", "x"]);
    assert_eq!(String::from_utf8(reset.stdout).unwrap(), "1 lease ended\n");
    assert!(fixture.is("cpu.usage", "100us", "lease"), "root's lease is not the owner's to end");
    fixture.granted(OWNER, &["pids.current=1s"]);
    assert!(fixture.is("pids.current", "50ms", "baseline"), "a lease never slows the baseline");
    assert_eq!(fixture.agent.ask(&json!({"verb": "reset", "job": "x"}))["ended"], 2);
    assert!(fixture.is("cpu.usage", "500ms", "baseline"));
    fixture.end();
}

fn users_cannot_change_other_jobs_or_the_node() {
    require(&NEEDS);
    // The limits are the default ones: a request for everything at 1 ms exceeds them.
    let fixture = Fixture::with("[limits]\n");
    let request = "cpu.usage=10ms";
    assert!(
        fixture.refused(OTHER_USER, "set", &["--job", "x", request]).contains("unknown job x, or not yours")
    );
    assert!(
        fixture.refused(OTHER_USER, "set", &["--node", "node.load1=1ms"]).contains("only administrators")
    );
    assert!(fixture.refused(OTHER_USER, "reset", &["--job", "x"]).contains("unknown job x, or not yours"));
    assert!(fixture.refused(OTHER_USER, "plan", &["--job", "x"]).contains("unknown job x, or not yours"));
    assert_eq!(
        String::from_utf8(fixture.user(OTHER_USER, "jobs", &[]).stdout).unwrap(),
        "no job is tracked on this node\n"
    );
    assert!(String::from_utf8(fixture.user(OWNER, "jobs", &[]).stdout).unwrap().contains("64001"));
    for job in ["../x", "x/../x", "y", "", "x\u{7}", "'; DROP TABLE job; --"] {
        fixture.refused(OWNER, "set", &["--job", job, request]);
    }
    for (request, word) in [
        ("cpu.usage=500us", "period 500us refused: the shortest period allowed for cpu.usage is 1ms"),
        ("cpu.usage=0s", "invalid period"),
        ("cpu.usage=off", "not switch a metric off"),
        ("cpu.usge=1s", "did you mean `cpu.usage`?"),
        ("cpu.[a-z]=1s", "invalid selector `cpu.[a-z]`"),
        ("*=1ms", "would be granted"),
    ] {
        let message = fixture.refused(OWNER, "set", &["--job", "x", request]);
        assert!(message.contains(word), "{request}: {message}");
    }
    // The owner's other requests, at any period, do not affect the message about the grantable period.
    fixture.granted(OWNER, &["pids.current=10min"]);
    let message = fixture.refused(OWNER, "set", &["--job", "x", "*=1ms"]);
    let output = fixture.user(OWNER, "set", &["--job", "x", "*=1ms", "--json"]);
    let refusal: Value = serde_json::from_slice(&output.stdout).unwrap();
    let instead: Period = refusal["instead"].as_str().unwrap().parse().unwrap();
    assert!(instead > Period::MILLISECOND && instead < "1min".parse().unwrap(), "{message}{refusal}");
    let message = fixture.refused(OWNER, "set", &["--job", "x", request, "--for", "2h"]);
    assert!(message.contains("the longest lease allowed is 1h"), "{message}");
    let refused = (0..100).filter(|number| {
        let plan = json!({ format!("perf.tracepoint.no.n{number}"): "1s", "cpu.usage": "10ms" });
        let answer = fixture.agent.ask(&json!({"verb": "set", "job": "x", "plan": plan}));
        answer["code"] == "too_many"
    });
    assert!(refused.count() > 30, "a job has a bounded number of leases");
    assert!(fixture.is("cpu.usage", "10ms", "lease"), "and those that were granted are in force");
    for (verb, status) in [("set", 2), ("reset", 2), ("plan", 2)] {
        let requests: &[&str] = if verb == "set" { &[request] } else { &[] };
        let output = fixture.user(OWNER, verb, requests);
        assert_eq!(output.status.code(), Some(status), "the job is not given");
    }
    assert_eq!(fixture.user(OWNER, "set", &["--job", "x", "cpu.usage"]).status.code(), Some(2), "no period");
    fixture.end();
}
