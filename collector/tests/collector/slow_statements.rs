//! Statements that wait for a lock of another connection: the log says so, and a collector that is frozen in
//! a COPY loses its connection.

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::agent::{Agent, shape, values};
use crate::support::program::RunningCollector;
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

polymeter_test_harness::tests![
    a_lock_on_a_table_is_logged_with_its_holder,
    a_collector_that_is_frozen_in_a_copy_loses_its_connection,
    a_copy_that_goes_on_is_waited_for,
];

fn a_lock_on_a_table_is_logged_with_its_holder() {
    let environment = TestEnvironment::new(Kind::Postgres);
    let server = environment.server.as_ref().unwrap();
    let collector = RunningCollector::start(&server.url(), &[]);
    let context = zmq::Context::new();
    let mut agent = Agent::new(&context, &collector.endpoint, "n1", 1);
    agent.frame(&[(&shape(1, None), now_us(), &values(1).0)], &[], &[]);
    agent.send(1);
    agent.wait_until_acknowledged();
    let mut holder =
        server.start_query("BEGIN; LOCK TABLE session IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(600)");
    let locks =
        "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND relation = 'session'::regclass";
    wait_until("the table is locked", || environment.number(locks) == 1);
    let sequence = agent.frame(&[(&shape(1, None), now_us(), &values(2).0)], &[], &[]);
    agent.send(sequence);
    let line = loop {
        let line = collector.next_line();
        if line.contains("a statement has waited for") {
            break line;
        }
    };
    let pid =
        "SELECT pid FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' AND pid <> pg_backend_pid()";
    assert!(line.contains(&format!("process {} of user", environment.number(pid))), "{line}");
    assert!(line.contains("Lock: relation") && line.contains("session"), "{line}");
    holder.kill().unwrap();
    holder.wait().unwrap();
    environment.number(&format!("SELECT count(pg_terminate_backend(pid)) FROM ({pid}) AS held"));
    agent.wait_until_acknowledged();
    let lines = collector.stop();
    assert!(lines.iter().any(|line| line.contains("the database has answered after")), "{lines:?}");
}

fn a_collector_that_is_frozen_in_a_copy_loses_its_connection() {
    let environment = TestEnvironment::new(Kind::Postgres);
    let server = environment.server.as_ref().unwrap();
    let [frozen, other] = [(), ()].map(|()| RunningCollector::start(&server.url(), &[]));
    let context = zmq::Context::new();
    let mut agent = Agent::new(&context, &frozen.endpoint, "n1", 1);
    agent.frame(&[(&shape(1, None), now_us(), &values(1).0)], &[], &[]);
    agent.send(1);
    agent.wait_until_acknowledged();
    // The collector is frozen while the server lets its COPY wait, and takes no part in it later.
    let mut holder = server.start_query("BEGIN; LOCK TABLE samples IN SHARE MODE; SELECT pg_sleep(600)");
    let holding = "SELECT count(*) FROM pg_locks WHERE mode = 'ShareLock' AND relation = 'samples'::regclass";
    wait_until("the table is locked", || environment.number(holding) == 1);
    let sequence = agent.frame(&[(&shape(1, None), now_us(), &values(2).0)], &[], &[]);
    agent.send(sequence);
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY samples%' AND wait_event_type = 'Lock'";
    wait_until("the COPY waits", || environment.number(waiting) == 1);
    frozen.signal(Signal::STOP);
    environment.number(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE query LIKE '%pg_sleep(600)' AND pid <> pg_backend_pid()",
    );
    holder.wait().unwrap();
    let begun = "SELECT count(*) FROM pg_stat_progress_copy JOIN pg_stat_activity USING (pid)
         WHERE wait_event = 'ClientRead'";
    wait_until("the COPY has begun", || environment.number(begun) == 1);
    agent.move_to(&context, &other.endpoint);
    agent.wait_until_acknowledged();
    assert_eq!(environment.number(begun), 0);
    frozen.signal(Signal::CONT);
    agent.move_to(&context, &frozen.endpoint);
    let sequence = agent.frame(&[(&shape(1, None), now_us(), &values(3).0)], &[], &[]);
    agent.send(sequence);
    agent.wait_until_acknowledged();
    let samples =
        environment.lines("SELECT count(*) || ' of ' || count(DISTINCT (series_id, value)) FROM samples");
    assert_eq!(samples, ["9 of 9"]);
    let lines = other.stop();
    let ended: Vec<_> = lines.iter().filter(|line| line.contains("ended its connection")).collect();
    assert!(
        matches!(ended[..], [line] if line.contains("stop that collector") && line.contains(" 0 bytes")),
        "{lines:?}"
    );
    frozen.stop();
}

/// A client that sends rows, however slowly, is not frozen.
fn a_copy_that_goes_on_is_waited_for() {
    let environment = TestEnvironment::new(Kind::Postgres);
    let server = environment.server.as_ref().unwrap();
    let collector = RunningCollector::start(&server.url(), &[]);
    let context = zmq::Context::new();
    let mut agent = Agent::new(&context, &collector.endpoint, "n1", 1);
    agent.frame(&[(&shape(1, None), now_us(), &values(1).0)], &[], &[]);
    agent.send(1);
    agent.wait_until_acknowledged();
    let mut psql = server.client("psql");
    psql.args(["-XqAt", "-U", "postgres", "-c", "BEGIN", "-c", "SELECT FROM session FOR UPDATE"]);
    psql.args(["-c", "COPY samples (time, series_id, value) FROM STDIN", "-c", "ROLLBACK", "postgres"]);
    let mut copying = psql.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut rows = copying.stdin.take().unwrap();
    let begun = "SELECT count(*) FROM pg_stat_progress_copy";
    wait_until("the COPY has begun", || environment.number(begun) == 1);
    let sequence = agent.frame(&[(&shape(1, None), now_us(), &values(2).0)], &[], &[]);
    agent.send(sequence);
    let is_over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&is_over);
    let writer = std::thread::spawn(move || {
        while !until.load(Relaxed) {
            // More than psql keeps back.
            (0..1000).for_each(|_| writeln!(rows, "now\t1\t1").unwrap());
            std::thread::park_timeout(Duration::from_millis(50));
        }
    });
    for _ in 0..2 {
        while !collector.next_line().contains("a statement has waited for") {}
    }
    is_over.store(true, Relaxed);
    writer.join().unwrap();
    assert!(copying.wait().unwrap().success());
    agent.wait_until_acknowledged();
    let lines = collector.stop();
    assert!(!lines.iter().any(|line| line.contains("ended its connection")), "{lines:?}");
}
