//! Tests of the program with a PostgreSQL server: the check of a connection, passwords, and errors of the
//! server in the log.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::postgres::{send_row, server};
use crate::support::agent::Agent;
use crate::support::program::{RunningCollector, run, run_with};
use crate::support::server::{Server, free_port};
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

polymeter_test_harness::tests![
    a_connection_is_checked,
    a_password_that_everybody_can_read_is_refused,
    a_read_only_server_is_reported_once,
    a_server_that_is_away_is_reported_once
];

const CHECK: [&str; 2] = ["--check", "--connect"];

/// Accepts the password `secret` of the role `meter` at a TCP port.
fn server_with_password() -> (TestEnvironment, u16) {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let port = free_port();
    let running = server(&mut environment);
    running.query("CREATE ROLE meter LOGIN PASSWORD 'secret'");
    running.configure(&format!("listen_addresses = '127.0.0.1'\nport = {port}\n"));
    running.authenticate("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n");
    running.restart();
    (environment, port)
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn a_connection_is_checked() {
    let (_environment, port) = server_with_password();
    let directory = tempfile::tempdir().unwrap();
    let check = |store: &str, variables: &[(&str, &str)]| {
        run_with(&[&["--store", store], &CHECK[..]].concat(), variables)
    };
    let store = format!("host=127.0.0.1 port={port} user=meter dbname=postgres");
    for (store, variables) in [
        (&*store, &[("PGPASSWORD", "secret")][..]),
        // The string precedes the environment.
        (&*format!("{store} password=secret"), &[("PGPASSWORD", "wrong")]),
    ] {
        let (status, messages) = check(store, variables);
        assert_eq!(status, Some(0), "{store}: {messages}");
        assert!(messages.contains("the store answers and can be used"), "{store}: {messages}");
        assert!(!messages.contains("secret"), "{store}: {messages}");
    }
    let nowhere = format!("host=127.0.0.1 port={} user=meter dbname=postgres", free_port());
    let no_directory = format!("sqlite:{}/missing/store.db", directory.path().display());
    for (store, variables, reason) in [
        (&*store, &[("PGPASSWORD", "wrong")][..], "password authentication failed"),
        (&*store, &[], "password"),
        ("service=meter", &[], "service files are not read"),
        (&*nowhere, &[("PGPASSWORD", "secret")], "Connection refused"),
        (&*no_directory, &[], "type: mkdir -p"),
    ] {
        let (status, messages) = check(store, variables);
        assert!(status == Some(2) && messages.contains(reason), "{store}: {status:?}: {messages}");
        assert!(!messages.contains("wrong") && !messages.contains("secret"), "{store}: {messages}");
    }
}

fn a_password_that_everybody_can_read_is_refused() {
    let (_environment, port) = server_with_password();
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("collector.toml");
    let text = format!("store = 'postgres://meter:secret@127.0.0.1:{port}/postgres'\n");
    let arguments = [&["--config", config.to_str().unwrap()], &CHECK[..]].concat();
    for (mode, expected) in [(0o600, Some(0)), (0o640, Some(0)), (0o644, Some(2)), (0o604, Some(2))] {
        write(&config, &text, mode);
        let (status, messages) = run(&arguments);
        assert_eq!(status, expected, "{mode:o}: {messages}");
        let is_refused = messages.contains("every user can read the password in `store`");
        assert_eq!(is_refused, expected != Some(0), "{mode:o}: {messages}");
        assert!(!messages.contains("secret"), "{messages}");
    }
    // Without a password everybody may read the file.
    write(&config, &text.replace(":secret", ""), 0o644);
    let (status, messages) = run_with(&arguments, &[("PGPASSWORD", "secret")]);
    assert_eq!(status, Some(0), "{messages}");
}

fn rollbacks(server: &Server) -> i64 {
    let select = "SELECT xact_rollback FROM pg_stat_database WHERE datname = 'postgres'";
    server.query(select).parse().unwrap()
}

fn a_read_only_server_is_reported_once() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let server = server(&mut environment);
    let collector = RunningCollector::start(&server.url(), &["--config", "/dev/null"]);
    let context = zmq::Context::new();
    let mut agent = Agent::new(&context, &collector.endpoint, "n1", 1);
    send_row(&mut agent, now_us(), 0);
    agent.wait_until_acknowledged();
    server.query("ALTER DATABASE postgres SET default_transaction_read_only = on");
    server.query(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'polymeter'",
    );
    let before = rollbacks(server);
    send_row(&mut agent, now_us(), 1);
    wait_until("the collector tried several times", || rollbacks(server) > before + 3);
    server.query("BEGIN READ WRITE; ALTER DATABASE postgres RESET default_transaction_read_only; COMMIT");
    agent.wait_until_acknowledged();
    let lines = collector.stop();
    let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    assert_eq!(count("cannot store samples: db error"), 1, "{lines:#?}");
    assert_eq!(count("the store is available again"), 1, "{lines:#?}");
    // A slow machine also records meanwhile that the collector runs.
    let refused: Vec<&String> =
        lines.iter().filter(|line| line.contains("in a read-only transaction")).collect();
    assert_eq!(refused.len(), refused.iter().collect::<BTreeSet<_>>().len(), "{lines:#?}");
}

fn a_server_that_is_away_is_reported_once() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let server = server(&mut environment);
    let collector = RunningCollector::start(&server.url(), &["--config", "/dev/null"]);
    let context = zmq::Context::new();
    let mut agent = Agent::new(&context, &collector.endpoint, "n1", 1);
    send_row(&mut agent, now_us(), 0);
    agent.wait_until_acknowledged();
    server.stop();
    send_row(&mut agent, now_us(), 1);
    // The thread of summaries has a connection, and a report, of its own.
    let line = std::iter::repeat_with(|| collector.next_line())
        .find(|line| !line.contains("cannot summarise jobs"))
        .unwrap();
    assert!(line.contains("retrying until it succeeds"), "{line}");
    server.resume();
    agent.wait_until_acknowledged();
    let lines = collector.stop();
    let restored = lines.iter().filter(|line| line.contains("the store is available again")).count();
    assert_eq!(restored, 1, "{lines:#?}");
}
