//! Control of the steps of a job on all its nodes through the collector.

use polymeter_e2e::fixture::{NEEDS, OWNER};
use polymeter_e2e::two_nodes::{TrackedNode, TwoNodes};
use polymeter_e2e::{require, stored, tests, wait_until};
use rustix::process::Signal;
use serde_json::json;

tests![a_lease_of_steps_reaches_all_nodes];

fn has_steps_at(node: &TrackedNode, metric: &str, period: &str) -> bool {
    node.in_force_at(Some("step"), metric)
        .is_some_and(|(found, cause, _)| found == period && cause == "lease")
}

fn a_lease_of_steps_reaches_all_nodes() {
    require(&NEEDS);
    let mut fixture = TwoNodes::new("");
    let steps = fixture.nodes.each_ref().map(|node| node.job.step("step_0"));
    let (answer, status) = fixture.answers(OWNER, &["set", "--steps", "cpu.usage=5ms", "--for", "10min"]);
    assert_eq!(status, 0, "{answer}");
    for node in answer["nodes"].as_array().unwrap() {
        let granted = &node["answer"];
        assert_eq!((&granted["level"], &granted["targets"]), (&json!("step"), &json!(1)), "{answer}");
    }
    assert!(fixture.nodes.iter().all(|node| has_steps_at(node, "cpu.usage", "5ms")));
    assert!(fixture.both_have("cpu.usage", "500ms", "baseline"), "the job as a whole keeps its period");
    let at_us = answer["at_us"].as_i64().unwrap();
    wait_until("the store knows the changes of both nodes", || {
        fixture.changes("cpu.usage", 5_000).len() == 2
    });
    assert!(fixture.changes("cpu.usage", 5_000).iter().all(|(_, changed_us)| *changed_us >= at_us));
    let mut reader = fixture.env.reader();
    let job = stored::job(&mut reader, "x").unwrap();
    let changes = reader.plan_changes(job.job_key).unwrap();
    let of_steps = changes.iter().filter(|change| change.new_period_us == Some(5_000));
    assert!(of_steps.clone().all(|change| change.level.as_deref() == Some("step")), "{changes:?}");

    // A stopped agent receives both requests for one metric, which differ in the level.
    fixture.nodes[1].agent.daemon.signal(Signal::STOP);
    assert_eq!(fixture.answers(OWNER, &["set", "--steps", "pids.current=20ms", "--for", "10min"]).1, 1);
    assert_eq!(fixture.answers(OWNER, &["set", "pids.current=10ms", "--for", "10min"]).1, 1);
    fixture.nodes[1].agent.daemon.signal(Signal::CONT);
    wait_until("it samples the job as requested", || fixture.nodes[1].is("pids.current", "10ms", "lease"));
    wait_until("and the steps", || has_steps_at(&fixture.nodes[1], "pids.current", "20ms"));

    // The leases of steps end, for good; that of the job lasts.
    let (answer, status) = fixture.answers(OWNER, &["reset", "--steps"]);
    assert_eq!(status, 0, "{answer}");
    for node in answer["nodes"].as_array().unwrap() {
        assert_eq!(node["answer"]["ended"], 2, "{answer}");
    }
    fixture.nodes[0].crash();
    wait_until("the new agent has the lease of the job", || {
        fixture.nodes[0].is("pids.current", "10ms", "lease")
    });
    for node in &fixture.nodes {
        assert!(node.is("pids.current", "10ms", "lease"));
        for metric in ["cpu.usage", "pids.current"] {
            assert_eq!(node.in_force_at(Some("step"), metric), None);
        }
    }
    drop(steps);
    fixture.end();
}
