//! Tests of the view of the energy of jobs: its figures, the rights of users, and reads that are bounded by
//! the job's time. That they equal those of the report is tested in `energy.rs`.

use std::collections::BTreeSet;

use crate::postgres::server;
use crate::sql_roles::store_of_users;
use crate::sql_views::{parts, run_with_plans, scanned_days};
use crate::support::Kind;
use crate::support::server::Server;
use crate::support::sql::{assert_refused, assert_result};

polymeter_test_harness::tests![energy_in_sql_on_postgresql, energy_in_sql_on_timescaledb];

fn energy_in_sql_on_postgresql() {
    assert_energy(Kind::Postgres);
}

fn energy_in_sql_on_timescaledb() {
    assert_energy(Kind::Timescale);
}

/// Adds the power of node n1 around job 20 of n3 in two days of a job that is long, and two packages of 100 W
/// and four busy cores on node n2, of which job 41 uses one in its first hour, and job 42_7 three.
const ENERGY: &str = "
    INSERT INTO metric VALUES ('node.ipmi.power', 'watts', 'gauge'), ('node.energy.package', 'joules', 'counter'),
        ('node.energy.memory', 'joules', 'counter'), ('node.cpu.user', 'nanoseconds', 'counter'), ('gpu.energy', 'joules', 'counter');
    INSERT INTO job (job_id, owner, started, ended) SELECT 'long', 'alice', begin + interval '8 h', begin + interval '54 h'
    FROM (SELECT date_trunc('day', now(), 'UTC') - interval '10 days' AS begin) AS day;
    INSERT INTO job_node (job_key, node, started, ended) SELECT job_key, 'n3', started, ended FROM job WHERE job_id = 'long';
    INSERT INTO series (node, metric, job_key, job_id, labels)
    VALUES ('n1', 'node.ipmi.power', NULL, NULL, '{}'), ('n1', 'node.energy.package', NULL, NULL, '{}'),
        ('n3', 'node.ipmi.power', NULL, NULL, '{}'), ('n3', 'node.energy.package', NULL, NULL, '{}'),
        ('n2', 'node.energy.package', NULL, NULL, '{\"package\": \"0\"}'), ('n2', 'node.energy.package', NULL, NULL, '{\"package\": \"1\"}'),
        ('n2', 'node.energy.memory', NULL, NULL, '{}'), ('n2', 'node.cpu.user', NULL, NULL, '{}');
    INSERT INTO series (node, metric, job_key, job_id, labels)
    SELECT 'n2', 'gpu.energy', job_key, job_id, labels::jsonb FROM job, (VALUES ('{\"gpu\": \"0\"}'), ('{\"step\": \"0\"}')) AS label (labels)
    WHERE job_id = 'hidden';
    INSERT INTO samples (time, series_id, value)
    SELECT time, series_id, CASE metric WHEN 'node.ipmi.power' THEN 300 ELSE extract(epoch FROM time) END
    FROM job JOIN job_node USING (job_key) JOIN series USING (node),
        generate_series(job.started - interval '1 h', job.ended + interval '1 h', '1 min') AS time
    WHERE job.job_id IN ('20', 'long') AND series.metric IN ('node.ipmi.power', 'node.energy.package');
    INSERT INTO samples (time, series_id, value)
    SELECT begin + make_interval(secs => second), series_id, second * CASE WHEN metric LIKE '%.energy%' THEN 100 ELSE 4e9 END
    FROM (SELECT date_trunc('day', now(), 'UTC') - interval '1 day' AS begin) AS day, series, generate_series(0, 32400, 10) AS second
    WHERE node = 'n2' AND metric LIKE 'node.%' AND metric NOT IN ('node.load1', 'node.energy.memory')
        OR metric = 'gpu.energy' AND second >= 3600 AND second <= 7200;
    -- The memory was measured for less than four fifths of the last job's time.
    INSERT INTO samples (time, series_id, value)
    SELECT ended - make_interval(mins => minute), series_id, 60 * (60 - minute)
    FROM job, series, generate_series(0, 40) AS minute WHERE job.job_id = 'unowned' AND series.metric = 'node.energy.memory';
    UPDATE samples SET value = value * 6e11 * CASE job_id WHEN '41' THEN 1 ELSE 3 END
    FROM series WHERE series.series_id = samples.series_id AND job_id IN ('41', '42_7') AND samples.time >= now() - interval '3 days';
    ANALYZE;";

fn assert_energy(kind: Kind) {
    let mut environment = store_of_users(kind);
    let server = server(&mut environment);
    server.query(ENERGY);
    let is = |user: &str, condition: &str, expected: &str| {
        let rows = format!(
            "SELECT job_id, node, part, metric_id, method, round(joules) FROM energy_by_job WHERE {condition} ORDER BY 1, 3"
        );
        assert_result(server, user, &rows, expected);
    };
    let of_20 = "20|n1|node|node.ipmi.power|measured|540000";
    let of_long = "long|n3|node|node.ipmi.power|measured|49680000";
    let of_41 = "41|n2|processors|node.energy.package|estimated|180000";
    let of_42 = "42_7|n2|processors|node.energy.package|estimated|540000";
    let hidden =
        "hidden|n2|gpus|gpu.energy|measured|360000\nhidden|n2|processors|node.energy.package|measured|720000";
    for user in ["alice", "grafana", "postgres"] {
        is(user, "job_id = '20'", of_20);
        is(user, "job_id = 41", of_41);
        is(user, "job_id = '42_7'", of_42);
        is(user, "job_id IN ('long', 'none of them')", of_long);
    }
    // Nothing of others, whether the view is asked or its function.
    for (user, own) in [("bob", hidden), ("grafana", hidden), ("alice", ""), ("carol", "")] {
        is(user, "job_id = 'hidden'", own);
        let direct =
            "SELECT count(*) FROM generate_series(1, 60) AS key CROSS JOIN LATERAL polymeter_own_energy(key)";
        let count = match user {
            "bob" => "2",
            "alice" => "4",
            "carol" => "0",
            _ => "6",
        };
        assert_result(server, user, direct, count);
    }
    is("carol", "true", "");
    is("alice", "start_time >= now() - interval '3 days' AND job_id <> '40'", &format!("{of_41}\n{of_42}"));
    is("grafana", "job_id = 'unowned'", "");
    assert_refused(server, "stranger", "SELECT * FROM polymeter_own_energy(20)", "permission denied");
    assert_reads_are_bounded(server, kind);
}

fn days(server: &Server, job: &str) -> BTreeSet<String> {
    let days = server.query(&format!(
        "SELECT to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD')
         FROM job, generate_series(date_trunc('day', started, 'UTC'), ended, '1 day') AS day WHERE job_id = '{job}'"
    ));
    days.lines().map(str::to_owned).collect()
}

fn assert_reads_are_bounded(server: &Server, kind: Kind) {
    // Values of the long job are read from intervals of 10 s.
    let parts = parts(server, kind);
    for (job, relation) in [("20", "samples"), ("long", "samples_10s"), ("41", "samples")] {
        for user in ["postgres", "alice"] {
            let statement = format!("SELECT sum(joules) > 0 FROM energy_by_job WHERE job_id = '{job}'");
            let (found, plans) = run_with_plans(server, user, &statement);
            assert_eq!(found, "t", "{user}: {statement}");
            assert!(plans.contains(&format!("FROM {relation}")), "{relation}: {plans}");
            assert_eq!(scanned_days(&plans, &parts), days(server, job), "{user}: {statement}: {plans}");
        }
    }
}
