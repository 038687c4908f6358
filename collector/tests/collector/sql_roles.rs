//! Tests of the database's roles: users see their own jobs only, readers everything.

use crate::postgres::server;
use crate::sql_views::store_of_jobs;
use crate::support::server::Server;
use crate::support::sql::{assert_refused, assert_result, query_as};
use crate::support::{Kind, TestEnvironment};

polymeter_test_harness::tests![
    users_see_their_own_jobs_on_postgresql,
    users_see_their_own_jobs_on_timescaledb,
    users_see_their_own_jobs_on_citus,
    managers_see_the_jobs_of_their_accounts,
    the_role_in_force_decides,
    statements_of_users_are_limited
];

pub(crate) const VIEWS: [&str; 15] = [
    "jobs",
    "nodetime_by_job",
    "metrics",
    "metrics_by_job",
    "metrics_by_device",
    "metrics_summary",
    "metrics_by_job_summary",
    "metrics_by_device_summary",
    "metric_units",
    "promoted_metrics",
    "promoted_metrics_job",
    "usage_by_job",
    "energy_by_job",
    "stacks",
    "histograms_by_job",
];

/// Adds to the jobs of the store one of bob with names that only he and a manager may see, two of alice that
/// overlap on a node, and one without an owner.
const MORE_JOBS: &str = "
    INSERT INTO metric VALUES ('user.hidden', 'bytes', 'gauge');
    INSERT INTO job (job_id, owner, account, started, ended)
    SELECT job_id, owner, 'account of ' || job_id, begin + first, begin + last
    FROM (SELECT date_trunc('day', now(), 'UTC') - interval '1 day' AS begin) AS day,
        (VALUES ('hidden', 'bob', interval '1 h', interval '2 h'), ('41', 'alice', '3 h', '5 h'), ('42_7', 'alice', '4 h', '6 h'),
                ('unowned', NULL, '7 h', '8 h')) AS run (job_id, owner, first, last);
    INSERT INTO job_node (job_key, node, started, ended) SELECT job_key, 'n2', started, ended FROM job WHERE job_key > 40;
    INSERT INTO series (node, metric, job_key, job_id, labels)
    SELECT 'n2', CASE job_id WHEN 'hidden' THEN 'user.hidden' ELSE 'cpu.usage' END, job_key, job_id,
        jsonb_build_object('secret', job_id) FROM job WHERE job_key > 40;
    INSERT INTO samples (time, series_id, value) SELECT started + make_interval(mins => 10 * number), series_id, number
    FROM job JOIN series USING (job_key), generate_series(0, 6) AS number WHERE job_key > 40;
    INSERT INTO samples (time, series_id, value) SELECT begin + make_interval(mins => 10 * number), series_id, number
    FROM (SELECT date_trunc('day', now(), 'UTC') - interval '1 day' AS begin) AS day, series, generate_series(0, 143) AS number
    WHERE job_key IS NULL AND node = 'n2' AND NOT EXISTS (SELECT FROM samples WHERE samples.series_id = series.series_id AND time >= begin);
    INSERT INTO stack_function SELECT job_key, 1, 'secret ' || job_id, 'a.out' FROM job WHERE job_id IN ('hidden', '42_7');
    INSERT INTO stack_node SELECT job_key, 1, NULL, 1 FROM stack_function;
    INSERT INTO stack_interval SELECT job_key, started, 1, 'n2', 'stacks.cpu', 1000000, 10000, 5, 0, 0, 0, 0
    FROM job JOIN stack_function USING (job_key);
    INSERT INTO stack_sample SELECT job_key, time, interval_id, 77, 1, 5 FROM stack_interval;
    INSERT INTO window_histogram SELECT job_key, time, series_id, value, 3 FROM samples JOIN series USING (series_id)
    WHERE job_key > 40 OR job_key IS NULL AND node = 'n2';
    CREATE ROLE alice LOGIN IN ROLE polymeter_user;
    CREATE ROLE bob LOGIN IN ROLE polymeter_user;
    CREATE ROLE carol LOGIN IN ROLE polymeter_user;
    CREATE ROLE dora LOGIN IN ROLE polymeter_user;
    CREATE ROLE eric LOGIN IN ROLE polymeter_user;
    INSERT INTO account_manager VALUES ('account of hidden', 'dora'), ('account of unowned', 'dora'), ('account of 42_7', 'eric');
    CREATE ROLE grafana LOGIN IN ROLE polymeter_reader;
    CREATE ROLE stranger LOGIN;
    ANALYZE;";

pub(crate) fn store_of_users(kind: Kind) -> TestEnvironment {
    let mut environment = store_of_jobs(kind);
    server(&mut environment).query(MORE_JOBS);
    environment
}

fn users_see_their_own_jobs_on_postgresql() {
    assert_users_see_their_own_jobs(Kind::Postgres);
}

fn users_see_their_own_jobs_on_timescaledb() {
    assert_users_see_their_own_jobs(Kind::Timescale);
}

fn users_see_their_own_jobs_on_citus() {
    assert_users_see_their_own_jobs(Kind::Citus);
}

fn assert_users_see_their_own_jobs(kind: Kind) {
    let mut environment = store_of_users(kind);
    let server = server(&mut environment);
    let is = |user: &str, sql: &str, expected: &str| assert_result(server, user, sql, expected);
    for (user, jobs) in
        [("alice", "22"), ("bob", "21"), ("carol", "0"), ("dora", "2"), ("eric", "1"), ("grafana", "44")]
    {
        is(user, "SELECT count(*) FROM jobs", jobs);
        is(user, "SELECT count(*) FROM nodetime_by_job", jobs);
        is(user, "SELECT count(DISTINCT job_id) FROM metrics_by_job", jobs);
    }
    for (user, metrics) in
        [("alice", "3"), ("bob", "4"), ("carol", "3"), ("dora", "4"), ("eric", "3"), ("grafana", "4")]
    {
        is(user, "SELECT count(*) FROM metric_units", metrics);
    }
    // Of the jobs 41 and 42_7 of alice and hidden of bob: seven windows of their own, and those of their
    // node, all ten minutes while they ran there, without those of the others.
    for (user, jobs) in [("alice", "41|60,42_7|60"), ("bob", "hidden|42"), ("eric", "42_7|60"), ("carol", "")]
    {
        let seen = "SELECT string_agg(job_id || '|' || count, ',' ORDER BY job_id) FROM (
                SELECT job_id, sum(count) AS count FROM histograms_by_job
                WHERE job_id IN ('hidden', 'unowned', '41', '42_7') GROUP BY job_id) AS seen";
        is(user, seen, jobs);
    }
    is("alice", "SELECT count(*) FROM histograms_by_job WHERE labels ->> 'secret' = 'hidden'", "0");
    is("alice", "SELECT count(*) FROM jobs WHERE owner IS DISTINCT FROM 'alice'", "0");
    is("alice", "SELECT count(*), min(account) FROM jobs WHERE job_id = '42_7'", "1|account of 42_7");
    // Job 20 is alice's, job 21 is bob's.
    for (user, own, other) in [("alice", "20", "21"), ("bob", "21", "20")] {
        is(user, &format!("SELECT count(*) FROM metrics_by_job WHERE job_id = {own}"), "66");
        is(user, &format!("SELECT count(*) FROM get_metrics({own})"), "66");
        is(
            user,
            &format!("SELECT count(*) FROM api.available_metrics(params => '{{\"job_id\": {own}}}')"),
            "3",
        );
        is(user, &format!("SELECT count(*) FROM get_metrics({own}, summary => true)"), "65");
        is(user, &format!("SELECT count(*) FROM get_metrics({other}, summary => true)"), "0");
        is(user, &format!("SELECT count(*) FROM metrics_by_job_summary WHERE job_id = {other}"), "0");
        is(user, &format!("SELECT count(*) FROM metrics_by_job WHERE job_id = {other}"), "0");
        is(user, &format!("SELECT count(*) FROM api.get_metrics({other})"), "0");
        is(user, &format!("SELECT count(*) FROM get_metrics(job => '{other}')"), "0");
        is(
            user,
            &format!("SELECT count(*) FROM available_metrics(params => '{{\"job_id\": {other}}}')"),
            "0",
        );
        is(user, &format!("SELECT count(*) FROM nodetime_by_job WHERE job_id = {other}"), "0");
    }
    assert_node_series_of_own_jobs(server);
    assert_readers_and_strangers(server);
}

/// Managers see the jobs of their accounts in each view and function as the owners do, and nothing else.
fn managers_see_the_jobs_of_their_accounts() {
    let mut environment = store_of_users(Kind::Postgres);
    let server = server(&mut environment);
    let jobs = "SELECT string_agg(job_id, ',' ORDER BY job_id) FROM jobs";
    for (user, seen) in [("dora", "hidden,unowned"), ("eric", "42_7")] {
        assert_result(server, user, jobs, seen);
        for view in VIEWS.iter().filter(|view| view.contains("by_job")) {
            let others =
                format!("SELECT count(*) FROM {view} WHERE job_id <> ALL (string_to_array('{seen}', ','))");
            assert_result(server, user, &others, "0");
        }
        assert_refused(server, user, "SELECT * FROM account_manager", "permission denied");
        assert_refused(server, user, "SELECT polymeter_managed_accounts()", "permission denied");
    }
    // The functions of a program are its owner's.
    let functions = "SELECT string_agg(stack, ',' ORDER BY stack) FROM stacks";
    for (user, seen) in [
        ("alice", "secret 42_7"),
        ("bob", "secret hidden"),
        ("dora", ""),
        ("eric", ""),
        ("grafana", "secret 42_7,secret hidden"),
    ] {
        assert_result(server, user, functions, seen);
    }
    assert_refused(server, "alice", "SELECT * FROM stack_function", "permission denied");
    for query in [
        "SELECT * FROM metrics_by_job WHERE job_id = '42_7' ORDER BY timestamp, metric_id, labels",
        "SELECT * FROM get_metrics(job => '42_7') ORDER BY timestamp, metric_id, labels",
        "SELECT * FROM metrics_by_job_summary WHERE job_id = '42_7' ORDER BY timestamp, metric_id, labels",
        "SELECT * FROM nodetime_by_job WHERE job_id = '42_7'",
        "SELECT * FROM jobs WHERE job_id = '42_7'",
    ] {
        let of_owner = query_as(server, "alice", query);
        assert!(!of_owner.is_empty(), "{query}");
        assert_eq!(query_as(server, "eric", query), of_owner, "{query}");
        assert_eq!(query_as(server, "dora", query), "", "{query}");
    }
    // A job without an owner has a manager, too; the series of its node are seen while it ran there.
    assert_result(server, "dora", "SELECT count(*) FROM metrics_by_job WHERE job_id = 'unowned'", "14");
    // The accounts count that are in force, and no index is left out for them.
    server.query("DELETE FROM account_manager WHERE manager = 'eric'");
    assert_result(server, "eric", "SELECT count(*) FROM jobs", "0");
    let plan = server
        .query("SET enable_seqscan = off; EXPLAIN SELECT * FROM job WHERE polymeter_is_own(owner, account)");
    assert!(plan.contains("job_by_owner") && plan.contains("job_by_account"), "{plan}");
}

fn assert_node_series_of_own_jobs(server: &Server) {
    let is = |user: &str, sql: &str, expected: &str| assert_result(server, user, sql, expected);
    // The node's series while an own job ran there, and at no other time: four samples of each of twenty jobs
    // on n1; on n2 from 03:00 to 06:00, each once although two jobs overlap.
    let of_nodes = |node: &str| {
        format!(
            "SELECT count(*), count(DISTINCT timestamp) FROM metrics WHERE metric_id = 'node.load1' AND device_id = '{node}'"
        )
    };
    is("alice", &of_nodes("n1"), "80|80");
    is("alice", &of_nodes("n2"), "19|19");
    is("bob", &of_nodes("n2"), "7|7");
    is("carol", &of_nodes("n2"), "0|0");
    is(
        "alice",
        "SELECT count(*) FROM metrics_by_job WHERE metric_id = 'node.load1' AND device_id = 'n2'",
        "26",
    );
    is(
        "alice",
        "SELECT string_agg(DISTINCT labels ->> 'job_id', ',') FROM metrics WHERE device_id = 'n2' AND metric_id <> 'node.load1'",
        "41,42_7",
    );
    is(
        "alice",
        "SELECT count(*) FROM get_metrics(nodes => 'n2', start_time => (now() - interval '3 days')::text, end_time => now()::text)",
        "33",
    );
    is(
        "alice",
        "SELECT count(*) FROM metrics_summary WHERE device_id = 'n2' AND metric_id = 'node.load1'",
        "18",
    );
    is("carol", "SELECT count(*) FROM metrics_by_device_summary", "0");
    is(
        "carol",
        "SELECT count(*) FROM get_metrics(nodes => 'n1,n2', start_time => '2020-01-01', end_time => now()::text)",
        "0",
    );
}

/// A reader sees all, a role without grants nothing.
fn assert_readers_and_strangers(server: &Server) {
    let is = |user: &str, sql: &str, expected: &str| assert_result(server, user, sql, expected);
    is("grafana", "SELECT (SELECT count(*) FROM metrics) = (SELECT count(*) FROM samples)", "t");
    is("grafana", "SELECT count(*) FROM get_metrics(job => 'hidden')", "14");
    is("grafana", "SELECT count(*) FROM ledger_balance", "0");
    assert_refused(server, "grafana", "DELETE FROM job", "permission denied");
    for view in VIEWS {
        assert_refused(server, "stranger", &format!("SELECT * FROM {view}"), "permission denied for view");
        query_as(server, "alice", &format!("SELECT * FROM {view} LIMIT 1"));
    }
    assert_refused(
        server,
        "stranger",
        "SELECT * FROM polymeter_own_jobs()",
        "permission denied for function",
    );
}

fn the_role_in_force_decides() {
    let mut environment = store_of_users(Kind::Postgres);
    let server = server(&mut environment);
    server.query("CREATE ROLE authenticator LOGIN NOINHERIT IN ROLE polymeter_reader, alice, bob");
    for (role, jobs) in [("alice", "22"), ("bob", "21"), ("polymeter_reader", "44")] {
        assert_result(server, "authenticator", &format!("SET ROLE {role}; SELECT count(*) FROM jobs"), jobs);
    }
    // A plan that was made for another role shows nothing more.
    let prepared = "PREPARE of_jobs AS SELECT count(*) FROM jobs; SET plan_cache_mode = force_generic_plan; SET ROLE polymeter_reader;
        EXECUTE of_jobs; SET ROLE alice; EXECUTE of_jobs; RESET ROLE; SET ROLE bob; EXECUTE of_jobs;";
    let output = server.run_as(
        "authenticator",
        "postgres",
        &prepared.replace("PREPARE", "SET ROLE polymeter_reader; PREPARE"),
    );
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "44\n22\n21");
    assert_refused(server, "alice", "SET ROLE bob", "permission denied to set role");
}

fn statements_of_users_are_limited() {
    let mut environment = store_of_users(Kind::Postgres);
    let server = server(&mut environment);
    for user in ["alice", "grafana"] {
        assert_result(server, user, "SHOW statement_timeout", "5min");
    }
    assert_result(server, "postgres", "SHOW statement_timeout", "0");
    assert_eq!(
        server.query("SELECT rolconfig FROM pg_roles WHERE rolname = 'polymeter_user'"),
        "{jit=off,statement_timeout=5min}"
    );
    // The limit acts within functions, too, and not on connections of the collector.
    let slow = "SET statement_timeout = '1ms';
        SELECT count(*) FROM get_metrics(nodes => 'n1', start_time => '2020-01-01', end_time => now()::text)";
    assert_refused(server, "alice", slow, "canceling statement due to statement timeout");
    server.query("ALTER ROLE postgres SET statement_timeout = '1ms'; ALTER ROLE postgres IN DATABASE postgres RESET ALL");
    environment.collector().stop().unwrap();
}
