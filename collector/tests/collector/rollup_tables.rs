//! Tests of the rollups that the collector computes itself, where there are no continuous aggregates.

use std::time::Duration;

use crate::rollups::{HOUR_US, agents, begin_us, difference, now_number, restart, send, wait_until_computed};
use crate::support::{Kind, TestEnvironment, wait_until};

polymeter_test_harness::tests![
    an_interrupted_computation_on_sqlite,
    an_interrupted_computation_on_postgresql,
    samples_of_claimed_buckets_are_late
];

fn an_interrupted_computation_on_sqlite() {
    // More samples than one transaction adds.
    interrupt(Kind::Sqlite, "WITH RECURSIVE copy (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy WHERE n < 8)
         INSERT INTO samples SELECT time - n * 86400000000000, series_id, value FROM copy, samples ORDER BY n;
         DELETE FROM rollup_10s; DELETE FROM rollup_1min; DELETE FROM rollup_1h; UPDATE rollup SET samples_rowid = 0");
}

fn an_interrupted_computation_on_postgresql() {
    interrupt(
        Kind::Postgres,
        "TRUNCATE rollup_10s, rollup_1min, rollup_1h, rollup_late;
         UPDATE rollup SET claimed_before = '-infinity', computed_before = '-infinity'",
    );
}

/// Stops the collector at different moments of a computation that `reset` lets begin anew: the views are right after each.
fn interrupt(kind: Kind, reset: &str) {
    let mut environment = TestEnvironment::new(kind);
    let begin_us = begin_us();
    let collector = environment.collector();
    for (node, agent) in (0..).zip(&mut agents(&environment, &collector, 1)) {
        send(agent, node, 0..now_number(begin_us) - 60, begin_us);
    }
    collector.stop().unwrap();
    environment.execute(reset);
    assert_eq!(difference(&environment), None);
    for round in 0..8 {
        let collector = environment.collector();
        std::thread::park_timeout(Duration::from_millis(8 << round));
        collector.stop().unwrap();
        assert_eq!(difference(&environment), None, "round {round}");
    }
    let collector = environment.collector();
    wait_until_computed(&environment, begin_us + 2 * HOUR_US);
    assert_eq!(difference(&environment), None);
    collector.stop().unwrap();
}

fn samples_of_claimed_buckets_are_late() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let begin_us = begin_us();
    let collector = environment.collector();
    for (node, agent) in (0..).zip(&mut agents(&environment, &collector, 1)) {
        send(agent, node, 0..600, begin_us);
    }
    let collector = restart(&environment, collector);
    wait_until("the rollups are right", || difference(&environment).is_none());
    // A collector is killed after it claimed buckets, and before it computed them.
    environment
        .execute("UPDATE rollup SET claimed_before = now() + interval '1 h' WHERE relation = 'samples_10s'");
    let now = now_number(begin_us);
    for (node, agent) in (0..).zip(&mut agents(&environment, &collector, 3)) {
        send(agent, node, now - 20..now, begin_us);
    }
    // They are in the views at once, and recorded.
    assert_eq!(difference(&environment), None);
    assert!(environment.number("SELECT count(*) FROM rollup_late") > 0);
    collector.stop().unwrap();
}
