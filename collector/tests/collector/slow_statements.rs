//! Statements that wait for a lock of another connection: the log says so.

use crate::support::agent::{Agent, shape, values};
use crate::support::program::RunningCollector;
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

polymeter_test_harness::tests![a_lock_on_a_table_is_logged_with_its_holder];

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
