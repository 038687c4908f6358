//! Control of a job on all its nodes through the collector: the owner may, other users may not.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;

use polymeter_e2e::daemons::ask;
use polymeter_e2e::fixture::{NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::munge::Munged;
use polymeter_e2e::tests;
use polymeter_e2e::two_nodes::{TrackedNode, TwoNodes};
use polymeter_e2e::{Need, as_user, pause, require, wait_until};
use polymeter_proto::control::Greeting;
use rustix::process::Signal;
use serde_json::{Value, json};

tests![
    only_the_owner_changes_all_nodes_at_one_time,
    disconnected_agent_receives_pending_requests,
    munge_authenticates_remote_users,
];

fn ask_as(uid: u32, socket: &Path, line: &str) -> Value {
    as_user((uid, uid), || ask(socket, line))
}

fn only_the_owner_changes_all_nodes_at_one_time() {
    require(&NEEDS);
    let fixture = TwoNodes::new("");
    let (answer, status) = fixture.answers(OWNER, &["set", "cpu.usage=5ms", "--for", "10min"]);
    assert_eq!(status, 0, "{answer}");
    let nodes = answer["nodes"].as_array().unwrap();
    let names: Vec<_> = nodes.iter().map(|node| node["node"].as_str().unwrap()).collect();
    assert_eq!(names, fixture.nodes.each_ref().map(TrackedNode::name));
    for node in nodes {
        assert_eq!(node["answer"]["metrics"]["cpu.usage"], "5ms", "{node}");
    }
    assert!(fixture.both_have("cpu.usage", "5ms", "lease"));
    wait_until("the store knows both_have changes", || fixture.changes("cpu.usage", 5_000).len() == 2);
    let (at_us, changes) = (answer["at_us"].as_i64().unwrap(), fixture.changes("cpu.usage", 5_000));
    for (node, changed_us) in &changes {
        assert!(*changed_us >= at_us, "{node} changed too early");
        println!("{node} changed {} µs after the time that was set", changed_us - at_us);
    }
    println!("between the nodes: {} µs", changes[0].1.abs_diff(changes[1].1));

    for arguments in
        [&["set", "--job", "x", "cpu.usage=10ms"][..], &["reset", "--job", "x"], &["plan", "--job", "x"]]
    {
        assert!(
            fixture.refused(OTHER_USER, arguments).contains("unknown job x, or not yours"),
            "{arguments:?}"
        );
    }
    assert!(fixture.refused(OWNER, &["plan", "--job", "y"]).contains("unknown job y, or not yours"));
    // Another user gets the same answer for an existing and a missing job; root can tell them apart.
    for request in [
        json!({"verb": "plan"}),
        json!({"verb": "set", "plan": {"cpu.usage": "10ms"}}),
        json!({"verb": "reset"}),
        json!({"verb": "mark", "name": "here"}),
    ] {
        assert_eq!(
            answer_about(&fixture, &request, "x", OTHER_USER),
            answer_about(&fixture, &request, "missing", OTHER_USER),
            "{request}"
        );
        assert!(
            answer_about(&fixture, &request, "missing", OTHER_USER).contains("\"unknown_job\""),
            "{request}"
        );
        assert!(answer_about(&fixture, &request, "missing", 0).contains("no agent connected"), "{request}");
    }
    assert!(fixture.both_have("cpu.usage", "5ms", "lease"), "another user has changed nothing");

    let output = fixture.user(OWNER, &["set", "--job", "x", "cpu.usage=100us"]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    assert_eq!(stdout.lines().filter(|line| line.contains("refused") && line.contains("1ms")).count(), 2);
    let shown = String::from_utf8(fixture.user(0, &["plan", "--job", "x"]).stdout).unwrap();
    assert_eq!(shown.matches("lease of uid 64001").count(), 2, "{shown}");

    let done = fixture.user(OWNER, &["reset", "--job", "x"]);
    let stdout = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success());
    assert_eq!(stdout.lines().filter(|line| line.ends_with("done  1 lease ended")).count(), 2, "{stdout}");
    assert!(fixture.both_have("cpu.usage", "500ms", "baseline"));
    // A user on one of the job's nodes can name its agent, and reaches that node only.
    let node = &fixture.nodes[0];
    let socket = node.agent.socket.to_str().unwrap();
    assert_eq!(
        fixture.user(0, &["set", "--socket", socket, "--job", "x", "cpu.usage=5ms"]).status.code(),
        Some(0)
    );
    assert!(node.is("cpu.usage", "5ms", "lease") && fixture.nodes[1].is("cpu.usage", "500ms", "baseline"));
    fixture.end();
}

fn answer_about(fixture: &TwoNodes, request: &Value, job: &str, uid: u32) -> String {
    let mut request = request.clone();
    request["job"] = json!(job);
    let answer = ask_as(uid, &fixture.socket, &format!("{request}\n"));
    answer.to_string().replace(&format!("job {job}"), "job JOB")
}

fn disconnected_agent_receives_pending_requests() {
    require(&NEEDS);
    let mut fixture = TwoNodes::new("");
    fixture.nodes[1].agent.daemon.signal(Signal::STOP);
    let (answer, status) = fixture.answers(OWNER, &["set", "cpu.usage=5ms", "--for", "10min"]);
    assert_eq!(status, 1, "{answer}");
    assert_eq!(answer["nodes"][0]["answer"]["answer"], "granted", "{answer}");
    assert_eq!(answer["nodes"][1]["answer"], Value::Null, "{answer}");
    let stdout = String::from_utf8(fixture.user(OWNER, &["plan", "--job", "x"]).stdout).unwrap();
    assert!(stdout.contains(&format!("{}  no answer", fixture.nodes[1].name())), "{stdout}");
    fixture.nodes[1].agent.daemon.signal(Signal::CONT);
    wait_until("the stopped agent does it late", || fixture.nodes[1].is("cpu.usage", "5ms", "lease"));
    let ends = fixture.nodes.each_ref().map(|node| node.in_force("cpu.usage").unwrap().2.unwrap());
    assert!(ends[0].abs_diff(ends[1]) < 1_000_000, "the lease ends at one time everywhere: {ends:?}");

    fixture.nodes[0].crash();
    wait_until("the new agent has the lease", || fixture.nodes[0].is("cpu.usage", "5ms", "lease"));
    let again = fixture.nodes[0].in_force("cpu.usage").unwrap().2.unwrap();
    assert!(again.abs_diff(ends[1]) < 1_000_000, "with its old end: {again} and {ends:?}");

    fixture.nodes[1].agent.daemon.signal(Signal::STOP);
    assert_eq!(fixture.answers(OWNER, &["set", "pids.current=5ms", "--for", "10min"]).1, 1);
    fixture.crash_collector();
    fixture.nodes[1].agent.daemon.signal(Signal::CONT);
    wait_until("the next collector forwards the request, too", || {
        fixture.nodes[1].is("pids.current", "5ms", "lease")
    });
    wait_until("the collector knows both nodes", || fixture.known() == 2);

    fixture.nodes[1].agent.daemon.signal(Signal::STOP);
    assert_eq!(fixture.answers(OWNER, &["reset"]).1, 1);
    assert!(fixture.nodes[0].is("cpu.usage", "500ms", "baseline"));
    fixture.nodes[1].agent.daemon.signal(Signal::CONT);
    wait_until("the stopped agent ends it late", || fixture.nodes[1].is("cpu.usage", "500ms", "baseline"));
    fixture.nodes[0].crash();
    wait_until("the collector knows the new agent", || fixture.known() == 2);
    assert!(fixture.nodes[0].is("cpu.usage", "500ms", "baseline"), "a revoked lease does not return");
    fixture.end();
}

/// Sends a request to the collector's TCP control listener and returns the answer. `credential` makes the
/// message from the text to be signed.
fn ask_signed(address: &str, line: &str, credential: impl FnOnce(&str) -> String) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut read = BufReader::new(stream.try_clone().unwrap());
    let mut greeting = String::new();
    read.read_line(&mut greeting).unwrap();
    let sent = credential(&Greeting::parse(&greeting).unwrap().sign(line));
    stream.write_all(sent.as_bytes()).unwrap();
    let mut answer = String::new();
    read.read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{answer:?}: {error}"))
}

fn munge_authenticates_remote_users() {
    require(&[&NEEDS[..], &[Need::Munge]].concat());
    let munged = Munged::start();
    let more = format!(
        "control_listen = \"tcp://127.0.0.1:0\"\nauth = \"munge\"\nmunge_socket = \"{}\"\n",
        munged.socket().display()
    );
    let fixture = TwoNodes::new(&more);
    let log = fixture.collector.log();
    let (_, address) = log.split_once("tcp://").unwrap();
    let address = address.split_whitespace().next().unwrap();
    let (endpoint, socket) = (format!("tcp://{address}"), munged.socket());
    let options = ["--collector", &endpoint, "--munge-socket", socket.to_str().unwrap(), "--job", "x"];

    let output = fixture.user(OWNER, &[&["set", "cpu.usage=5ms", "--for", "10min"], &options[..]].concat());
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout.matches("granted").count(), 2, "{stdout}");
    assert!(fixture.both_have("cpu.usage", "5ms", "lease"));
    let shown = String::from_utf8(fixture.user(0, &["plan", "--job", "x"]).stdout).unwrap();
    assert_eq!(shown.matches("lease of uid 64001").count(), 2, "{shown}");
    assert!(
        fixture
            .refused(OTHER_USER, &[&["reset"], &options[..]].concat())
            .contains("unknown job x, or not yours")
    );

    let line = "{\"verb\":\"reset\",\"job\":\"x\"}";
    let munge = |options: &[&str], payload: &str| munged.munge(options, payload).unwrap();
    let mut used = String::new();
    let plan = ask_signed(address, "{\"verb\":\"plan\",\"job\":\"x\"}", |payload| {
        used = munge(&[], payload);
        used.clone()
    });
    assert_eq!(plan["answer"], "nodes", "root may look: {plan}");
    assert_eq!(ask_signed(address, line, |_| used)["code"], "replayed");
    let expired = ask_signed(address, line, |payload| {
        let credential = munge(&["--ttl=1"], payload);
        pause(2_100);
        credential
    });
    assert_eq!(expired["code"], "expired", "{expired}");
    let for_other_connection =
        ask_signed(address, line, |_| munge(&[], &Greeting::new("00".to_owned(), "1", 0).sign(line)));
    assert_eq!(
        for_other_connection["code"], "credential",
        "made for another connection: {for_other_connection}"
    );
    assert_eq!(
        ask_signed(address, line, |_| munge(&[], line))["code"],
        "credential",
        "made for another payload"
    );
    for (sent, code) in [
        (format!("{line}\n"), "credential"),
        ("MUNGE:AwQFAAALPbDQ4QYlqz7PoapJ:\n".to_owned(), "credential"),
        ("\n".to_owned(), "credential"),
        ("x".repeat(96 * 1024), "too_long"),
    ] {
        assert_eq!(ask_signed(address, line, |_| sent)["code"], code);
    }
    assert!(fixture.both_have("cpu.usage", "5ms", "lease"), "no refused request changed the plan");
    drop(munged);
    let output = fixture.user(OWNER, &[&["reset"], &options[..]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        fixture.answers(OWNER, &["reset"]).1,
        0,
        "on the collector's own machine no credential is needed"
    );
    fixture.end();
}
