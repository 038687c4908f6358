//! Tests of the rollups that the collector computes itself, where there are no continuous aggregates.

use std::time::Duration;

use crate::rollups::{
    HOUR_US, agents, begin_us, difference, now_number, recent_numbers, restart, send, wait_until_computed,
};
use crate::support::{Kind, TestEnvironment, wait_until};

polymeter_test_harness::tests![
    an_interrupted_computation_on_sqlite,
    an_interrupted_computation_on_postgresql,
    samples_of_claimed_buckets_are_late,
    samples_before_the_first_bucket_are_late,
    summaries_of_a_job_on_sqlite,
];

fn an_interrupted_computation_on_sqlite() {
    // More samples than one transaction adds.
    interrupt(Kind::Sqlite, "WITH RECURSIVE copy (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy WHERE n < 4)
         INSERT INTO samples (time, series_id, value) SELECT time - n * 86400000000000, series_id, value FROM copy, samples ORDER BY n;
         DELETE FROM rollup_10s; DELETE FROM rollup_1min; DELETE FROM rollup_1h; UPDATE rollup SET samples_rowid = 0");
}

fn an_interrupted_computation_on_postgresql() {
    interrupt(
        Kind::Postgres,
        "TRUNCATE rollup_10s, rollup_1min, rollup_1h, rollup_late;
         UPDATE rollup SET claimed_before = '-infinity', computed_before = '-infinity'",
    );
}

/// Stops the collector at different moments of a computation that `reset` lets begin anew: the views are
/// right after each.
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
    for (node, agent) in (0..).zip(&mut agents(&environment, &collector, 3)) {
        send(agent, node, recent_numbers(begin_us), begin_us);
    }
    // They are in the views at once, and recorded.
    assert_eq!(difference(&environment), None);
    assert!(environment.number("SELECT count(*) FROM rollup_late") > 0);
    collector.stop().unwrap();
}

/// The computation has begun with the first samples, which are too new to be computed.
fn samples_before_the_first_bucket_are_late() {
    let environment = TestEnvironment::new(Kind::Postgres);
    let begin_us = begin_us();
    let collector = environment.collector();
    for (node, agent) in (0..).zip(&mut agents(&environment, &collector, 1)) {
        send(agent, node, 0..30, begin_us + 6 * HOUR_US);
    }
    let collector = restart(&environment, collector);
    let has_begun = "SELECT count(*) FROM rollup WHERE isfinite(computed_before)";
    wait_until("the computation has begun", || environment.number(has_begun) == 3);
    for (node, agent) in (0..).zip(&mut agents(&environment, &collector, 3)) {
        send(agent, node, 0..60, begin_us);
    }
    let collector = restart(&environment, collector);
    wait_until("the older samples are added", || difference(&environment).is_none());
    collector.stop().unwrap();
}

/// However many samples are in the tables, the view has the summaries of all samples, and reads no others
/// than the job's.
fn summaries_of_a_job_on_sqlite() {
    let mut environment = TestEnvironment::new(Kind::Sqlite);
    environment.collector().stop().unwrap();
    environment.accept_inserts();
    // A job of an hour; two series with a sample every 7 s, in another order than that of their times.
    environment.execute(
        "INSERT INTO metric VALUES ('cpu.usage', 'nanoseconds', 'counter'), ('node.load1', 'count', 'gauge');
         INSERT INTO job (job_key, job_id, started, ended) VALUES (1, '20', 3600000000000, 7200000000000);
         INSERT INTO job_node (job_key, node, started, ended) VALUES (1, 'n1', 3600000000000, 7200000000000);
         INSERT INTO series (series_id, node, metric, job_key, job_id, labels) VALUES (1, 'n1', 'cpu.usage', 1, '20', '{}'),
             (2, 'n1', 'node.load1', NULL, NULL, '{}');
         INSERT INTO samples (time, series_id, value) SELECT value * 787 % 2003 * 7000000000, series_id, value * 787 % 2003 * 11 % 501 FROM
             (WITH RECURSIVE number (value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM number WHERE value < 2002) SELECT value FROM number),
             series ORDER BY value",
    );
    const VIEW: &str = "SELECT metric_id, timestamp, value FROM metrics_by_job_summary WHERE job_id = '20'";
    // An hour more of the job's own series, and the minutes of the node's in which it ran.
    const EXPECTED: &str = "SELECT metric, ten / 60000000000 * 60000000000 AS minute,
             CASE metric WHEN 'cpu.usage' THEN max(max) ELSE avg(mean) END
         FROM (SELECT series_id, time / 10000000000 * 10000000000 AS ten, max(value) AS max, avg(value) AS mean
               FROM samples GROUP BY series_id, ten) JOIN series USING (series_id) GROUP BY series_id, minute
         HAVING metric = 'cpu.usage' AND minute <= 10800000000000
             OR metric = 'node.load1' AND minute BETWEEN 3600000000000 AND 7140000000000";
    assert_eq!(environment.number(&format!("SELECT count(*) FROM ({EXPECTED})")), 181 + 60);
    for computed in [0, 1, 900, 2500, 4006] {
        environment.execute(&format!(
            "DELETE FROM rollup_10s; DELETE FROM rollup_1min; UPDATE rollup SET samples_rowid = {computed};
             INSERT INTO rollup_10s SELECT series_id, time / 10000000000 * 10000000000 AS ten, count(*), min(value), max(value), sum(value),
                 min(time), 0, max(time), 0, NULL, NULL
             FROM samples WHERE rowid <= {computed} GROUP BY series_id, ten;
             INSERT INTO rollup_1min SELECT series_id, time / 60000000000 * 60000000000 AS minute, sum(count), min(min), max(max),
                 sum(sum / count), count(*), min(first_time), 0, max(last_time), 0, NULL, NULL
             FROM rollup_10s GROUP BY series_id, minute"
        ));
        assert_eq!(environment.number(&format!("SELECT count(*) FROM ({VIEW})")), 181 + 60, "{computed}");
        for (all, others) in [(VIEW, EXPECTED), (EXPECTED, VIEW)] {
            let surplus = format!("SELECT count(*) FROM ({all} EXCEPT {others})");
            assert_eq!(environment.number(&surplus), 0, "{computed}: {surplus}");
        }
    }
    let plan = environment.query_plan(VIEW);
    assert!(plan.iter().any(|line| line.starts_with("SEARCH bucket")), "{plan:#?}");
    assert_eq!(
        plan.iter().find(|line| {
            line.starts_with("SCAN bucket") || line.starts_with("SCAN part") || line.contains("MATERIALIZE")
        }),
        None,
        "{plan:#?}"
    );
}
