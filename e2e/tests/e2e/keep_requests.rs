//! `polymeter keep`: who may keep an interval of a job's ring, and until when.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Plan, collector};
use polymeter_e2e::fixture::{Fixture, NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::two_nodes::TwoNodes;
use polymeter_e2e::workload::Sleeper;
use polymeter_e2e::{TestEnvironment, as_user, require, stored, tests, text, wait_until};
use polymeter_store::reader::KeptIntervalRow;
use serde_json::{Value, json};

tests![
    all_nodes_keep_the_same_interval_for_the_owner_and_administrators,
    the_agent_keeps_for_the_owner_and_administrators,
    a_ring_whose_lease_has_ended_says_what_it_has,
    each_node_says_what_it_keeps,
    the_owner_of_a_discovered_job_keeps_after_its_end,
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
    nodes.len() == 2 && nodes.iter().all(|node| node["answer"]["answer"] == "keeps")
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
    let said = text(&output.stdout);
    assert!(said.starts_with("keeps ") && said.contains("of 10 s") && said.contains(" samples"), "{said}");
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
    // Its samples are out of the last seconds before it is dropped.
    let all = ["--job", "x", "--last", "50s"];
    wait_until("the last seconds have nothing", || !user(OWNER, "too late").status.success());
    assert!(fixture.user(OWNER, "keep", &all).status.success());
    wait_until("the ring is gone", || !fixture.user(OWNER, "keep", &all).status.success());
    let late = fixture.refused(OWNER, "keep", &all);
    assert_eq!(late.replace("job x", "job q"), of_none, "an ended job is like one that never was");
    assert!(late.contains("held for the time `after_end`"), "{late}");
    fixture.agent.daemon.terminate();
    fixture.collector.terminate();
}

/// Number, as the answer or the store has it.
fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn a_ring_whose_lease_has_ended_says_what_it_has() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let keep = |more: &[&str]| {
        let output = fixture.user(OWNER, "keep", &[&["--job", "x", "--json"], more].concat());
        assert!(output.status.success(), "{more:?}: {}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    assert!(fixture.refused(OWNER, "keep", &["--job", "x"]).contains("has no ring"));
    fixture.granted(OWNER, &["--ring", "pids.current=20ms", "--for", "4s"]);
    wait_until("the ring has samples", || fixture.user(OWNER, "keep", &["--job", "x"]).status.success());
    let running = keep(&["--last", "1s"]);
    assert_eq!(
        (&running["answer"], &running["until_us"]),
        (&json!("keeps"), &running["end_us"]),
        "{running}"
    );
    wait_until("the lease has ended", || fixture.in_force("ring.pids.current").is_none());
    // Its last samples are flushed, and are older than the last second.
    polymeter_e2e::pause(2500);
    let late = fixture.refused(OWNER, "keep", &["--job", "x", "--last", "1s"]);
    assert!(
        late.contains("the ring of the job has samples from") && late.contains("ask for a longer time"),
        "{late}"
    );

    let ended = keep(&["--last", "20s", "--reason", "what there is"]);
    let of = |name: &str| number(&ended[name]);
    assert_eq!(of("end_us") - of("begin_us"), 20_000_000, "{ended}");
    assert!(of("from_us") > of("begin_us") && of("until_us") < of("end_us") - 1_000_000, "{ended}");
    let length_us = of("until_us") - of("from_us");
    assert!((3_000_000..6_000_000).contains(&length_us), "the lease was 4 s long: {ended}");
    // One sample each 20 ms; a stall makes some late.
    let expected = length_us / 20_000;
    assert!((expected * 8 / 10..=expected * 11 / 10).contains(&of("samples")), "{expected}: {ended}");
    wait_until("the store has the interval", || kept(&fixture.env, "what there is").len() == 1);
    // All intervals together have what the answer says, for each sample is sent once.
    let all: i64 = {
        let mut reader = fixture.env.reader();
        let job = stored::job(&mut reader, "x").unwrap();
        reader.kept_intervals(job.job_key).unwrap().iter().map(|row| row.samples.cast_signed()).sum()
    };
    assert!((all - of("samples")).abs() <= all / 20 + 2, "{all} stored: {ended}");
    let again = fixture.user(OWNER, "keep", &["--job", "x", "--last", "20s"]);
    let said = text(&again.stdout);
    assert!(said.contains("of 20 s") && said.contains("the ring has none before"), "{said}");
    assert!(said.contains("the job, or its lease, ended then"), "{said}");
    fixture.end();
}

fn each_node_says_what_it_keeps() {
    require(&NEEDS);
    let fixture = TwoNodes::new("");
    // A ring on one node alone.
    let set =
        json!({"verb": "set", "job": "x", "ring": true, "plan": {"pids.current": "20ms"}, "for": "10min"});
    assert_eq!(fixture.nodes[0].agent.ask(&set)["answer"], "granted");
    let name = fixture.nodes[0].name().to_owned();
    let answer_of = |(answer, status): &(Value, i32), is_first: bool| {
        let nodes = answer["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| (node["node"] == name.as_str()) == is_first).unwrap();
        (node["answer"].clone(), *status)
    };
    wait_until("the ring has samples", || {
        answer_of(&fixture.answers(OWNER, &keep("early")), true).0["answer"] == "keeps"
    });
    let answers = fixture.answers(OWNER, &keep("partly"));
    let (refused, status) = answer_of(&answers, false);
    assert_eq!((status, &refused["code"]), (1, &json!("unavailable")), "{answers:?}");
    assert!(refused["message"].as_str().unwrap().contains("has no ring"), "{refused}");
    assert!(number(&answer_of(&answers, true).0["samples"]) > 0, "{answers:?}");
    let output = fixture.user(OWNER, &["keep", "--job", "x", "--last", "5s"]);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("keeps") && said.contains("refused") && said.contains("samples"), "{said}");
    assert!(errors.contains("succeeded on 1 of 2 nodes"), "{errors}");

    // Each interval that waits takes one of 16 places.
    let now_us = fixture.now_us();
    let mut refused = Vec::new();
    for trigger in 0..20 {
        let keep = json!({"verb": "keep", "job": "x", "begin_us": now_us, "end_us": now_us + 60_000_000,
            "trigger": trigger, "reason": "waits"});
        let answer = fixture.nodes[0].agent.ask(&keep);
        if answer["answer"] != "keeps" {
            refused.push(answer);
        }
    }
    // Those before may still wait.
    assert!((4..=10).contains(&refused.len()), "{refused:?}");
    for answer in refused {
        assert_eq!(answer["code"], "busy", "{answer}");
        assert!(answer["message"].as_str().unwrap().contains("try again"), "{answer}");
    }
    fixture.end();
}

/// Nobody has announced the job: its owner is that of its processes.
fn the_owner_of_a_discovered_job_keeps_after_its_end() {
    require(&NEEDS);
    let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
    let (collector, endpoint) = collector(&env, &env.endpoint());
    let baseline = [("pids.current", "50ms")];
    let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline: &baseline };
    let agent = Agent::start_with(&env, &plan, "", RING);
    fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    let keep = |uid: u32| {
        let keep = json!({"verb": "keep_last", "job": "x", "last": "25s", "reason": "crashed"});
        as_user((uid, uid), || agent.ask(&keep))
    };
    let (job, sleeper) = (cgroups.job("x"), Sleeper::start_as(OWNER));
    // The agent finds the job before it has a process.
    agent.wait_until_tracked("x", &["v1/pids.current"]);
    job.enter(sleeper.pid());
    wait_until("the owner is known", || keep(OWNER)["answer"] == "keeps");
    drop(sleeper);
    job.remove();
    stored::wait_for_end(&env, "x");
    assert_eq!(keep(OTHER_USER)["answer"], "refused");
    let kept = keep(OWNER);
    assert_eq!(kept["answer"], "keeps", "{kept}");
    agent.daemon.terminate();
    collector.terminate();
}
