//! Commands on a machine without an agent: jobs, values and samples of all nodes through the collector, and
//! completions.

use std::collections::BTreeSet;
use std::process::Command;

use polymeter_e2e::fixture::{NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::two_nodes::{TrackedNode, TwoNodes};
use polymeter_e2e::{program, require, stored, tests, text, wait_until};
use serde_json::Value;

use crate::terminal::{Terminal, words};

tests![
    jobs_that_run_on_all_nodes_are_listed,
    a_pushed_value_is_stored_once,
    samples_of_all_nodes_are_watched,
    keys_change_the_period_on_all_nodes,
    shells_complete_the_own_jobs,
    completion_without_an_answer_is_silent,
];

fn succeeded(fixture: &TwoNodes, uid: u32, arguments: &[&str]) -> String {
    let output = fixture.user(uid, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn jobs_that_run_on_all_nodes_are_listed() {
    require(&NEEDS);
    let fixture = TwoNodes::new("");
    let listed = |uid: u32, arguments: &[&str]| -> Vec<Value> {
        let arguments = [&["jobs", "--json"], arguments].concat();
        serde_json::from_str(&succeeded(&fixture, uid, &arguments)).unwrap()
    };
    wait_until("the store has the job on both nodes", || {
        listed(OWNER, &["--running"]).first().is_some_and(|job| job["nodes"].as_array().unwrap().len() == 2)
    });
    wait_until("the collector tells its version", || {
        fixture.nodes[0].agent.status()["collector"]["version"] == env!("CARGO_PKG_VERSION")
    });
    // No agent runs at the standard socket.
    for jobs in [listed(OWNER, &[]), listed(0, &["--running"])] {
        assert_eq!((jobs.len(), &jobs[0]["job"], &jobs[0]["ended"]), (1, &Value::from("x"), &Value::Null));
    }
    assert_eq!(listed(OTHER_USER, &["--running"]), [Value::Null; 0]);
    assert_eq!(listed(OWNER, &["--ended"]), [Value::Null; 0]);
    let table = succeeded(&fixture, OWNER, &["jobs"]);
    assert!(table.contains("STARTED (UTC)") && table.contains("running"), "{table}");
    fixture.end();
}

fn a_pushed_value_is_stored_once() {
    require(&NEEDS);
    let fixture = TwoNodes::new("");
    assert_eq!(succeeded(&fixture, OWNER, &["push", "--job", "x", "loss=0.5"]), "");
    assert!(fixture.refused(OTHER_USER, &["push", "--job", "x", "loss=7"]).contains("unknown job x"));
    let (answer, status) = fixture.answers(OWNER, &["push", "loss=0.25"]);
    assert_eq!((status, &answer["nodes"][0]["node"]), (0, &Value::from(fixture.nodes[0].name())), "{answer}");
    assert_eq!(answer["nodes"].as_array().unwrap().len(), 1, "{answer}");
    let values = || -> Vec<f64> {
        let mut reader = fixture.env.reader();
        let Some(job) = stored::job(&mut reader, "x") else { return Vec::new() };
        let exported = fixture.env.path("values.jsonl");
        let output = program("polymeter")
            .args(["export", "x", "--force", "--metric", "user.loss", "--format", "jsonl", "--store"])
            .args([&fixture.env.store(), "--output"])
            .arg(&exported)
            .output()
            .unwrap();
        if text(&output.stderr).contains("has no series of it") {
            return Vec::new();
        }
        assert!(job.job_key > 0 && output.status.success(), "{}", text(&output.stderr));
        let lines = std::fs::read_to_string(exported).unwrap();
        lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["value"].as_f64().unwrap())
            .collect()
    };
    wait_until("both values are stored", || values().len() >= 2);
    assert_eq!(values(), [0.5, 0.25]);
    fixture.end();
}

fn samples_of_all_nodes_are_watched() {
    require(&NEEDS);
    let fixture = TwoNodes::new("");
    wait_until("the store has the job", || stored::job(&mut fixture.env.reader(), "x").is_some());
    let names: BTreeSet<String> = fixture.nodes.iter().map(TrackedNode::name).map(str::to_owned).collect();
    wait_until("samples of both nodes are shown", || {
        let lines =
            succeeded(&fixture, OWNER, &["watch", "--job", "x", "--json", "--for", "4s", "cpu.usage"]);
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let samples = lines.iter().filter(|line| line["answer"] == "samples");
        assert!(samples.clone().all(|line| line["metric"] == "cpu.usage"), "{lines:?}");
        // Each sample of a series is shown once, in the order of time.
        for node in &names {
            let of_node = samples.clone().filter(|line| line["labels"]["node"] == node.as_str());
            let times: Vec<i64> = of_node
                .flat_map(|line| {
                    line["times_us"].as_array().unwrap().iter().map(|time| time.as_i64().unwrap())
                })
                .collect();
            assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
        }
        let shown: BTreeSet<String> =
            samples.map(|line| line["labels"]["node"].as_str().unwrap().to_owned()).collect();
        shown == names
    });
    let refused = fixture.user(OTHER_USER, &["watch", "--job", "x", "--count", "1", "cpu.usage"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("unknown job `x`, or not yours"), "{}", text(&refused.stderr));
    fixture.end();
}

fn keys_change_the_period_on_all_nodes() {
    require(&NEEDS);
    let fixture = TwoNodes::new("");
    wait_until("the store has the job", || stored::job(&mut fixture.env.reader(), "x").is_some());
    let mut watch = fixture.command(OWNER);
    watch.args(["watch", "--job", "x", "pids.current"]);
    let mut terminal = Terminal::run(&watch);
    terminal.wait_for("values of both nodes, and their period", |shown| {
        let words = words(shown);
        let has = |text: &str| words.iter().any(|word| word.contains(text));
        // The beginnings of names are left out where they do not fit.
        let mut ends =
            fixture.nodes.iter().map(|node| format!("-{}}}", node.name().rsplit('-').next().unwrap()));
        has("pids.current") && has("50ms") && ends.all(|end| has(&end))
    });
    terminal.press_until("+", || fixture.both_have("pids.current", "20ms", "lease"));
    terminal.press_until("-", || fixture.both_have("pids.current", "50ms", "baseline"));
    terminal.press_until("+", || fixture.both_have("pids.current", "20ms", "lease"));
    terminal.press_until("r", || fixture.both_have("pids.current", "50ms", "baseline"));
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
    fixture.end();
}

/// Completes the words of a user's command line with fish, without descriptions.
fn completed(command: &mut Command, words: &[&str]) -> Vec<String> {
    let output =
        command.env("_POLYMETER_COMPLETE", "fish").args(["--", "polymeter"]).args(words).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    text(&output.stdout).lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

fn shells_complete_the_own_jobs() {
    require(&NEEDS);
    let fixture = TwoNodes::new("");
    wait_until("the store has the job", || stored::job(&mut fixture.env.reader(), "x").is_some());
    let completed = |uid: u32, words: &[&str]| completed(&mut fixture.command(uid), words);
    for words in [&["report", ""][..], &["plan", "--job", ""], &["plan", "--job="], &["export", "x"]] {
        let expected = if words[1] == "--job=" { "--job=x" } else { "x" };
        // A busy machine may take longer than a shell should wait.
        wait_until("the owner's job is completed", || {
            completed(OWNER, words).iter().any(|id| id == expected)
        });
        assert!(!completed(OTHER_USER, words).iter().any(|id| id.ends_with('x')), "{words:?}");
    }
    assert_eq!(completed(OWNER, &["report", "y"]), [""; 0]);
    fixture.end();
}

fn completion_without_an_answer_is_silent() {
    // A socket on which nobody accepts.
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut command = program("polymeter");
    command.env("POLYMETER_COLLECTOR", &socket);
    let completed = completed(&mut command, &["report", ""]);
    assert!(completed.iter().all(|option| option.starts_with("--")), "no id of a job: {completed:?}");
}
