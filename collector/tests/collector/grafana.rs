//! Tests of the dashboards in `deploy/grafana`: each query runs as Grafana runs it, as a member of
//! `polymeter_reader`.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_analysis::gather::gather;
use polymeter_analysis::job_usage::{job_energy, job_usage};
use polymeter_store::JobUsageTable;
use polymeter_store::reader::Read;
use serde_json::Value;

use crate::energy::{ALICE, BEGIN_S, BOB, END_S, owned, record};
use crate::postgres::server;
use crate::sql_roles::store_of_users;
use crate::sql_views::{parts, run_with_plans, scanned_days};
use crate::support::agent::Agent;
use crate::support::grafana::Context;
use crate::support::server::Server;
use crate::support::sql::query_as;
use crate::support::{Kind, TestEnvironment, now_us};

polymeter_test_harness::tests![
    dashboards_are_valid,
    macros_are_expanded_as_by_grafana,
    dashboards_show_what_was_measured_on_postgresql,
    dashboards_show_what_was_measured_on_timescaledb,
    dashboards_read_their_time_on_postgresql,
    dashboards_read_their_time_on_timescaledb,
    menus_are_quick_and_harmless,
];

const DASHBOARDS: [(&str, &str); 5] = [
    ("cluster", include_str!("../../../deploy/grafana/dashboards/cluster.json")),
    ("user", include_str!("../../../deploy/grafana/dashboards/user.json")),
    ("job", include_str!("../../../deploy/grafana/dashboards/job.json")),
    ("node", include_str!("../../../deploy/grafana/dashboards/node.json")),
    ("health", include_str!("../../../deploy/grafana/dashboards/health.json")),
];

const DATA_SOURCE: &str = include_str!("../../../deploy/grafana/provisioning/datasources/polymeter.yaml");

struct Query {
    dashboard: &'static str,
    title: String,
    sql: String,
    is_time_series: bool,
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_else(|| panic!("{key}: {value}")).to_owned()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Queries of panels, variables and annotations.
fn queries() -> Vec<Query> {
    let mut queries = Vec::new();
    for (dashboard, json) in DASHBOARDS {
        let json: Value = serde_json::from_str(json).unwrap();
        let mut add = |title: String, sql: String, is_time_series| {
            queries.push(Query { dashboard, title, sql, is_time_series });
        };
        for panel in list(&json, "/panels") {
            for target in list(panel, "/targets") {
                add(text(panel, "title"), text(target, "rawSql"), target["format"] == "time_series");
            }
        }
        for variable in list(&json, "/templating/list").iter().filter(|variable| variable["type"] == "query")
        {
            add(text(variable, "name"), text(variable, "query"), false);
        }
        for annotation in list(&json, "/annotations/list") {
            if let Some(target) = annotation.get("target") {
                add(text(annotation, "name"), text(target, "rawSql"), false);
            }
        }
    }
    queries
}

fn dashboards_are_valid() {
    assert!(
        DATA_SOURCE.contains("uid: polymeter\n")
            && DATA_SOURCE.contains("type: grafana-postgresql-datasource\n")
    );
    let mut uids = BTreeSet::new();
    for (name, text_of_json) in DASHBOARDS {
        let json: Value = serde_json::from_str(text_of_json).unwrap();
        assert_eq!(text(&json, "uid"), format!("polymeter-{name}"));
        assert!(uids.insert(text(&json, "uid")) && text(&json, "title").starts_with("Polymeter: "));
        assert_eq!((&json["id"], json["schemaVersion"].as_u64()), (&Value::Null, Some(39)), "{name}");
        let mut ids = BTreeSet::new();
        let mut cells = BTreeSet::new();
        for panel in list(&json, "/panels") {
            let title = text(panel, "title");
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: {title}");
            assert!(["timeseries", "stat", "table"].contains(&text(panel, "type").as_str()), "{title}");
            assert!(text(panel, "description").ends_with('.'), "{title} has no description");
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
            assert!(w > 0 && h > 0 && x + w <= 24, "{title}");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(cells.insert(cell), "{name}: {title} overlaps another panel");
            }
            assert_eq!(list(panel, "/targets").len(), 1, "{title}");
            let target = &panel["targets"][0];
            for source in [&panel["datasource"], &target["datasource"]] {
                assert_eq!(source["uid"], "polymeter", "{title}");
                assert_eq!(source["type"], "grafana-postgresql-datasource", "{title}");
            }
            assert_eq!((target["rawQuery"].as_bool(), target["refId"].as_str()), (Some(true), Some("A")));
            let is_series = panel["type"] == "timeseries";
            assert_eq!(target["format"] == "time_series", is_series, "{title}");
            if is_series {
                // Intervals without samples are gaps.
                let sql = text(target, "rawSql");
                assert!(
                    sql.contains(",NULL)") || sql.contains(",previous)") || sql.contains(",0)"),
                    "{title}"
                );
                assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}");
            }
        }
        assert_links(&json, name);
    }
}

/// Links lead to dashboards that are there, with their variables, which are escaped.
fn assert_links(json: &Value, name: &str) {
    for panel in list(json, "/panels") {
        for rule in list(panel, "/fieldConfig/overrides") {
            for url in list(rule, "/properties").iter().flat_map(|property| list(property, "/value")) {
                let url = text(url, "url");
                let (target, arguments) = url.strip_prefix("/d/polymeter-").unwrap().split_once('?').unwrap();
                let (_, other) = DASHBOARDS.iter().find(|(name, _)| *name == target).unwrap();
                let other: Value = serde_json::from_str(other).unwrap();
                let variable = arguments.strip_prefix("var-").unwrap().split('=').next().unwrap();
                let variables = list(&other, "/templating/list");
                assert!(variables.iter().any(|of| of["name"] == variable), "{name}: {url}");
                assert!(arguments.contains(":percentencode}&"), "{name}: {url}");
                assert!(
                    arguments.contains("__url_time_range")
                        || arguments.contains("&from=") && arguments.contains("&to=")
                );
            }
        }
    }
}

fn context(from: &str, to: &str, kind: Kind) -> Context {
    let variables = [("job", "1"), ("node", "n1"), ("user", "alice"), ("metric", "cpu.usage")];
    Context {
        variables: variables.into_iter().map(|(name, value)| (name, vec![value.to_owned()])).collect(),
        from: from.to_owned(),
        to: to.to_owned(),
        interval_ms: 10_000,
        timescaledb: kind == Kind::Timescale,
    }
}

fn macros_are_expanded_as_by_grafana() {
    let mut context = context("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", Kind::Postgres);
    let is =
        |context: &Context, sql: &str, expected: &str| assert_eq!(context.expand(sql).unwrap(), expected);
    is(&context, "$__timeFilter(t)", "t BETWEEN '2026-01-01T00:00:00Z' AND '2026-01-02T00:00:00Z'");
    is(&context, "$__timeFrom() $__timeTo()", "'2026-01-01T00:00:00Z' '2026-01-02T00:00:00Z'");
    is(&context, "$__timeGroup(t, $__interval)", "floor(extract(epoch from t)/10)*10");
    is(&context, "$__timeGroup(t,'10s',NULL), v", "floor(extract(epoch from t)/10)*10 AS \"time\", v");
    is(&context, "$__interval_ms $__interval $1 ${job:sqlstring}", "10000 10000ms $1 '1'");
    context.variables = BTreeMap::from([("node", vec!["a'b".to_owned(), "${job:raw}".to_owned()])]);
    is(&context, "(${node:sqlstring})", "('a''b','${job:raw}')");
    context.timescaledb = true;
    is(&context, "$__timeGroupAlias(t,$__interval)", "time_bucket('10.000s',t) AS \"time\"");
    for refused in [
        "${node}",
        "${node:raw}",
        "$__timeGroup(f(t),$__interval)",
        "$__other(t)",
        "$__timeGroup(t,$__interval,x)",
    ] {
        assert!(context.expand(refused).is_err(), "{refused}");
    }
}

/// Runs a query as Grafana's role, checks the form of its result, and returns its rows.
fn run(server: &Server, query: &Query, context: &Context) -> Vec<Vec<String>> {
    let name = format!("{}: {}", query.dashboard, query.title);
    let sql = context.expand(&query.sql).unwrap_or_else(|error| panic!("{name}: {error}"));
    let columns = "SELECT string_agg(attname || ' ' || format_type(atttypid, NULL), ',' ORDER BY attnum) FROM pg_attribute
         WHERE attrelid = 'pg_temp.result'::regclass AND attnum > 0";
    let output = query_as(
        server,
        "grafana",
        &format!("CREATE TEMP TABLE result AS {sql}; {columns}; SELECT * FROM result"),
    );
    let mut lines = output.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_else(|| panic!("{name}")).split(',').collect();
    let rows: Vec<Vec<String>> = lines.map(|line| line.split('|').map(str::to_owned).collect()).collect();
    if query.is_time_series {
        let first = ["time timestamp with time zone", "time double precision", "time numeric"];
        assert!(first.contains(&columns[0]), "{name}: {columns:?}");
        let values = columns[1..]
            .iter()
            .filter(|column| {
                [" double precision", " bigint", " numeric"].iter().any(|of| column.ends_with(of))
            })
            .count();
        let labels = columns[1..].iter().filter(|column| **column == "metric text").count();
        assert!(values > 0 && values + labels == columns.len() - 1 && labels <= 1, "{name}: {columns:?}");
        assert!(rows.is_sorted_by(|one, next| one[0] <= next[0]), "{name}: {rows:?}");
    }
    rows
}

fn dashboards_show_what_was_measured_on_postgresql() {
    assert_measured(Kind::Postgres);
}

fn dashboards_show_what_was_measured_on_timescaledb() {
    assert_measured(Kind::Timescale);
}

/// Brings the rollups up to date with samples that arrived later than their computation.
fn recompute_rollups(server: &Server, kind: Kind) {
    if kind == Kind::Timescale {
        for relation in ["samples_10s", "samples_1min", "samples_1h"] {
            server.query(&format!("CALL refresh_continuous_aggregate('{relation}', NULL, NULL)"));
        }
    } else {
        server.query(
            "TRUNCATE rollup_10s, rollup_1min, rollup_1h, rollup_late;
             UPDATE rollup SET claimed_before = '-infinity', computed_before = '-infinity'",
        );
    }
}

/// Lets the first job have the four threads of two cores, and the other one four cores, and stores what their
/// reports say.
fn summarise(environment: &mut TestEnvironment) {
    environment.execute(
        "UPDATE job SET cores = 4, scheduler = 'slurm';
         UPDATE session SET node_cpus = 8, node_cores = CASE node WHEN 'n1' THEN 4 ELSE 8 END;
         UPDATE job_usage SET claimed_until = ended",
    );
    let mut summaries = JobUsageTable::open(&environment.url()).unwrap();
    for job in environment.jobs() {
        let report = gather(&mut environment.reader() as &mut dyn Read, &job, None).unwrap();
        let ended_us = job.ended_ns.unwrap() / 1000;
        summaries.put(job.job_key, ended_us, None, &job_usage(&report), &job_energy(&report)).unwrap();
    }
}

fn time(server: &Server, us: i64) -> String {
    server.query(&format!(
        "SET timezone = 'UTC'; SELECT to_char(to_timestamp({us} / 1e6), 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
    ))
}

fn assert_last_column(rows: &[Vec<String>], expected: f64) {
    let values: Vec<f64> = rows.iter().map(|row| row.last().unwrap().parse().unwrap()).collect();
    assert!(
        !values.is_empty() && values.iter().all(|value| (value / expected - 1.0).abs() < 0.01),
        "{expected}: {values:?}"
    );
}

fn assert_measured(kind: Kind) {
    let mut environment = TestEnvironment::new(kind);
    let collector = environment.collector();
    let begin_us = now_us() - 2 * 3600 * 1_000_000;
    let started_us = begin_us + BEGIN_S * 1_000_000;
    let jobs = [owned(1, "1", ALICE, started_us), owned(2, "2", BOB, started_us)];
    for (job, node, cores) in [(&jobs[0], "n1", 2), (&jobs[1], "n2", 3)] {
        let mut agent = Agent::to(&environment.context, &collector, node, cores);
        record(&mut agent, begin_us, &[(job, cores)], false);
    }
    collector.stop().unwrap();
    summarise(&mut environment);
    let server = server(&mut environment);
    recompute_rollups(server, kind);
    let hostile = "o'Brien \"<script>alert(1)</script>\" %41 $1 $$ ${node}";
    server.query(&format!(
        "CREATE ROLE grafana LOGIN IN ROLE polymeter_reader;
         UPDATE job SET owner = CASE job_id WHEN '1' THEN 'alice' ELSE '{}' END",
        hostile.replace('\'', "''")
    ));
    // Times are cut to seconds: the jobs end before the last one.
    let mut context =
        context(&time(server, started_us), &time(server, begin_us + (END_S + 1) * 1_000_000), kind);
    let queries = queries();
    let of = |dashboard: &str, title: &str, context: &Context| {
        let query =
            queries.iter().find(|query| query.dashboard == dashboard && query.title == title).unwrap();
        run(server, query, context)
    };
    for query in &queries {
        run(server, query, &context);
    }
    let cores = of("job", "Cores used", &context);
    assert!(cores.len() >= 59 && cores.iter().all(|row| row[1] == "n1"), "{cores:?}");
    assert_last_column(&cores, 2.0);
    assert_last_column(&of("job", "Chosen metrics: $metric", &context), 2.0);
    assert_last_column(&of("job", "Mean cores used", &context), 2.0);
    assert_last_column(&of("job", "Energy", &context), 150.0 * 600.0);
    let (package, other): (Vec<_>, Vec<_>) =
        of("node", "Power", &context).into_iter().partition(|row| row[1] == "node.energy.package 0");
    assert_last_column(&package, 100.0);
    assert_last_column(&other, 50.0);
    let parts = of("job", "Energy by part", &context);
    assert_eq!((parts.len(), parts[0][1].as_str(), parts[0][4].as_str()), (1, "processors", "measured"));
    assert_last_column(&of("node", "Busy cores", &context), 4.0);
    assert_last_column(&of("cluster", "Busy cores of nodes", &context), 8.0);
    assert_last_column(&of("user", "Core hours used", &context), 2.0 * 600.0 / 3600.0);
    assert_last_column(&of("user", "CPU efficiency", &context), 1.0);
    assert_eq!(of("cluster", "Jobs", &context).len(), 2);
    assert_eq!(of("job", "node", &context), [["n1"]]);
    // A user whose name has quotes, tags and variables. Grafana itself replaces macros in values, which no
    // quoting prevents.
    context.variables.insert("user", vec![hostile.to_owned()]);
    assert_last_column(&of("user", "Requested cores", &context)[..1], 4.0);
    assert_eq!(of("user", "Jobs", &context), [["1"]]);
    assert_last_column(&of("user", "Core hours used", &context), 3.0 * 600.0 / 3600.0);
    assert_last_column(&of("user", "CPU efficiency", &context), 0.75);
    assert_hostile_values(server, &queries, context, hostile);
}

/// No query fails without values, with several, and with values that are hostile or do not exist.
fn assert_hostile_values(server: &Server, queries: &[Query], mut context: Context, hostile: &str) {
    for values in [
        vec![],
        vec![hostile.to_owned(), "n1".to_owned()],
        vec![hostile.to_owned()],
        vec!["\\';--".to_owned()],
    ] {
        for name in ["node", "metric"] {
            context.variables.insert(name, values.clone());
        }
        for name in ["job", "user"] {
            context.variables.insert(name, vec![values.first().cloned().unwrap_or_default()]);
        }
        for query in queries.iter().filter(|query| !(values.len() != 1 && query.dashboard == "node")) {
            run(server, query, &context);
        }
    }
}

fn dashboards_read_their_time_on_postgresql() {
    assert_reads_are_bounded(Kind::Postgres);
}

fn dashboards_read_their_time_on_timescaledb() {
    assert_reads_are_bounded(Kind::Timescale);
}

/// No query reads a chunk or partition of samples outside of the time range.
fn assert_reads_are_bounded(kind: Kind) {
    let mut environment = store_of_users(kind);
    let server = server(&mut environment);
    let parts = parts(server, kind);
    let of_job = |select: &str| {
        server.query(&format!("SET timezone = 'UTC'; SELECT {select} FROM job WHERE job_id = '20'"))
    };
    let format = "'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'";
    let day = of_job("to_char(started, 'YYYYMMDD')");
    let mut context = context(
        &of_job(&format!("to_char(started, {format})")),
        &of_job(&format!("to_char(ended, {format})")),
        kind,
    );
    context.variables.insert("job", vec!["20".to_owned()]);
    // Each resolution has the same increase, and the same rate where the job fills the intervals. A chart has
    // seconds, the store nanoseconds.
    for (step, rates) in [("1 s", true), ("10 s", true), ("1 min", true), ("1 h", false)] {
        let rates = if rates { "min(round(value * 600e9)), max(round(value * 600e9))" } else { "1, 1" };
        let select = format!(
            "SELECT round(sum(increase) * 1e9), {rates} FROM job CROSS JOIN LATERAL samples_chart('{{cpu.usage}}', ARRAY[job_key], '{{n2}}',
                 started - interval '1 h', ended + interval '1 h', '{step}') WHERE job.job_id = '41'"
        );
        assert_eq!(query_as(server, "grafana", &select), "6|1|1", "{step}");
    }
    let mut days = BTreeSet::new();
    for query in queries() {
        let (_, plans) = run_with_plans(server, "grafana", &context.expand(&query.sql).unwrap());
        let found = scanned_days(&plans, &parts);
        assert!(found.iter().all(|found| *found == day), "{}: {}: {plans}", query.dashboard, query.title);
        days.extend(found);
    }
    assert_eq!(days, BTreeSet::from([day]), "samples are read at all");
}

/// Queries of variables read few of 100,000 jobs, and offer no value that Grafana would take for a macro: a
/// panel fails with one.
fn menus_are_quick_and_harmless() {
    let mut environment = store_of_users(Kind::Postgres);
    let server = server(&mut environment);
    server.query(
        "INSERT INTO job (job_id, owner, owner_uid, started, ended)
         SELECT 'many' || number, 'user' || number % 50, number % 50, now() - interval '1 h', now() FROM generate_series(1, 100000) AS number;
         INSERT INTO job (job_id, owner, started) VALUES ('1', 'a$__timeFrom()', now());
         INSERT INTO node (node, first_seen) VALUES ('n$unknown(x)', now());
         INSERT INTO job_node (job_key, node, started) SELECT job_key, node, now() FROM job, (VALUES ('n1'), ('n$__timeTo()')) AS of (node)
         WHERE owner = 'a$__timeFrom()';
         ANALYZE",
    );
    let context = context("2026-01-01T00:00:00Z", "2100-01-01T00:00:00Z", Kind::Postgres);
    let mut offered = Vec::new();
    for (dashboard, json) in DASHBOARDS {
        let json: Value = serde_json::from_str(json).unwrap();
        for variable in list(&json, "/templating/list").iter().filter(|of| of["type"] == "query") {
            let name = format!("{dashboard}: {}", text(variable, "name"));
            let sql = context.expand(&text(variable, "query")).unwrap();
            let (values, plans) = run_with_plans(server, "grafana", &sql);
            let read: u64 = plans
                .lines()
                .filter_map(|line| {
                    let (_, actual) = line.split_once("(actual rows=")?;
                    let (rows, loops) = actual.trim_end_matches(')').split_once(" loops=")?;
                    Some(rows.parse::<u64>().unwrap() * loops.parse::<u64>().unwrap())
                })
                .sum();
            assert!((1..2000).contains(&read), "{name}: {read} rows: {plans}");
            assert!(!values.contains('$'), "{name}: {values}");
            offered.push((name, values.lines().count()));
        }
    }
    let count = |name: &str| offered.iter().find(|(of, _)| of == name).map(|(_, count)| *count);
    // Two users have jobs before.
    assert_eq!(count("user: user"), Some(52), "{offered:?}");
    assert_eq!(count("job: node"), Some(1), "{offered:?}");
}
