//! Tests of the database's roles: users see their own jobs only, readers everything, writers can be collectors; and of a
//! dump that is restored.

use std::process::Output;

use polymeter_collector::{Collector, CollectorConfig};
use polymeter_store::{Keep, Retention, prune};

use crate::postgres::{assert_counts, send_row, server};
use crate::sql_views::store_of_jobs;
use crate::support::agent::Agent;
use crate::support::server::Server;
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

polymeter_test_harness::tests![
    users_see_their_own_jobs_on_postgresql,
    users_see_their_own_jobs_on_timescaledb,
    nothing_leaks_to_users_on_postgresql,
    nothing_leaks_to_users_on_timescaledb,
    the_role_in_force_decides,
    a_writer_stores_samples_on_postgresql,
    a_writer_stores_samples_on_timescaledb,
    a_writer_leaves_maintenance_to_the_owner_on_postgresql,
    a_writer_leaves_maintenance_to_the_owner_on_timescaledb,
    roles_are_created_later_by_an_administrator,
    databases_share_the_roles,
    a_dump_can_be_restored_on_postgresql,
    a_dump_can_be_restored_on_timescaledb
];

/// The rows of the views that a user sees.
const VIEWS: [&str; 11] = [
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
];

/// Adds to the jobs of the store one of bob with names that nobody else may see, two of alice that overlap on a node, and
/// one without an owner.
const MORE_JOBS: &str = "
    INSERT INTO metric VALUES ('hidden.metric', 'B', 'gauge');
    INSERT INTO job (job_id, owner, account, started, ended)
    SELECT job_id, owner, 'account of ' || job_id, begin + first, begin + last
    FROM (SELECT date_trunc('day', now(), 'UTC') - interval '1 day' AS begin) AS day,
        (VALUES ('hidden', 'bob', interval '1 h', interval '2 h'), ('41', 'alice', '3 h', '5 h'), ('42_7', 'alice', '4 h', '6 h'),
                ('unowned', NULL, '7 h', '8 h')) AS run (job_id, owner, first, last);
    INSERT INTO job_node (job_key, node, started, ended) SELECT job_key, 'n2', started, ended FROM job WHERE job_key > 40;
    INSERT INTO series (node, metric, job_key, job_id, labels)
    SELECT 'n2', CASE job_id WHEN 'hidden' THEN 'hidden.metric' ELSE 'cpu.usage' END, job_key, job_id,
        jsonb_build_object('secret', job_id) FROM job WHERE job_key > 40;
    INSERT INTO samples SELECT started + make_interval(mins => 10 * number), series_id, number
    FROM job JOIN series USING (job_key), generate_series(0, 6) AS number WHERE job_key > 40;
    INSERT INTO samples SELECT begin + make_interval(mins => 10 * number), series_id, number
    FROM (SELECT date_trunc('day', now(), 'UTC') - interval '1 day' AS begin) AS day, series, generate_series(0, 143) AS number
    WHERE job_key IS NULL AND node = 'n2' AND NOT EXISTS (SELECT FROM samples WHERE samples.series_id = series.series_id AND time >= begin);
    CREATE ROLE alice LOGIN IN ROLE polymeter_user;
    CREATE ROLE bob LOGIN IN ROLE polymeter_user;
    CREATE ROLE carol LOGIN IN ROLE polymeter_user;
    CREATE ROLE grafana LOGIN IN ROLE polymeter_reader;
    CREATE ROLE stranger LOGIN;
    ANALYZE;";

fn store_of_users(kind: Kind) -> TestEnvironment {
    let mut environment = store_of_jobs(kind);
    server(&mut environment).query(MORE_JOBS);
    environment
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Returns the result of a query of a user.
fn query_as(server: &Server, user: &str, sql: &str) -> String {
    let output = server.run_as(user, "postgres", sql);
    assert!(output.status.success(), "{user}: {sql}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn users_see_their_own_jobs_on_postgresql() {
    assert_users_see_their_own_jobs(Kind::Postgres);
}

fn users_see_their_own_jobs_on_timescaledb() {
    assert_users_see_their_own_jobs(Kind::Timescale);
}

fn assert_users_see_their_own_jobs(kind: Kind) {
    let mut environment = store_of_users(kind);
    let server = server(&mut environment);
    let is = |user: &str, sql: &str, expected: &str| {
        assert_eq!(query_as(server, user, sql), expected, "{user}: {sql}")
    };
    for (user, jobs) in [("alice", "22"), ("bob", "21"), ("carol", "0"), ("grafana", "44")] {
        is(user, "SELECT count(*) FROM jobs", jobs);
        is(user, "SELECT count(*) FROM nodetime_by_job", jobs);
        is(user, "SELECT count(DISTINCT job_id) FROM metrics_by_job", jobs);
        is(user, "SELECT count(*) FROM metric_units", "4");
    }
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

fn assert_node_series_of_own_jobs(server: &Server) {
    let is = |user: &str, sql: &str, expected: &str| {
        assert_eq!(query_as(server, user, sql), expected, "{user}: {sql}")
    };
    // The node's series while an own job ran there, and at no other time: four samples of each of twenty jobs on n1; on n2
    // from 03:00 to 06:00, each once although two jobs overlap.
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
    let is = |user: &str, sql: &str, expected: &str| {
        assert_eq!(query_as(server, user, sql), expected, "{user}: {sql}")
    };
    is("grafana", "SELECT (SELECT count(*) FROM metrics) = (SELECT count(*) FROM samples)", "t");
    is("grafana", "SELECT count(*) FROM get_metrics(job => 'hidden')", "14");
    is("grafana", "SELECT count(*) FROM ledger_balance", "0");
    assert!(text(&server.run_as("grafana", "postgres", "DELETE FROM job")).contains("permission denied"));
    for view in VIEWS {
        let refused = server.run_as("stranger", "postgres", &format!("SELECT * FROM {view}"));
        assert!(text(&refused).contains("permission denied for view"), "{view}: {}", text(&refused));
        query_as(server, "alice", &format!("SELECT * FROM {view} LIMIT 1"));
    }
    assert_eq!(
        server.query("SELECT rolconfig FROM pg_roles WHERE rolname = 'polymeter_user'"),
        "{jit=off,statement_timeout=5min}"
    );
}

fn nothing_leaks_to_users_on_postgresql() {
    assert_nothing_leaks(Kind::Postgres);
}

fn nothing_leaks_to_users_on_timescaledb() {
    assert_nothing_leaks(Kind::Timescale);
}

fn assert_nothing_leaks(kind: Kind) {
    let mut environment = store_of_users(kind);
    let server = server(&mut environment);
    assert_relations_are_hidden(server);
    assert_functions_of_users_see_no_more(server);
    assert_others_jobs_look_absent(server);
    // Functions with the owner's rights do not find a user's tables.
    let fooled = "CREATE TEMP TABLE job AS SELECT 41::int8 AS job_key, 'hidden' AS job_id, 'alice' AS owner, now() AS started, now() AS ended;
        SELECT string_agg(DISTINCT owner, ',') FROM (SELECT owner FROM polymeter_own_jobs() UNION ALL SELECT owner FROM jobs) AS own";
    assert_eq!(query_as(server, "alice", fooled), "alice");
    assert_eq!(
        query_as(
            server,
            "alice",
            "CREATE TEMP TABLE job_node AS SELECT 41::int8 AS job_key, 'n2' AS node; SELECT count(*) FROM polymeter_own_job_nodes() WHERE job_id = 'hidden'"
        ),
        "0"
    );
}

/// No relation but the views, in whichever schema, can be read or changed.
fn assert_relations_are_hidden(server: &Server) {
    let relations = server.query(
        "SELECT oid::regclass FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'S')
             AND (relnamespace = 'public'::regnamespace OR relnamespace::regnamespace::text LIKE '\\_timescaledb\\_internal')
             AND relname NOT LIKE 'bgw\\_%' AND relname NOT LIKE 'compressed\\_chunk\\_%' AND relname NOT LIKE 'hypertable\\_chunk\\_%'",
    );
    let hidden: Vec<&str> = relations.lines().filter(|name| !is_for_users(name)).collect();
    assert!(hidden.contains(&"samples") && hidden.contains(&"job") && hidden.len() > 50, "{hidden:?}");
    let probe = |privilege: &str| {
        let select = format!(
            "SELECT string_agg(name, ', ') FROM unnest(string_to_array('{}', ',')) AS name WHERE has_table_privilege(name, '{privilege}')",
            hidden.join(",")
        );
        assert_eq!(query_as(server, "alice", &select), "", "{privilege}");
    };
    ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"].into_iter().for_each(probe);
    for relation in
        ["samples", "series", "job", "job_node", "session", "plan_change", "ledger_balance", "loss", "mark"]
    {
        let refused = server.run_as("alice", "postgres", &format!("SELECT * FROM {relation}"));
        assert!(text(&refused).contains("permission denied for"), "{relation}: {}", text(&refused));
    }
    for change in [
        "DELETE FROM jobs",
        "INSERT INTO metric_units VALUES ('a', 'b', 'c')",
        "UPDATE nodetime_by_job SET node = 'n'",
        "CREATE TABLE mine (a int)",
        "SELECT polymeter_create_roles()",
    ] {
        assert!(!server.run_as("alice", "postgres", change).status.success(), "{change}");
    }
}

/// A function that tells its arguments, as cheap as can be, in conditions; and in an operator whose selectivity the planner
/// estimates by calling it with the most common values.
fn assert_functions_of_users_see_no_more(server: &Server) {
    let tell = "CREATE FUNCTION pg_temp.tell(text, text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS
            'BEGIN RAISE NOTICE ''told %'', $1; RETURN true; END';
        CREATE FUNCTION pg_temp.tell(float8, float8) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS
            'BEGIN RAISE NOTICE ''told %'', $1; RETURN true; END';
        CREATE OPERATOR pg_temp.=== (FUNCTION = pg_temp.tell, LEFTARG = text, RIGHTARG = text, RESTRICT = eqsel);
        SET enable_indexscan = off; SET enable_bitmapscan = off;";
    for (relation, columns) in [
        ("jobs", &["job_id", "owner", "account"][..]),
        ("nodetime_by_job", &["job_id", "node"]),
        ("metrics", &["device_id", "metric_id", "labels::text"]),
        ("metrics_by_device", &["device_id", "metric_id", "labels::text"]),
        ("metrics_by_job", &["job_id", "device_id", "metric_id", "labels::text"]),
        ("promoted_metrics_job", &["job_id", "node", "metric_id"]),
        ("metrics_by_job_summary", &["job_id", "metric_id", "labels::text"]),
        ("metrics_summary", &["device_id", "metric_id", "labels::text"]),
        ("get_metrics(job => 'hidden')", &["device_id", "metric_id", "labels::text"]),
    ] {
        for column in columns {
            for condition in
                [format!("pg_temp.tell({column}, 'a')"), format!("{column} OPERATOR(pg_temp.===) 'a'")]
            {
                let output = server.run_as(
                    "alice",
                    "postgres",
                    &format!("{tell} SELECT {column} FROM {relation} WHERE {condition}"),
                );
                let printed = text(&output);
                assert!(output.status.success(), "{relation}: {printed}");
                let is_foreign =
                    |line: &&str| ["hidden", "bob", "unowned"].iter().any(|name| line.contains(name));
                assert_eq!(printed.lines().find(is_foreign), None, "{relation}: {condition}");
                if *column == "job_id" && relation != "promoted_metrics_job" {
                    assert!(
                        printed.contains("told 20\n") && !printed.contains("told 21\n"),
                        "{relation}: {condition}"
                    );
                }
            }
        }
    }
    let values = server.run_as(
        "alice",
        "postgres",
        &format!("{tell} SELECT count(*) FROM metrics_by_job WHERE pg_temp.tell(value, 1)"),
    );
    assert!(
        values.status.success() && !text(&values).contains("told 67860\n"),
        "a value of bob's job 39 alone"
    );
}

/// Neither plans nor errors tell a job of others from none.
fn assert_others_jobs_look_absent(server: &Server) {
    let about = |job: &str, statement: &str| {
        text(&server.run_as("alice", "postgres", &statement.replace("JOB", job))).replace(job, "JOB")
    };
    for statement in [
        "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) SELECT * FROM jobs WHERE job_id = 'JOB'",
        "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) SELECT * FROM nodetime_by_job WHERE job_id = 'JOB'",
        "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) SELECT * FROM metrics_by_job WHERE job_id = 'JOB' AND metric_id = 'cpu.usage'",
        "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) SELECT * FROM metrics_by_job WHERE job_id = 'JOB' AND value > 3",
        "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) SELECT * FROM get_metrics(job => 'JOB')",
        "EXPLAIN SELECT * FROM jobs WHERE account = 'account of JOB'",
        "SELECT 1 / (value - 3)::int FROM metrics_by_job WHERE job_id = 'JOB'",
        "SELECT * FROM get_metrics(job => 'JOB', start_time => 'no time')",
        "SELECT * FROM available_metrics(params => '{\"job_id\": \"JOB\"}')",
    ] {
        assert_eq!(about("hidden", statement), about("absent", statement), "{statement}");
    }
    let of_owner = "EXPLAIN SELECT * FROM jobs WHERE owner = 'JOB'";
    assert_eq!(about("bob", of_owner), about("eve", of_owner), "the number of bob's jobs");
    assert!(
        query_as(
            server,
            "alice",
            "SELECT string_agg(tablename, ',') FROM pg_stats WHERE schemaname = 'public'"
        )
        .is_empty()
    );
}

fn is_for_users(relation: &str) -> bool {
    VIEWS.contains(&relation)
}

fn the_role_in_force_decides() {
    let mut environment = store_of_users(Kind::Postgres);
    let server = server(&mut environment);
    server.query("CREATE ROLE authenticator LOGIN NOINHERIT IN ROLE polymeter_reader, alice, bob");
    let jobs = |statements: &str| {
        query_as(server, "authenticator", &format!("{statements} SELECT count(*) FROM jobs"))
    };
    assert_eq!(jobs("SET ROLE alice;"), "22");
    assert_eq!(jobs("SET ROLE bob;"), "21");
    assert_eq!(jobs("SET ROLE polymeter_reader;"), "44");
    // A plan that was made for another role shows nothing more.
    let prepared = "PREPARE of_jobs AS SELECT count(*) FROM jobs; SET plan_cache_mode = force_generic_plan; SET ROLE polymeter_reader;
        EXECUTE of_jobs; SET ROLE alice; EXECUTE of_jobs; RESET ROLE; SET ROLE bob; EXECUTE of_jobs;";
    let output = server.run_as(
        "authenticator",
        "postgres",
        &prepared.replace("PREPARE", "SET ROLE polymeter_reader; PREPARE"),
    );
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "44\n22\n21");
    assert!(
        text(&server.run_as("alice", "postgres", "SET ROLE bob")).contains("permission denied to set role")
    );
}

fn a_writer_stores_samples_on_postgresql() {
    assert_a_writer_stores_samples(Kind::Postgres);
}

fn a_writer_stores_samples_on_timescaledb() {
    assert_a_writer_stores_samples(Kind::Timescale);
}

fn assert_a_writer_stores_samples(kind: Kind) {
    let mut environment = TestEnvironment::new(kind);
    environment.collector().stop().unwrap();
    let second = server(&mut environment);
    second.query("CREATE ROLE second LOGIN IN ROLE polymeter_writer");
    let store = second.url().replace("user=postgres", "user=second").parse().unwrap();
    let config = CollectorConfig { store, ..environment.config() };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    (0..3).for_each(|seed| send_row(&mut agent, now_us(), seed));
    // The partition of another day is created, too.
    send_row(&mut agent, now_us() - 3 * 86_400 * 1_000_000, 0);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_counts(&environment, "n1", 4);
}

fn a_writer_leaves_maintenance_to_the_owner_on_postgresql() {
    assert_a_writer_leaves_maintenance(Kind::Postgres);
}

fn a_writer_leaves_maintenance_to_the_owner_on_timescaledb() {
    assert_a_writer_leaves_maintenance(Kind::Timescale);
}

fn assert_a_writer_leaves_maintenance(kind: Kind) {
    let mut environment = TestEnvironment::new(kind);
    // The store keeps all at first.
    let config = environment.config();
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    send_row(&mut agent, now_us() - 5 * 86_400 * 1_000_000, 0);
    send_row(&mut agent, now_us(), 1);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_counts(&environment, "n1", 2);
    let second = server(&mut environment);
    second.query("CREATE ROLE second LOGIN IN ROLE polymeter_writer");
    second.configure("log_min_messages = error\n");
    second.restart();
    let log = second.socket_directory().join("log");
    let store = second.url().replace("user=postgres", "user=second").parse().unwrap();
    let retention = Retention { samples: Keep::Days(2), ten_seconds: Keep::Days(2), ..Retention::FOREVER };
    let config = CollectorConfig { store, retention: Some(retention), ..config };
    let collector = Collector::start(&config, &environment.context).unwrap();
    // The round of the maintenance writes the policy, and ends.
    let policy = "SELECT count(*) FROM retention WHERE keep_days = 2";
    let maintained = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    wait_until("a round has ended", || {
        environment.number(policy) == 2 && environment.number(maintained) == 0
    });
    collector.stop().unwrap();
    assert_counts(&environment, "n1", 2);
    let errors = std::fs::read_to_string(log).unwrap();
    assert!(!errors.contains("must be owner") && !errors.contains("permission denied"), "{errors}");
    let error = prune(&config.store, None, |_, _| ()).unwrap_err().to_string();
    assert!(error.contains("does not own the tables"), "{error}");
    // A member of the owner's role may do all that the owner may.
    environment.execute("GRANT postgres TO second");
    let collector = Collector::start(&config, &environment.context).unwrap();
    wait_until("old samples are removed", || environment.number("SELECT count(*) FROM samples") == 3);
    collector.stop().unwrap();
    assert_eq!(environment.number("SELECT CAST(sum(count) AS bigint) FROM samples_1h"), 6);
}

fn roles_are_created_later_by_an_administrator() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let administrator = server(&mut environment);
    administrator.query("CREATE ROLE plain LOGIN");
    administrator.query("CREATE DATABASE plain OWNER plain");
    let url = administrator.url().replace("user=postgres dbname=postgres", "user=plain dbname=plain");
    let config = CollectorConfig { store: url.parse().unwrap(), ..environment.config() };
    Collector::start(&config, &environment.context).unwrap().stop().unwrap();
    let administrator = server(&mut environment);
    let roles = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'polymeter\\_%'";
    assert_eq!(administrator.query(roles), "0");
    let run = |sql: &str| {
        let output = administrator.run_as("postgres", "plain", sql);
        assert!(output.status.success(), "{sql}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(run("SELECT polymeter_create_roles()"), "{}");
    assert_eq!(run("SELECT polymeter_create_roles()"), "{}", "it can be repeated");
    assert_eq!(run(roles), "3");
    assert_eq!(run("SET ROLE polymeter_user; SELECT count(*) FROM jobs"), "0");
    assert_eq!(run("SET ROLE polymeter_reader; SELECT count(*) FROM samples"), "0");
    assert_eq!(run("SHOW jit"), "off");
}

fn databases_share_the_roles() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let names = ["one", "two", "three"];
    let server = server(&mut environment);
    for name in names {
        server.query(&format!("CREATE DATABASE {name}"));
    }
    let urls = names.map(|name| server.url().replace("dbname=postgres", &format!("dbname={name}")));
    let config = environment.config();
    let context = &environment.context;
    // Three collectors create three stores, and the same roles, at the same time.
    std::thread::scope(|scope| {
        let starts = urls.each_ref().map(|url| {
            let listen = format!("inproc://{}", url.rsplit('=').next().unwrap());
            let config = CollectorConfig { store: url.parse().unwrap(), listen, ..config.clone() };
            scope.spawn(move || Collector::start(&config, context).map(|collector| collector.stop().unwrap()))
        });
        for start in starts {
            start.join().unwrap().unwrap();
        }
    });
    let server = environment.server.as_ref().unwrap();
    for name in names {
        let output = server.run_as("postgres", name, "SET ROLE polymeter_user; SELECT count(*) FROM jobs");
        assert_eq!(text(&output).trim(), "0", "{name}");
    }
}

fn a_dump_can_be_restored_on_postgresql() {
    assert_a_dump_can_be_restored(Kind::Postgres);
}

fn a_dump_can_be_restored_on_timescaledb() {
    assert_a_dump_can_be_restored(Kind::Timescale);
}

/// The steps are those of docs/how-to/store.md.
fn assert_a_dump_can_be_restored(kind: Kind) {
    let mut environment = store_of_users(kind);
    let count = environment.number("SELECT count(*) FROM samples");
    let source = server(&mut environment);
    let dumped = source
        .client("pg_dump")
        .args(["-U", "postgres", "-Fc", "-f", "store.dump", "postgres"])
        .output()
        .unwrap();
    assert!(dumped.status.success(), "{}", text(&dumped));
    source.query("CREATE DATABASE restored");
    let run = |sql: &str| {
        let output = source.run_as("postgres", "restored", sql);
        assert!(output.status.success(), "{sql}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    if kind == Kind::Timescale {
        run("CREATE EXTENSION timescaledb");
        run("SELECT timescaledb_pre_restore()");
    }
    let restored = source
        .client("pg_restore")
        .args(["-U", "postgres", "-d", "restored", "store.dump"])
        .output()
        .unwrap();
    assert!(restored.status.success(), "{}", text(&restored));
    if kind == Kind::Timescale {
        run("SELECT timescaledb_post_restore()");
    }
    run("ALTER DATABASE restored SET jit = off");
    run("ANALYZE");
    assert_eq!(run("SELECT count(*) FROM samples"), count.to_string());
    assert_eq!(
        run(
            "SET SESSION AUTHORIZATION alice; SELECT count(*), (SELECT count(*) FROM metrics_by_job WHERE job_id = 20) FROM jobs"
        ),
        "22|66"
    );
    // A collector continues.
    let url = source.url().replace("dbname=postgres", "dbname=restored");
    let config = CollectorConfig { store: url.parse().unwrap(), ..environment.config() };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n3", 3);
    (0..3).for_each(|seed| send_row(&mut agent, now_us(), seed));
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    let output = environment.server.as_ref().unwrap().run_as(
        "postgres",
        "restored",
        "SELECT count(*) FROM metrics WHERE device_id = 'n3' AND timestamp > now() - interval '1 day'",
    );
    assert_eq!(text(&output).trim(), "9");
}
