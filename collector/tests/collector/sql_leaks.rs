//! Tests that users of the database cannot learn of the jobs of others: through relations, functions,
//! operators, plans and errors.

use crate::postgres::server;
use crate::sql_roles::{VIEWS, store_of_users};
use crate::support::Kind;
use crate::support::server::Server;
use crate::support::sql::{assert_refused, assert_result, query_as, text};

polymeter_test_harness::tests![
    nothing_leaks_to_users_on_postgresql,
    nothing_leaks_to_users_on_timescaledb,
    nothing_leaks_to_users_on_citus
];

fn nothing_leaks_to_users_on_postgresql() {
    assert_nothing_leaks(Kind::Postgres);
}

fn nothing_leaks_to_users_on_timescaledb() {
    assert_nothing_leaks(Kind::Timescale);
}

fn nothing_leaks_to_users_on_citus() {
    assert_nothing_leaks(Kind::Citus);
}

fn assert_nothing_leaks(kind: Kind) {
    let mut environment = store_of_users(kind);
    let server = server(&mut environment);
    assert_relations_are_hidden(server);
    assert_functions_show_own_jobs_only(server);
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

/// Of all relations, in whichever schema, users can read the views, and change none. What they can read shows
/// no job of others.
fn assert_relations_are_hidden(server: &Server) {
    // Relations of extensions and of PostgreSQL itself have no samples; they are read, too.
    let of_store = "relkind IN ('r', 'p', 'v', 'm', 'f', 't', 'S')
        AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
        AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e')";
    let count: u32 =
        server.query(&format!("SELECT count(*) FROM pg_class WHERE {of_store}")).parse().unwrap();
    assert!(count > 100, "{count}");
    let rights = format!(
        "SELECT DISTINCT relname COLLATE \"C\", privilege FROM pg_class
         CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES', 'DELETE', 'TRUNCATE', 'TRIGGER'])
             WITH ORDINALITY AS list (privilege, number)
         WHERE {of_store} AND CASE WHEN number <= 4 THEN has_any_column_privilege(oid, privilege)
                                   ELSE has_table_privilege(oid, privilege) END
         ORDER BY 1"
    );
    let mut views = VIEWS;
    views.sort_unstable();
    let views = views.map(|view| format!("{view}|SELECT"));
    for user in ["alice", "carol"] {
        assert_result(server, user, &rights, &views.join("\n"));
    }
    assert_result(server, "stranger", &rights, "");
    let shown = foreign_rows(
        server,
        "SELECT format('SELECT * FROM %s', oid::regclass) FROM pg_class
         WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 't') AND has_table_privilege(oid, 'SELECT')
             AND has_schema_privilege(relnamespace, 'USAGE')",
    );
    assert_eq!(shown, Vec::<String>::new());
    for change in [
        "DELETE FROM jobs",
        "INSERT INTO metric_units VALUES ('a', 'b', 'c')",
        "UPDATE nodetime_by_job SET node = 'n'",
        "CREATE TABLE mine (a int)",
        "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ] {
        assert!(!server.run_as("alice", "postgres", change).status.success(), "{change}");
    }
}

/// Functions with the rights of their owner find no objects of users, and only the roles may call them. Those
/// that users may call show no job of others, whatever the arguments are.
fn assert_functions_show_own_jobs_only(server: &Server) {
    let of_store = "pronamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
        AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = pg_proc.oid AND deptype = 'e')";
    let definers = format!("FROM pg_proc WHERE prosecdef AND {of_store}");
    let count: u32 = server.query(&format!("SELECT count(*) {definers}")).parse().unwrap();
    assert!(count >= 2, "{count}");
    let unsafe_definers = format!(
        "SELECT oid::regprocedure {definers} AND (has_function_privilege('stranger', oid, 'EXECUTE')
             OR NOT coalesce('search_path=public, pg_temp' = ANY (proconfig), false))"
    );
    assert_eq!(server.query(&unsafe_definers), "");
    assert_refused(server, "alice", "SELECT polymeter_create_roles()", "permission denied for function");
    // Calls of each function, with jobs and nodes of bob, and times before and after them.
    let calls = format!(
        "SELECT format('SELECT * FROM %s(%s)', oid::regproc, array_to_string(ARRAY(
             SELECT coalesce(CASE
                 WHEN proargnames[number] IN ('start_time', 'begin_at') THEN quote_literal('2020-01-01')
                 WHEN proargnames[number] IN ('end_time', 'end_at') THEN quote_literal(now())
                 WHEN proargnames[number] IN ('nodes', 'devices') THEN quote_literal(node)
                 WHEN proargnames[number] = 'metrics' THEN NULL
                 WHEN type = 'text'::regtype THEN quote_literal(job)
                 WHEN type IN ('int4'::regtype, 'int8'::regtype) THEN number_of_job
                 WHEN type = 'bool'::regtype THEN flag
                 WHEN type = 'jsonb'::regtype THEN quote_literal(jsonb_strip_nulls(jsonb_build_object('job_id', job)))
                 WHEN type = 'timestamptz'::regtype THEN quote_literal(date_trunc('day', now(), 'UTC') - interval '23 h')
             END, 'NULL')
             FROM unnest(proargtypes::oid[]) WITH ORDINALITY AS list (type, number) ORDER BY number), ', '))
         FROM pg_proc, (VALUES ('hidden', '41', NULL, 'false'), ('21', '21', NULL, 'true'), (NULL, NULL, 'n1,n2', 'false'))
             AS choice (job, number_of_job, node, flag)
         WHERE {of_store} AND prokind = 'f' AND prorettype <> 'trigger'::regtype AND has_function_privilege(oid, 'EXECUTE')"
    );
    let count = query_as(server, "alice", &format!("SELECT count(*) FROM ({calls}) AS calls"));
    assert!(count.parse::<u32>().unwrap() > 30, "{count}");
    assert_eq!(foreign_rows(server, &calls), Vec::<String>::new());
    // The same calls show a reader the job.
    server.query("GRANT polymeter_reader TO alice");
    let shown = foreign_rows(server, &calls);
    server.query("REVOKE polymeter_reader FROM alice");
    for function in [
        "get_metrics('hidden",
        "api.get_metrics('hidden",
        "polymeter_get_metrics('hidden",
        "available_metrics(",
    ] {
        assert!(shown.iter().any(|line| line.contains(function)), "{function}: {shown:?}");
    }
}

/// Runs the statements that the query `statements` returns as alice, whether they fail or not. Returns those
/// with rows that contain a name which belongs to others.
fn foreign_rows(server: &Server, statements: &str) -> Vec<String> {
    // The server shows the statement that runs: the expression does not match itself.
    let block = format!(
        "DO $block$
         DECLARE
             statement text;
             shown text;
         BEGIN
             FOR statement IN {statements} LOOP
                 BEGIN
                     EXECUTE format('SELECT min(line) FROM (SELECT rows::text AS line FROM (%s) AS rows) AS lines
                                     WHERE line ~ ''hidde[n]|unowne[d]|,bo[b],''', statement) INTO shown;
                 EXCEPTION WHEN OTHERS THEN
                     shown := NULL;
                 END;
                 IF shown IS NOT NULL THEN
                     RAISE WARNING 'shown by %: %', statement, shown;
                 END IF;
             END LOOP;
         END
         $block$"
    );
    let output = server.run_as("alice", "postgres", &block);
    assert!(output.status.success(), "{}", text(&output));
    text(&output).lines().filter(|line| line.contains("shown by")).map(str::to_owned).collect()
}

/// A function that tells its arguments, as cheap as can be, in conditions; and in an operator whose
/// selectivity the planner estimates by calling it with the most common values.
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
        ("metric_units", &["metric_id"]),
        ("energy_by_job", &["node", "part", "source", "devices"]),
        ("histograms_by_job", &["device_id", "metric_id", "labels::text"]),
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

fn told_about(server: &Server, job: &str, statement: &str) -> String {
    text(&server.run_as("alice", "postgres", &statement.replace("JOB", job))).replace(job, "JOB")
}

/// Neither plans nor errors tell a job of others from none.
fn assert_others_jobs_look_absent(server: &Server) {
    for statement in [
        "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) SELECT * FROM jobs WHERE job_id = 'JOB'",
        "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) SELECT * FROM nodetime_by_job WHERE job_id = 'JOB'",
        "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) SELECT * FROM metrics_by_job WHERE job_id = 'JOB' AND metric_id = 'cpu.usage'",
        "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) SELECT * FROM metrics_by_job WHERE job_id = 'JOB' AND value > 3",
        "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) SELECT * FROM histograms_by_job WHERE job_id = 'JOB' AND least > 3",
        "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) SELECT * FROM get_metrics(job => 'JOB')",
        "EXPLAIN SELECT * FROM jobs WHERE account = 'account of JOB'",
        "SELECT 1 / (value - 3)::int FROM metrics_by_job WHERE job_id = 'JOB'",
        "SELECT * FROM get_metrics(job => 'JOB', start_time => 'no time')",
        "SELECT * FROM available_metrics(params => '{\"job_id\": \"JOB\"}')",
    ] {
        assert_eq!(
            told_about(server, "hidden", statement),
            told_about(server, "absent", statement),
            "{statement}"
        );
    }
    let of_owner = "EXPLAIN SELECT * FROM jobs WHERE owner = 'JOB'";
    assert_eq!(
        told_about(server, "bob", of_owner),
        told_about(server, "eve", of_owner),
        "the number of bob's jobs"
    );
    assert!(
        query_as(
            server,
            "alice",
            "SELECT string_agg(tablename, ',') FROM pg_stats WHERE schemaname = 'public'"
        )
        .is_empty()
    );
}
