//! Leases: users change the sampling of their own jobs for a limited time, and nothing else.

use polymeter_e2e::scene::{NEEDS, OTHER_USER, OWNER, Scene};
use polymeter_e2e::tests;
use polymeter_e2e::{require, stored, wait_until};
use polymeter_proto::period::Period;
use serde_json::{Value, json};

tests![
    lease_takes_effect_at_once_and_expires,
    lease_can_be_changed_and_revoked,
    users_cannot_change_other_jobs_or_the_node,
];

fn lease_takes_effect_at_once_and_expires() {
    require(&NEEDS);
    let scene = Scene::set();
    let answer = scene.granted(OWNER, &["cpu.usage=5ms", "perf.page_faults=20ms", "--for", "3s"]);
    assert_eq!(answer["metrics"]["cpu.usage"], "5ms", "{answer}");
    assert!(answer["cost"]["cpu_percent"].as_f64().unwrap() > 0.0, "{answer}");
    assert!(answer["cost"]["samples_per_s"].as_f64().unwrap() > 200.0, "{answer}");
    assert!(scene.is("cpu.usage", "5ms", "lease"), "{:?}", scene.in_force("cpu.usage"));
    assert!(scene.is("pids.current", "50ms", "baseline"), "the other metrics keep their periods");
    let shown = scene.user(OWNER, "plan", &["--job", "x"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("lease of uid 64001"), "{shown}");
    let close = |pair: &[(i64, f64)]| pair[1].0 - pair[0].0 < 100_000;
    wait_until("the samples come close together", || {
        scene.points("cpu.usage").windows(2).filter(|pair| close(pair)).count() > 50
    });
    wait_until("the lease ends", || scene.is("cpu.usage", "500ms", "baseline"));
    assert_eq!(scene.in_force("perf.page_faults"), None, "nobody but the lease wanted it");

    let changes = || {
        let mut reader = scene.env.reader();
        let job = stored::job(&mut reader, "x").unwrap();
        let mut changes = reader.plan_changes(job.job_key).unwrap();
        changes.retain(|change| change.metric == "cpu.usage");
        changes
    };
    wait_until("the store knows the end of the lease", || changes().len() == 3);
    let told = changes();
    let causes: Vec<_> = told.iter().map(|change| (change.cause.as_str(), change.new_period_us)).collect();
    assert_eq!(causes, [("baseline", Some(500_000)), ("lease", Some(5_000)), ("lease_end", Some(500_000))]);
    assert_eq!(told[1].actor.as_deref(), Some("uid 64001"));
    assert!(told[1].until_ns.unwrap() > told[1].time_ns);
    // A perf event that was counted before, during and after the lease was counted without interruption.
    let clock = scene.points("perf.task_clock");
    assert!(clock.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{clock:?}");
    scene.end();
}

fn lease_can_be_changed_and_revoked() {
    require(&NEEDS);
    let scene = Scene::set();
    scene.granted(OWNER, &["cpu.*=10ms"]);
    scene.granted(OWNER, &["cpu.*=20ms"]);
    assert!(scene.is("cpu.usage", "20ms", "lease"), "the same wish once more is another in its place");
    scene.granted(0, &["cpu.usage=100us"]);
    assert!(scene.is("cpu.usage", "100us", "lease"), "root is not bounded");
    let reset = scene.user(OWNER, "reset", &["--job", "x"]);
    assert_eq!(String::from_utf8(reset.stdout).unwrap(), "1 leases ended\n");
    assert!(scene.is("cpu.usage", "100us", "lease"), "root's lease is not the owner's to end");
    scene.granted(OWNER, &["pids.current=1s"]);
    assert!(scene.is("pids.current", "50ms", "baseline"), "a lease never slows the baseline");
    assert_eq!(scene.agent.ask(&json!({"verb": "reset", "job": "x"}))["ended"], 2);
    assert!(scene.is("cpu.usage", "500ms", "baseline"));
    scene.end();
}

fn users_cannot_change_other_jobs_or_the_node() {
    require(&NEEDS);
    let scene = Scene::set();
    let wish = "cpu.usage=10ms";
    assert!(scene.refused(OTHER_USER, "set", &["--job", "x", wish]).contains("unknown job x, or not yours"));
    assert!(scene.refused(OTHER_USER, "set", &["--node", "node.load1=1ms"]).contains("only administrators"));
    assert!(scene.refused(OTHER_USER, "reset", &["--job", "x"]).contains("unknown job x, or not yours"));
    assert!(scene.refused(OTHER_USER, "plan", &["--job", "x"]).contains("unknown job x, or not yours"));
    assert_eq!(String::from_utf8(scene.user(OTHER_USER, "jobs", &[]).stdout).unwrap(), "no job is tracked\n");
    assert!(String::from_utf8(scene.user(OWNER, "jobs", &[]).stdout).unwrap().contains("64001"));
    for job in ["../x", "x/../x", "y", "", "x\u{7}", "'; DROP TABLE job; --"] {
        scene.refused(OWNER, "set", &["--job", job, wish]);
    }
    for (wish, word) in [
        ("cpu.usage=500us", "period 500us refused: the shortest period allowed for cpu.usage is 1ms"),
        ("cpu.usage=0s", "invalid period"),
        ("cpu.usage=off", "not switch a metric off"),
        ("cpu.usge=1s", "did you mean `cpu.usage`?"),
        ("cpu.[a-z]=1s", "invalid selector `cpu.[a-z]`"),
        ("*=1ms", "would be granted"),
    ] {
        let said = scene.refused(OWNER, "set", &["--job", "x", wish]);
        assert!(said.contains(word), "{wish}: {said}");
    }
    // The owner's other requests, at any period, do not affect the message about the grantable period.
    scene.granted(OWNER, &["pids.current=10min"]);
    let said = scene.refused(OWNER, "set", &["--job", "x", "*=1ms"]);
    let output = scene.user(OWNER, "set", &["--job", "x", "*=1ms", "--json"]);
    let refusal: Value = serde_json::from_slice(&output.stdout).unwrap();
    let instead: Period = refusal["instead"].as_str().unwrap().parse().unwrap();
    assert!(instead > Period::MILLISECOND && instead < "1min".parse().unwrap(), "{said}{refusal}");
    let said = scene.refused(OWNER, "set", &["--job", "x", wish, "--for", "2h"]);
    assert!(said.contains("the longest lease allowed is 1h"), "{said}");
    let refused = (0..100).filter(|number| {
        let plan = json!({ format!("perf.tracepoint.no.n{number}"): "1s", "cpu.usage": "10ms" });
        let answer = scene.agent.ask(&json!({"verb": "set", "job": "x", "plan": plan}));
        answer["code"] == "too_many"
    });
    assert!(refused.count() > 30, "a job has a bounded number of leases");
    assert!(scene.is("cpu.usage", "10ms", "lease"), "and those that were granted are in force");
    for (verb, status) in [("set", 2), ("reset", 2), ("plan", 2)] {
        let wishes: &[&str] = if verb == "set" { &[wish] } else { &[] };
        let output = scene.user(OWNER, verb, wishes);
        assert_eq!(output.status.code(), Some(status), "which job is not said");
    }
    assert_eq!(scene.user(OWNER, "set", &["--job", "x", "cpu.usage"]).status.code(), Some(2), "no period");
    scene.end();
}
