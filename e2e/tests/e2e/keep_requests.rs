//! `polymeter keep`: who may keep an interval of a job's ring, and until when.

use std::collections::BTreeSet;

use polymeter_e2e::fixture::{Fixture, NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::two_nodes::TwoNodes;
use polymeter_e2e::{TestEnvironment, require, stored, tests, text, wait_until};
use polymeter_store::reader::KeptIntervalRow;
use serde_json::{Value, json};

tests![
    all_nodes_keep_the_same_interval_for_the_owner_and_administrators,
    the_agent_keeps_for_the_owner_and_administrators,
];

const ROOT: u32 = 0;

/// The ring of an ended job is dropped soon, but not before a slow machine has asked for it.
const RING: &str =
    "[hindsight]\nkeep = \"30s\"\nafter_end = \"20s\"\n[hindsight.metrics]\n\"pids.current\" = \"20ms\"\n";

fn keep(reason: &str) -> [&str; 5] {
    ["keep", "--last", "10s", "--reason", reason]
}

fn kept(env: &TestEnvironment, reason: &str) -> Vec<KeptIntervalRow> {
    let mut reader = env.reader();
    let Some(job) = stored::job(&mut reader, "x") else { return Vec::new() };
    let mut kept = reader.kept_intervals(job.job_key).unwrap();
    kept.retain(|row| row.reason == reason);
    kept
}

fn are_done((answer, _): &(Value, i32)) -> bool {
    let nodes = answer["nodes"].as_array().unwrap();
    nodes.len() == 2 && nodes.iter().all(|node| node["answer"]["answer"] == "done")
}

fn wait_for_common_interval(fixture: &TwoNodes, reason: &str) {
    wait_until(&format!("both nodes have sent: {reason}"), || kept(&fixture.env, reason).len() == 2);
    let rows = kept(&fixture.env, reason);
    let intervals: BTreeSet<_> = rows.iter().map(|row| (row.begin_ns, row.end_ns, row.trigger)).collect();
    assert_eq!(intervals.len(), 1, "{rows:?}");
    assert_eq!(rows[0].end_ns - rows[0].begin_ns, 10_000_000_000);
    let nodes: BTreeSet<&str> = rows.iter().map(|row| row.node.as_str()).collect();
    assert_eq!(nodes.len(), 2, "{rows:?}");
}

/// The refusal is that of a job that does not exist.
fn assert_learns_nothing(fixture: &TwoNodes) {
    let refused = |job| fixture.refused(OTHER_USER, &[&keep("curious")[..], &["--job", job]].concat());
    let (of_job, of_none) = (refused("x"), refused("q"));
    assert_eq!(of_job.replace("job x", "job q"), of_none);
    assert!(of_job.contains("or not yours"), "{of_job}");
}

fn all_nodes_keep_the_same_interval_for_the_owner_and_administrators() {
    require(&NEEDS);
    let fixture = TwoNodes::with("", RING);
    wait_until("both rings have samples", || are_done(&fixture.answers(OWNER, &keep("early"))));
    let before_us = fixture.now_us();
    assert!(are_done(&fixture.answers(OWNER, &keep("it hangs"))));
    wait_for_common_interval(&fixture, "it hangs");
    let end_us = kept(&fixture.env, "it hangs")[0].end_ns / 1000;
    assert!((before_us - 1_000_000..=fixture.now_us() + 1_000_000).contains(&end_us), "{end_us}");
    assert!(kept(&fixture.env, "it hangs").iter().any(|row| row.samples > 0));
    assert!(are_done(&fixture.answers(ROOT, &keep("looked at"))));
    wait_for_common_interval(&fixture, "looked at");
    assert_learns_nothing(&fixture);
    let (answer, status) = fixture.answers(OWNER, &["keep", "--last", "1h"]);
    assert_eq!(status, 1, "{answer}");
    assert!(answer["nodes"][1]["answer"]["message"].as_str().unwrap().contains("at most 100 s"), "{answer}");

    for node in &fixture.nodes {
        assert_eq!(node.agent.ask(&json!({"verb": "unregister", "job": "x"}))["answer"], "done");
    }
    assert!(are_done(&fixture.answers(OWNER, &keep("it crashed"))));
    assert_learns_nothing(&fixture);
    wait_for_common_interval(&fixture, "it crashed");
    stored::wait_for_end(&fixture.env, "x");
    wait_until("the rings are gone", || !are_done(&fixture.answers(OWNER, &keep("too late"))));
    wait_until("both rings are gone", || {
        let (answer, _) = fixture.answers(OWNER, &keep("too late"));
        let nodes = answer["nodes"].as_array().unwrap();
        nodes.iter().all(|node| {
            let message = node["answer"]["message"].as_str().unwrap_or_default();
            message.contains("the ring of a job that has ended is held for the time `after_end`")
        })
    });
    assert_learns_nothing(&fixture);
    assert!(kept(&fixture.env, "curious").is_empty());
    for node in fixture.nodes {
        node.agent.daemon.terminate();
    }
    fixture.collector.terminate();
}

fn the_agent_keeps_for_the_owner_and_administrators() {
    require(&NEEDS);
    let fixture = Fixture::with(RING);
    let arguments = |reason| ["--job", "x", "--last", "10s", "--reason", reason];
    let user = |uid, reason| fixture.user(uid, "keep", &arguments(reason));
    wait_until("the ring has samples", || user(OWNER, "early").status.success());
    let output = user(OWNER, "it hangs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "keeps the last 10s\n");
    let output = user(ROOT, "looked at");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let refused = |job| fixture.refused(OTHER_USER, "keep", &["--job", job]);
    let of_none = refused("q");
    assert_eq!(refused("x").replace("job x", "job q"), of_none);

    assert_eq!(fixture.agent.ask(&json!({"verb": "unregister", "job": "x"}))["answer"], "done");
    let output = user(OWNER, "it crashed");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(refused("x").replace("job x", "job q"), of_none);
    wait_until("all intervals are stored", || {
        ["it hangs", "looked at", "it crashed"].iter().all(|reason| kept(&fixture.env, reason).len() == 1)
    });
    wait_until("the ring is gone", || !user(OWNER, "too late").status.success());
    let late = fixture.refused(OWNER, "keep", &["--job", "x"]);
    assert_eq!(late.replace("job x", "job q"), of_none, "an ended job is like one that never was");
    assert!(late.contains("held for the time `after_end`"), "{late}");
    fixture.agent.daemon.terminate();
    fixture.collector.terminate();
}
