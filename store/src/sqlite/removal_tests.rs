//! Tests of the removal of rows: which series it visits, and that no statement reads a large table from begin
//! to end.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::retention::REMOVAL;
use crate::backend::Connection;
use crate::removal::{metadata, remove_due, write};
use crate::retention::{Keep, Retention};
use crate::stop::Stop;
use crate::testing::Observed;
use crate::value::Value;

/// Tables that a statement may read as a whole: they have one row, or one for each level of resolution, kept
/// job or list that jobs share, or are made by the statement itself.
const SMALL: [&str; 14] = [
    "buckets",
    "retention",
    "clock_check",
    "rollup",
    "kept_job",
    "delta",
    "json_each",
    "next_block",
    "next_row",
    "CONSTANT",
    "series_shape",
    "series_shape_member",
    "plan_change_set",
    "plan_change_set_member",
];

/// Two old jobs, one of which is kept, and one that was; a job of today; their nodes. The day is the number
/// of days before now.
const JOBS: &str = "
    CREATE TEMP TABLE run AS
        SELECT column1 AS job_key, column2 AS node, (strftime('%s', 'now') - column3 * 86400) * 1000000000 AS started
        FROM (VALUES (1, 'n1', 100), (2, 'n1', 90), (3, 'n2', 80), (4, 'n2', 0));
    INSERT INTO node SELECT DISTINCT node, 0 FROM run;
    INSERT INTO job (job_key, job_id, started, ended) SELECT job_key, job_key, started, started + 1000000000 FROM run;
    INSERT INTO job_node (job_key, node, started, ended) SELECT job_key, node, started, started + 1000000000 FROM run;
    INSERT INTO series_shape VALUES (1, 'a');
    INSERT INTO series_shape_member (shape_id, position, metric, labels) VALUES (1, 0, 'm1', '{}'), (1, 1, 'm2', '{}');
    INSERT INTO series_block SELECT job_key * 10, 1, job_key, node, job_key, NULL FROM run;
    INSERT INTO series_block VALUES (100, 1, NULL, 'n1', NULL, NULL), (110, 1, NULL, 'n2', NULL, NULL);
    INSERT INTO samples (time, series_id, value) SELECT started, first_id + position, 1 FROM run JOIN series_block USING (job_key), series_shape_member ORDER BY 1, 2;
    INSERT INTO samples (time, series_id, value) SELECT started, first_id + position, 1 FROM run JOIN series_block USING (node), series_shape_member
        WHERE series_block.job_key IS NULL ORDER BY 1, 2;
    INSERT INTO kept_job VALUES (2, 0, NULL, 1), (3, 0, 1, 1);
    INSERT INTO session (session_id, node, agent_version, started, last_sequence, last_seen, ended) SELECT job_key, node, '', started, 1, started, started FROM run;
    INSERT INTO ledger_source VALUES (1, 'stat');
    INSERT INTO ledger_line (session_key, job_key, source_id) SELECT session_key, session_key, 1 FROM session;
    INSERT INTO loss (time, node, session_id, samples, reason, first_time, last_time) SELECT started, node, '1', 1, 'clock', started, started FROM run;
    INSERT INTO mark (time, node, name) SELECT started, node, 'm' FROM run;
    INSERT INTO plan_change_set VALUES (1, 'a');
    INSERT INTO plan_change_set_member VALUES (1, 0, 'm1', NULL, 1, NULL, NULL);
    INSERT INTO plan_change_event (time, set_id, node, cause) SELECT started, 1, node, 'baseline' FROM run;";

#[derive(Default)]
struct Observations {
    /// Statements that read a large table as a whole, with their plans.
    scans: Vec<String>,
    series: BTreeSet<i64>,
    statements: usize,
}

impl Observations {
    fn add(&mut self, connection: &mut dyn Connection, statement: &str, parameters: &[Value<'_>]) {
        self.statements += 1;
        if let (true, Some(Value::Integer(series_id))) =
            (statement.starts_with("DELETE FROM samples AS old"), parameters.first())
        {
            self.series.insert(*series_id);
        }
        if ["CREATE", "PRAGMA"].iter().any(|begin| statement.starts_with(begin)) {
            return;
        }
        let plan: Vec<((i64, i64, i64), String)> =
            connection.select(&format!("EXPLAIN QUERY PLAN {statement}"), parameters).unwrap();
        let lines: Vec<String> = plan.into_iter().map(|(_ids, line)| line).collect();
        // Rows that the statement itself computes, of which the plan has the source.
        let by_itself = ["CO-ROUTINE ", "MATERIALIZE "];
        let computed: Vec<&str> = lines
            .iter()
            .filter_map(|line| by_itself.iter().find_map(|begin| line.strip_prefix(begin)))
            .collect();
        let is_scan = lines.iter().any(|line| {
            let table = line.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
            table.is_some_and(|table| {
                !SMALL.contains(&table) && !computed.contains(&table) && !table.starts_with("temp.")
            })
        });
        if is_scan {
            self.scans.push(format!("{statement}\n{}", lines.join("\n")));
        }
    }
}

/// Returns a store with the jobs, and the observations of its connection.
fn store() -> (tempfile::TempDir, Observed<'static>, Arc<Mutex<Observations>>) {
    let (directory, connection) = super::new_store();
    let path = directory.path().join("store.db");
    rusqlite::Connection::open(path).unwrap().execute_batch(JOBS).unwrap();
    let observations = Arc::new(Mutex::new(Observations::default()));
    let observer = Arc::clone(&observations);
    let connection = Observed::new(connection, move |connection, statement, parameters| {
        observer.lock().unwrap().add(connection, statement, parameters);
    });
    (directory, connection, observations)
}

fn number(connection: &mut dyn Connection, select: &str) -> i64 {
    connection.select_one(select, &[]).unwrap()
}

const TEN_DAYS: Keep = Keep::Days(10);

#[test]
fn no_large_table_is_read_as_a_whole() {
    let (_directory, mut connection, observations) = store();
    let connection = &mut connection;
    let all = Retention { samples: TEN_DAYS, ten_seconds: TEN_DAYS, minute: TEN_DAYS, hour: TEN_DAYS };
    write(connection, &all).unwrap();
    for _ in 0..2 {
        remove_due(connection, &Stop::default(), &REMOVAL).unwrap();
        (metadata::REMOVE.run)(connection, &Stop::default()).unwrap();
    }
    let seen = std::mem::take(&mut *observations.lock().unwrap());
    assert!(seen.statements > 100, "{}", seen.statements);
    assert!(seen.scans.is_empty(), "{}", seen.scans.join("\n\n"));
    // Job 2 is kept, as are its node's samples while it ran; job 4 and its node's samples are of today.
    for table in ["samples", "rollup_10s", "rollup_1h"] {
        assert_eq!(number(connection, &format!("SELECT count(*) FROM {table}")), 8, "{table}");
    }
    let jobs = "SELECT sum(job_key) FROM series_block WHERE job_key IS NOT NULL";
    assert_eq!(number(connection, jobs), 2 + 3 + 4, "an exemption that ended keeps the names of the series");
    // The record of the kept job's node stays, and that of today; so does the last change of plan before the
    // limit.
    assert_eq!(number(connection, "SELECT count(*) FROM mark"), 3);
    assert_eq!(number(connection, "SELECT count(*) FROM plan_change_event"), 3);
}

#[test]
fn a_removal_visits_the_jobs_that_have_become_old() {
    let (_directory, mut connection, observations) = store();
    let connection = &mut connection;
    let removed_with = |connection: &mut dyn Connection, days| {
        write(connection, &Retention { samples: Keep::Days(days), ..Retention::FOREVER }).unwrap();
        remove_due(connection, &Stop::default(), &REMOVAL).unwrap();
        std::mem::take(&mut observations.lock().unwrap().series)
    };
    // Job 1 and all nodes.
    assert_eq!(removed_with(connection, 95), [10, 11, 100, 101, 110, 111].into());
    assert_eq!(removed_with(connection, 95), [].into(), "nothing has become old since");
    // Job 3, and not job 1 again. Job 2 is kept.
    assert_eq!(removed_with(connection, 75), [30, 31, 100, 101, 110, 111].into());
    assert_eq!(number(connection, "SELECT count(*) FROM samples"), 8);
    // Without the exemption job 2 is removed.
    connection.execute("DELETE FROM kept_job", &[]).unwrap();
    connection.execute("UPDATE retention SET complete_before = 1", &[]).unwrap();
    assert!(removed_with(connection, 75).is_superset(&[20, 21].into()));
    assert_eq!(number(connection, "SELECT count(*) FROM samples"), 4);
}
