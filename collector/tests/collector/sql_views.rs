//! Tests of the views and functions for users: names, columns and results as in Kwollect, and reads that are
//! bounded by the job's time.

use std::collections::BTreeSet;

use crate::postgres::server;
use crate::support::server::Server;
use crate::support::sql::{assert_refused, assert_result};
use crate::support::{Kind, TestEnvironment, wait_until};

polymeter_test_harness::tests![
    reads_are_bounded_by_the_job_on_postgresql,
    reads_are_bounded_by_the_job_on_timescaledb,
    functions_return_what_kwollect_returns_on_postgresql,
    functions_return_what_kwollect_returns_on_timescaledb,
    sqlite_has_the_same_views
];

/// Creates forty jobs, one each day on node n1 at 06:00 for half an hour, with a sample each minute; every
/// second is alice's, the others are bob's. The nodes n1 and n2 have a sample every ten minutes.
pub(crate) const JOBS: &str = "
    CREATE TEMP TABLE day AS SELECT number, date_trunc('day', now(), 'UTC') - make_interval(days => 41 - number) AS begin
    FROM generate_series(1, 40) AS number;
    INSERT INTO metric VALUES ('cpu.usage', 'nanoseconds', 'counter'), ('memory.current', 'bytes', 'gauge'), ('node.load1', 'count', 'gauge');
    INSERT INTO node VALUES ('n1', now()), ('n2', now());
    INSERT INTO job (job_id, owner, started, ended)
    SELECT number, CASE number % 2 WHEN 0 THEN 'alice' ELSE 'bob' END, begin + interval '6 h', begin + interval '6 h 30 min'
    FROM day ORDER BY number;
    INSERT INTO job_node (job_key, node, started, ended) SELECT job_key, 'n1', started, ended FROM job;
    INSERT INTO series (node, metric, job_key, job_id, labels)
    SELECT 'n1', metric, job_key, job_id, '{\"step\": \"batch\"}' FROM job, (VALUES ('cpu.usage'), ('memory.current')) AS names (metric);
    INSERT INTO series (node, metric, labels) SELECT node, 'node.load1', '{}' FROM node;
    INSERT INTO samples (time, series_id, value)
    SELECT started + make_interval(mins => minute), series_id, minute * 60 * job_key
    FROM job JOIN series USING (job_key) CROSS JOIN generate_series(0, 30) AS minute;
    INSERT INTO samples (time, series_id, value)
    SELECT begin + make_interval(mins => 10 * number_of_value), series_id, number_of_value
    FROM day, series, generate_series(0, 143) AS number_of_value WHERE job_key IS NULL;
    ANALYZE;";

/// Store with [`JOBS`], in the form in which it is after some days.
pub(crate) fn store_of_jobs(kind: Kind) -> TestEnvironment {
    let mut environment = TestEnvironment::new(kind);
    environment.collector().stop().unwrap();
    environment.accept_inserts();
    let server = server(&mut environment);
    if matches!(kind, Kind::Postgres | Kind::Citus) {
        server.query(
            "SELECT polymeter_create_partition(now()::date - day) FROM generate_series(-1, 42) AS day",
        );
    }
    server.query(JOBS);
    if kind == Kind::Timescale {
        let compress = "SELECT compress_chunk(chunk, if_not_compressed => true) FROM show_chunks('samples', older_than => interval '5 days') AS chunk";
        // TimescaleDB's own job may compress the same chunk at this moment, which is an error.
        wait_until("the old chunks are compressed", || {
            server.run_as("postgres", "postgres", compress).status.success()
        });
    } else {
        let partitions = server.query("SELECT partition FROM polymeter_partition_to_close");
        assert!(partitions.lines().count() > 30, "{partitions}");
        for partition in partitions.lines() {
            server.query(&format!("CREATE INDEX {partition}_by_series ON {partition} (series_id, time)"));
        }
    }
    environment
}

/// Chunks or partitions of samples, each with the day of its samples.
pub(crate) fn parts(server: &Server, kind: Kind) -> Vec<(String, String)> {
    let select = match kind {
        Kind::Timescale => {
            "SELECT chunk_name, to_char(range_start AT TIME ZONE 'UTC', 'YYYYMMDD') FROM timescaledb_information.chunks
             WHERE hypertable_name = 'samples'"
        }
        Kind::Postgres | Kind::Citus | Kind::Sqlite => {
            "SELECT inhrelid::regclass, right(inhrelid::regclass::text, 8) FROM pg_inherits WHERE inhparent = 'samples'::regclass"
        }
    };
    let rows = server.query(select);
    rows.lines()
        .map(|row| row.split_once('|').unwrap())
        .map(|(name, day)| (name.to_owned(), day.to_owned()))
        .collect()
}

/// Runs a statement as a user, and returns its output with the plans of all its statements, those of
/// functions included.
pub(crate) fn run_with_plans(server: &Server, user: &str, statement: &str) -> (String, String) {
    let output = server.run_as(
        "postgres",
        "postgres",
        &format!(
            "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on;
             SET auto_explain.log_timing = off; SET auto_explain.log_nested_statements = on;
             SET auto_explain.log_level = notice; SET SESSION AUTHORIZATION {user}; {statement}"
        ),
    );
    let plans = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{statement}: {plans}");
    (String::from_utf8(output.stdout).unwrap().trim().to_owned(), plans)
}

pub(crate) fn scanned_days(plans: &str, parts: &[(String, String)]) -> BTreeSet<String> {
    let scans = plans.lines().filter(|line| line.contains("Scan") && line.contains("(actual"));
    let relations =
        scans.filter_map(|line| line.split_once(" on ")).flat_map(|(_, rest)| rest.split([' ', '.']));
    let relations: BTreeSet<&str> = relations.collect();
    parts.iter().filter(|(name, _)| relations.contains(name.as_str())).map(|(_, day)| day.clone()).collect()
}

fn reads_are_bounded_by_the_job_on_postgresql() {
    assert_reads_are_bounded(Kind::Postgres);
}

fn reads_are_bounded_by_the_job_on_timescaledb() {
    assert_reads_are_bounded(Kind::Timescale);
}

fn assert_reads_are_bounded(kind: Kind) {
    let mut environment = store_of_jobs(kind);
    let server = server(&mut environment);
    server.query("CREATE ROLE alice LOGIN IN ROLE polymeter_user");
    let parts = parts(server, kind);
    let (count, plans) = run_with_plans(server, "postgres", "SELECT count(*) FROM samples");
    assert_eq!(count, "14000");
    assert!(scanned_days(&plans, &parts).len() >= 40, "the plan of all samples has all days: {plans}");
    let day =
        server.query("SELECT to_char(started AT TIME ZONE 'UTC', 'YYYYMMDD') FROM job WHERE job_id = '20'");
    let cases = [
        // The job's own two series, and four samples of its node.
        ("metrics_by_job WHERE job_id = '20'", "66"),
        ("metrics_by_job WHERE job_id = 20", "66"),
        ("metrics_by_job WHERE job_id = '20' AND metric_id = 'cpu.usage'", "31"),
        ("metrics_by_job WHERE job_id = '20' AND device_id = 'n1' AND metric_id LIKE 'node.%'", "4"),
        ("metrics_by_job WHERE job_id = '20' AND labels ->> 'step' = 'batch'", "62"),
        ("metrics_by_job WHERE job_id = '20' AND timestamp < start_time + interval '10 min'", "21"),
        ("get_metrics(20)", "66"),
        ("get_metrics(job => '20', metrics => 'cpu.usage,node.load1', as_rate => true)", "35"),
        ("get_metrics(job_id => 20, nodes => 'n1.example.org', start_time => '2020-01-01')", "66"),
        ("available_metrics(params => '{\"job_id\": 20}')", "3"),
    ];
    // The samples that the rollups lack are bounded by the job, too: on a server without continuous
    // aggregates.
    let summaries =
        [("metrics_by_job_summary WHERE job_id = '20'", "65"), ("get_metrics(20, summary => true)", "65")];
    let summaries = if kind == Kind::Postgres { summaries.as_slice() } else { &[] };
    for (source, expected) in cases.iter().chain(summaries) {
        for user in ["postgres", "alice"] {
            let (count, plans) = run_with_plans(server, user, &format!("SELECT count(*) FROM {source}"));
            assert_eq!(count, *expected, "{user}: {source}");
            assert_eq!(
                scanned_days(&plans, &parts),
                BTreeSet::from([day.clone()]),
                "{user}: {source}: {plans}"
            );
        }
    }
    // Without a job the time is the user's.
    let begin = server.query("SELECT date_trunc('day', started, 'UTC') FROM job WHERE job_id = '20'");
    let of_day = format!("timestamp >= '{begin}' AND timestamp < timestamptz '{begin}' + interval '1 day'");
    for source in ["metrics", "metrics_by_device"] {
        for (user, expected) in [("postgres", "206"), ("alice", "66")] {
            let statement = format!("SELECT count(*) FROM {source} WHERE device_id = 'n1' AND {of_day}");
            let (count, plans) = run_with_plans(server, user, &statement);
            assert_eq!(count, expected, "{user}: {statement}");
            assert_eq!(
                scanned_days(&plans, &parts),
                BTreeSet::from([day.clone()]),
                "{user}: {statement}: {plans}"
            );
        }
    }
}

fn functions_return_what_kwollect_returns_on_postgresql() {
    assert_functions(Kind::Postgres);
}

fn functions_return_what_kwollect_returns_on_timescaledb() {
    assert_functions(Kind::Timescale);
}

fn assert_functions(kind: Kind) {
    let mut environment = store_of_jobs(kind);
    let server = server(&mut environment);
    let is = |statement: &str, expected: &str| assert_result(server, "postgres", statement, expected);
    assert_columns(server);
    is(
        "SELECT bool_and(timestamp >= earlier) FROM (SELECT timestamp, lag(timestamp, 1, '-infinity') OVER () AS earlier FROM api.get_metrics(20)) AS rows",
        "t",
    );
    is(
        "SELECT min(start_time) = max(start_time), max(stop_time) - min(start_time) FROM metrics_by_job WHERE job_id = 20",
        "t|00:30:00",
    );
    is("SELECT node, stop_time - start_time FROM nodetime_by_job WHERE job_id = 20", "n1|00:30:00");
    is("SELECT count(*) FROM metrics_by_job WHERE job_id IN (20, 22)", "132");
    is("SELECT count(*) FROM jobs WHERE 20 = job_id", "1");
    // The value of job 20 grows by 60 x 20 each minute; the first sample has no predecessor.
    is(
        "SELECT count(value), min(value), max(value) FROM get_metrics(20, metrics => 'cpu.usage', as_rate => true)",
        "30|20|20",
    );
    // A minute has one sample here; of the node's, the last begins a minute that the job does not fill.
    is(
        "SELECT count(*), max(value) FROM get_metrics(20, metrics => 'cpu.usage', summary => true)",
        "31|36000",
    );
    is("SELECT count(*) FROM get_metrics(20, summary => true)", "65");
    is("SELECT count(*) FROM metrics_by_job_summary WHERE job_id = 20", "65");
    // A counter that became smaller began again at 0, a gauge became smaller.
    server.query(
        "UPDATE samples SET value = 60 WHERE series_id IN (SELECT series_id FROM series WHERE job_id = '40') AND time = (SELECT ended FROM job WHERE job_id = '40')",
    );
    is("SELECT min(value), max(value) FROM get_metrics(40, metrics => 'cpu.usage', as_rate => true)", "1|40");
    is(
        "SELECT min(value), max(value) FROM get_metrics(40, metrics => 'memory.current', as_rate => true)",
        "-1159|40",
    );
    // Devices without a job: the times are the user's, five minutes without any.
    let epoch = server.query("SELECT extract(epoch FROM started)::int8 FROM job WHERE job_id = '20'");
    is(&format!("SELECT count(*) FROM get_metrics(nodes => 'n2', start_time => '{epoch}')"), "1");
    is(
        &format!(
            "SELECT count(*) FROM get_metrics(devices => 'n1,n2', start_time => '{epoch}.0', end_time => to_timestamp({epoch} + 3600)::text)"
        ),
        "76",
    );
    is("SELECT count(*) FROM get_metrics(devices => 'n1')", "0");
    is("SELECT count(*) FROM get_metrics(4711)", "0");
    is("SELECT count(*) FROM get_metrics(job => 'none of them')", "0");
    // As in Kwollect, an empty argument is none.
    is(
        "SELECT count(*) FROM get_metrics(20, nodes => '', metrics => '', start_time => '', end_time => '')",
        "66",
    );
    let missing = "Missing 'devices', 'nodes' or 'job_id' argument";
    assert_refused(server, "postgres", "SELECT * FROM api.get_metrics()", missing);
    assert_refused(server, "postgres", "SELECT * FROM api.get_metrics(nodes => '')", missing);
    is(
        "SELECT device_id, metric_id FROM api.available_metrics(params => '{\"job_id\": \"20\"}')",
        "n1|cpu.usage\nn1|memory.current\nn1|node.load1",
    );
    is(
        &format!(
            "SELECT device_id, metric_id FROM available_metrics(to_timestamp({epoch} + 7200), '{{\"devices\": [\"n2\"]}}')"
        ),
        "n2|node.load1",
    );
    assert_promoted_metrics(server);
    // Sessions that begin now do not compile.
    is("SHOW jit", "off");
}

/// Columns and arguments have Kwollect's names and types.
fn assert_columns(server: &Server) {
    let of_metrics = "device_id text, labels jsonb, metric_id text, timestamp timestamp with time zone, value double precision";
    for (relation, expected) in [
        ("metrics", of_metrics),
        ("metrics_by_device", of_metrics),
        (
            "metrics_by_job",
            "device_id text, job_id text, labels jsonb, metric_id text, start_time timestamp with time zone, \
             stop_time timestamp with time zone, timestamp timestamp with time zone, value double precision",
        ),
        (
            "nodetime_by_job",
            "job_id text, node text, start_time timestamp with time zone, stop_time timestamp with time zone",
        ),
        ("promoted_metrics", "device_id text, metric_id text"),
    ] {
        let select = format!(
            "SELECT string_agg(attname || ' ' || format_type(atttypid, NULL), ', ' ORDER BY attname) FROM pg_attribute
             WHERE attrelid = '{relation}'::regclass AND attnum > 0"
        );
        assert_eq!(server.query(&select), expected, "{relation}");
    }
    assert_result(
        server,
        "postgres",
        "SELECT pg_get_function_arguments('api.get_metrics(int4, text, text, text, text, text, bool, bool)'::regprocedure)",
        "job_id integer DEFAULT NULL::integer, nodes text DEFAULT NULL::text, devices text DEFAULT NULL::text, \
         metrics text DEFAULT NULL::text, start_time text DEFAULT NULL::text, end_time text DEFAULT NULL::text, \
         summary boolean DEFAULT false, as_rate boolean DEFAULT false",
    );
}

/// A lease of a job that runs is what Kwollect calls promoted.
fn assert_promoted_metrics(server: &Server) {
    let is = |statement: &str, expected: &str| assert_result(server, "postgres", statement, expected);
    server.query(
        "INSERT INTO job (job_id, owner, started) VALUES ('running', 'alice', now() - interval '1 min');
         INSERT INTO job_node (job_key, node, started) SELECT job_key, 'n2', started FROM job WHERE job_id = 'running';
         INSERT INTO plan_change (time, node, job_key, metric, new_period_us, cause, until, level)
         SELECT now() - make_interval(secs => age), 'n2', job_key, metric, period, cause, now() + until, level
         FROM job, (VALUES (50, 'cpu.usage', 1000000, 'baseline', NULL, NULL), (9, 'cpu.usage', 1000, 'lease', interval '1 h', NULL),
                           (50, 'memory.current', 1000000, 'baseline', NULL, NULL),
                           (9, 'node.load1', 1000, 'lease', interval '1 h', NULL),
                           (8, 'node.load1', 1000000, 'lease_end', NULL, NULL),
                           (9, 'io.bytes', 1000, 'lease', interval '-1 s', NULL),
                           (7, 'cpu.usage', 1000000, 'lease_end', NULL, 'step'), (7, 'cpu.usage', 1000, 'lease', interval '1 h', 'task'),
                           (6, 'memory.anon', 1000, 'lease', interval '1 h', 'step'))
             AS change (age, metric, period, cause, until, level) WHERE job_id = 'running'",
    );
    is("SELECT * FROM promoted_metrics ORDER BY metric_id", "n2|cpu.usage\nn2|memory.anon");
    is("SELECT count(*) FROM api.update_promoted_metrics()", "2");
    is(
        "SELECT job_id, node, metric_id FROM promoted_metrics_job ORDER BY metric_id",
        "running|n2|cpu.usage\nrunning|n2|memory.anon",
    );
}

fn sqlite_has_the_same_views() {
    let mut environment = TestEnvironment::new(Kind::Sqlite);
    environment.collector().stop().unwrap();
    environment.accept_inserts();
    let second = 1_000_000_000_i64;
    environment.execute(&format!(
        "INSERT INTO metric VALUES ('cpu.usage', 'nanoseconds', 'counter'), ('node.load1', 'count', 'gauge');
         INSERT INTO job (job_key, job_id, owner, started, ended) VALUES (1, '20', 'alice', 3600 * {second}, 7200 * {second});
         INSERT INTO job_node (job_key, node, started, ended) VALUES (1, 'n1', 3600 * {second}, 7200 * {second});
         INSERT INTO series (series_id, node, metric, job_key, job_id, labels) VALUES (1, 'n1', 'cpu.usage', 1, '20', '{{}}'),
             (2, 'n1', 'node.load1', NULL, NULL, '{{}}'), (3, 'n2', 'node.load1', NULL, NULL, '{{}}');
         INSERT INTO samples (time, series_id, value) SELECT value * 600 * {second}, series_id, value FROM series,
             (WITH RECURSIVE number (value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM number WHERE value < 100) SELECT value FROM number)"
    ));
    let is = |select: &str, expected: i64| assert_eq!(environment.number(select), expected, "{select}");
    // An hour more of the job's own series, and the node's while it ran.
    is("SELECT count(*) FROM metrics_by_job WHERE job_id = 20", 19 + 7);
    is("SELECT count(*) FROM metrics_by_job WHERE job_id = '20' AND metric_id = 'node.load1'", 7);
    is("SELECT max(stop_time - start_time) FROM metrics_by_job", 3600 * second);
    is(
        "SELECT count(*) FROM nodetime_by_job WHERE job_id = 20 AND node = 'n1' AND stop_time - start_time = 3600000000000",
        1,
    );
    is("SELECT count(*) FROM metrics_by_device WHERE device_id = 'n2'", 101);
    is("SELECT count(*) FROM metrics_by_job_summary WHERE job_id = 20", 19 + 6);
    is("SELECT count(*) FROM metrics_by_device_summary", 303);
    is("SELECT count(*) FROM metric_units WHERE kind = 'counter'", 1);
    is("SELECT count(*) FROM jobs WHERE owner = 'alice'", 1);
    is("SELECT count(*) FROM promoted_metrics", 0);
    environment.execute(&format!(
        "UPDATE job_node SET ended = NULL;
         INSERT INTO plan_change (time, node, job_key, metric, new_period_us, cause, until, level)
         VALUES (3600 * {second}, 'n1', 1, 'cpu.usage', 1000, 'lease', 9000000000 * {second}, NULL),
             (3600 * {second}, 'n1', 1, 'a', 1000, 'lease', 9 * {second}, NULL),
             (3601 * {second}, 'n1', 1, 'cpu.usage', 1000000, 'lease_end', NULL, 'step'),
             (3601 * {second}, 'n1', 1, 'cpu.usage', 1000, 'lease', 9000000000 * {second}, 'task')"
    ));
    assert_eq!(
        environment.number(
            "SELECT count(*) FROM promoted_metrics WHERE device_id = 'n1' AND metric_id = 'cpu.usage'"
        ),
        1
    );
    assert_eq!(environment.number("SELECT count(*) FROM promoted_metrics"), 1);
}
