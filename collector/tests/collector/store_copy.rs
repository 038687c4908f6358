//! Tests of the copy of a store: from a file into a database and back, nothing is lost or changed.

use polymeter_store::StoreUrl;
use polymeter_store::reader::{Reader, SeriesScope};
use rusqlite::Connection;

use crate::reading::Fixture;
use crate::support::{Kind, TestEnvironment};

polymeter_test_harness::tests![a_store_survives_the_way_through_a_database];

/// Columns that are not copied.
const OF_ONE_STORE: [(&str, &str); 3] =
    [("session", "collector_id"), ("job_end", "claimed_until"), ("job_usage", "claimed_until")];

/// Sorted rows of all tables that are copied.
fn contents(file: &std::path::Path) -> Vec<(String, Vec<String>)> {
    let database = Connection::open(file).unwrap();
    let left_out = "'store_version', 'collector', 'control_request', 'control_answer', 'api_token', 'straggler_part', 'straggler_firing', 'clock_check', 'rollup',
        'rollup_10s', 'rollup_1min', 'rollup_1h'";
    let tables = list(
        &database,
        &format!(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ({left_out}) ORDER BY name"
        ),
    );
    let relations = ["samples_10s", "samples_1min", "samples_1h"].map(str::to_owned);
    tables
        .into_iter()
        .chain(relations)
        .map(|table| {
            let columns = list(&database, &format!("SELECT name FROM pragma_table_info('{table}')"));
            let columns =
                columns.iter().filter(|column| !OF_ONE_STORE.contains(&(table.as_str(), column.as_str())));
            let row: Vec<String> = columns.map(|column| format!("quote({column})")).collect();
            let rows =
                list(&database, &format!("SELECT {} FROM {table} ORDER BY 1", row.join(" || ' ' || ")));
            (table, rows)
        })
        .collect()
}

fn list(database: &Connection, sql: &str) -> Vec<String> {
    let mut statement = database.prepare(sql).unwrap();
    statement.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Gives each column of each table that is copied a value of its type in at least one row.
fn fill_columns(file: &std::path::Path) {
    let database = Connection::open(file).unwrap();
    database
        .execute_batch(
            "INSERT INTO job_usage (job_key, ended) SELECT job_key, ended FROM job WHERE ended IS NOT NULL ON CONFLICT DO NOTHING;
             INSERT INTO job_usage (job_key, ended) SELECT min(job_key), 5000 FROM job WHERE true ON CONFLICT DO NOTHING;
             INSERT INTO job_energy SELECT min(job_key), 'n1', 'node', 'power', 'meter1', 5, 1, 0.5, true, false FROM job;
             INSERT INTO notice (rule, about, job_key, recipient, subject, text, created) VALUES ('idle', 'job 1', 1, 'a', 'b', 'c', 5000);
             INSERT INTO notice_opt_out VALUES (1001, '*');
             INSERT INTO loss SELECT 5000, node, session_id, NULL, 3, 'clock', 4000, 5000, NULL FROM session LIMIT 1;
             INSERT INTO plan_change_set (digest) VALUES ('d');
             INSERT INTO plan_change_set_member SELECT max(set_id), 0, 'm', NULL, NULL, NULL, NULL FROM plan_change_set;
             INSERT INTO plan_change_event (time, set_id, node, cause) SELECT 5000, max(set_id), 'n1', 'lease' FROM plan_change_set;
             INSERT INTO trigger_firing (trigger_id, job_key, node, time, rule, why, actions) VALUES (1, 1, 'n1', 5000, 'oom', 'w', 'a');
             INSERT INTO mark (time, node, job_key, name) VALUES (5000, 'n1', 1, 'm');",
        )
        .unwrap();
    for (table, _) in contents(file) {
        let columns = format!("SELECT name, type FROM pragma_table_info('{table}')");
        let mut columns = database.prepare(&columns).unwrap();
        let columns: Vec<(String, String)> = columns
            .query_map((), |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        for (column, kind) in columns {
            let has_none = format!("SELECT count(*) = 0 FROM {table} WHERE {column} IS NOT NULL");
            if !database.query_row(&has_none, (), |row| row.get::<_, bool>(0)).unwrap() {
                continue;
            }
            let value = match kind.as_str() {
                "REAL" => "1.5",
                "INTEGER" => "7000",
                _ if column == "role" => "'part'",
                // Text, and JSON.
                _ => "'{}'",
            };
            let rows = database.execute(&format!("UPDATE {table} SET {column} = {value}"), ()).unwrap();
            assert!(rows > 0, "{table} has a row");
        }
    }
}

fn a_store_survives_the_way_through_a_database() {
    let mut source = TestEnvironment::new(Kind::Sqlite);
    let fixture = Fixture::new(&source);
    fixture.collector.stop().unwrap();
    // Retention has removed the samples of the first hours, of which summaries are left, except for one of a
    // kept job. A sample is no number.
    source.execute(
        "INSERT INTO samples (rowid, time, series_id, value) VALUES (-1, 1000, 1, NULL);
         INSERT INTO samples (rowid, time, series_id, value, count, min, max, sum) VALUES (-2, 7200000000000, 1, 3.0, 1, 3, 3, 3);
         INSERT INTO rollup_10s (series_id, time, count, min, max, sum, first_time, first, last_time, last, rate_min, rate_max)
             VALUES (1, 0, 7, 1, 2, 9, 0, 1, 9999999999, 2, 0.5, 1.5), (1, 7200000000000, 1, 3, 3, 3, 7200000000000, 3, 7209999999999, 3, NULL, NULL);
         INSERT INTO rollup_1min (series_id, time, count, min, max, sum, parts, first_time, first, last_time, last, rate_min, rate_max)
             VALUES (1, 0, 7, 1, 2, 9, 6, 0, 1, 59999999999, 2, 0.5, 1.5), (1, 7200000000000, 1, 3, 3, 3, 1, 7200000000000, 3, 7259999999999, 3, NULL, NULL);
         INSERT INTO rollup_1h (series_id, time, count, min, max, sum, parts, first_time, first, last_time, last, rate_min, rate_max)
             VALUES (1, 0, 7, 1, 2, 9, 6, 0, 1, 3599999999999, 2, 0.5, 1.5), (1, 7200000000000, 1, 3, 3, 3, 1, 7200000000000, 3, 10799999999999, 3, NULL, NULL);
         UPDATE retention SET dropped_before = 10800000000000 WHERE relation = 'samples';
         INSERT INTO kept_job VALUES (1, 5000, NULL, 1);
         INSERT INTO samples_quarantine (time, series_id, value, received) VALUES (5000, 2, 1.5, 6000);
         INSERT INTO stack_function VALUES (1, -7, 'f;g', NULL), (1, 8, NULL, '[kernel]');
         INSERT INTO stack_node VALUES (1, 5, NULL, -7), (1, -6, 5, 8);
         INSERT INTO stack_interval VALUES (1, 5000, -9, 'n1', 'stacks.cpu', 1000000, 10000, 3, 1, 2, 0, 1);
         INSERT INTO stack_sample VALUES (1, 5000, -9, 4294967295, -6, 3);
         INSERT INTO window_histogram VALUES (1, 5000, 1, 18446744073709551616.0, 7);
         INSERT INTO kept_interval VALUES (1, 'n1', 5000, 7000, -9, 'OOM kill', 2);
         INSERT INTO trigger_firing VALUES (-9, 1, 'n1', 6000, 'oom', NULL, 5000, 7000, 'why', 'keeps 0 s', 2, '{\"n2\":\"no answer\"}');
         INSERT INTO kept_sample VALUES (5000, 1, 2.5), (6000, 1, 3.5);
         INSERT INTO job_end (job_key, noticed, attempts) VALUES (2, 7000, 1);
         UPDATE rollup SET final_before = 10800000000000",
    );
    let file = source.url();
    fill_columns(file.file().unwrap());
    let database = TestEnvironment::new(Kind::Postgres);
    let directory = tempfile::tempdir().unwrap();
    let back = directory.path().join("back.db");
    let mut tables = Vec::new();
    let copied =
        polymeter_store::copy(&source.url(), &database.url(), &mut |table, _| tables.push(table)).unwrap();
    let rows = |name: &str| copied.tables.iter().find(|(table, _)| *table == name).unwrap().1;
    assert_eq!((rows("job"), rows("samples_quarantine"), rows("rollup_1h")), (3, 1, 2), "{copied:?}");
    assert!(tables.contains(&"samples") && copied.ledger_stored > 0, "{copied:?}");
    assert_eq!(rows("samples"), u64::try_from(copied.ledger_stored).unwrap() + 2);
    assert_eq!((copied.in_call_stacks, rows("kept_interval"), rows("kept_sample")), (3, 1, 2));
    // The database has the same relations for readers.
    let mut readers = [&source.url(), &database.url()].map(|url| Reader::open(url).unwrap());
    let jobs =
        readers.each_mut().map(|reader| reader.jobs(&polymeter_store::reader::JobFilter::default()).unwrap());
    assert_eq!(jobs[0], jobs[1]);
    let firings = readers.each_mut().map(|reader| reader.firings(1).unwrap());
    assert_eq!((firings[0].len(), &firings[0]), (3, &firings[1]));
    for job in &jobs[0] {
        let series = readers.each_mut().map(|reader| reader.series(SeriesScope::Job(job.job_key)).unwrap());
        assert_eq!(series[0], series[1]);
        assert!(!series[0].is_empty());
    }
    for relation in ["samples_10s", "samples_1min", "samples_1h", "ledger_balance"] {
        let count = format!("SELECT count(*) FROM {relation}");
        assert_eq!(database.number(&count), source.number(&count), "{relation}");
    }
    // Keys that are assigned later are new ones.
    let next = "INSERT INTO job (job_id, started) VALUES ('next', now()) RETURNING job_key > (SELECT max(job_key) FROM job)";
    assert_eq!(database.lines(&format!("BEGIN; {next}; ROLLBACK"))[0], "t");
    polymeter_store::copy(&database.url(), &StoreUrl::sqlite(&back), &mut |_, _| ()).unwrap();
    for ((table, before), (_, after)) in contents(file.file().unwrap()).into_iter().zip(contents(&back)) {
        assert_eq!(before, after, "{table}");
    }
    // A store with data is left as it is.
    for target in [database.url(), StoreUrl::sqlite(&back)] {
        let refused = polymeter_store::copy(&source.url(), &target, &mut |_, _| ()).unwrap_err().to_string();
        assert!(refused.contains("it is not empty"), "{refused}");
    }
    let missing = StoreUrl::sqlite(directory.path().join("none.db"));
    let target = directory.path().join("untouched.db");
    polymeter_store::copy(&missing, &StoreUrl::sqlite(&target), &mut |_, _| ()).unwrap_err();
    assert!(!target.exists(), "nothing is made without a source");
}
