//! Plans of the statements that remove old rows from PostgreSQL: none reads a large table as a whole. The
//! server records the plan of each statement as it runs. The plans of SQLite are tested in
//! `store/src/sqlite/removal_tests.rs`.

use std::time::Duration;

use polymeter_collector::{Collector, CollectorConfig};
use polymeter_store::{Administration, Keep, Retention, prune, set_retention};

use crate::plans::{JOBS, LARGE, fill};
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

polymeter_test_harness::tests![postgres_removes_through_indexes, timescaledb_removes_through_indexes];

const DAY_US: i64 = 86_400 * 1_000_000;

/// A day after the chunks and partitions of all levels with the three weeks of jobs, of which one has 28
/// days.
const CUTOFF_US: i64 = (1_767_225_600 + 60 * 86_400) * 1_000_000;

/// Makes a server log the plan of each statement, after the name of the program that runs it.
pub(crate) const LOG_PLANS: &str = "session_preload_libraries = 'auto_explain'\nauto_explain.log_min_duration = 0\n\
    auto_explain.log_nested_statements = on\nlog_min_messages = log\nlog_line_prefix = 'from %a: '\n";

fn postgres_removes_through_indexes() {
    assert_no_large_table_is_scanned(Kind::Postgres);
}

fn timescaledb_removes_through_indexes() {
    assert_no_large_table_is_scanned(Kind::Timescale);
}

/// Plans that the server logged since `begin`, except for those of the tests' own queries.
pub(crate) fn plans_since(log: &std::path::Path, begin: usize) -> Vec<String> {
    let log = std::fs::read_to_string(log).unwrap();
    let entries = log[begin..].split("\nfrom ");
    entries
        .filter(|entry| entry.contains("Query Text: ") && !entry.starts_with("psql: "))
        .map(str::to_owned)
        .collect()
}

fn assert_no_large_table_is_scanned(kind: Kind) {
    let mut environment = TestEnvironment::new(kind);
    fill(&mut environment);
    // The sessions have ended, and the statistics are those of an hour ago, as they are when the maintenance
    // runs.
    environment.execute("UPDATE session SET ended = last_seen");
    environment.execute("VACUUM (ANALYZE)");
    let days = u32::try_from((now_us() - CUTOFF_US) / DAY_US).unwrap();
    let keep = Keep::Days(days);
    let retention = Retention { samples: keep, ten_seconds: keep, minute: keep, hour: keep };
    set_retention(&environment.url(), &retention).unwrap();
    Administration::open(&environment.url()).unwrap().keep(500, None).unwrap();
    let server = environment.server.as_mut().unwrap();
    server.configure(LOG_PLANS);
    server.restart();
    let log = server.socket_directory().join("log");
    let begin = std::fs::read_to_string(&log).unwrap().len();
    let url = environment.url();
    let due = Administration::open(&url).unwrap().due(None).unwrap();
    assert!(due.len() > 10, "{due:?}");
    let mut removed = 0;
    prune(&url, None, |_, _| removed += 1).unwrap();
    assert!(removed >= due.len(), "{removed}");
    let config = CollectorConfig {
        retention: Some(retention),
        commit_interval: Duration::from_millis(20),
        ..environment.config()
    };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let left = |select: &str| environment.number(select);
    wait_until("the metadata is removed", || left("SELECT count(*) FROM session") < JOBS);
    collector.stop().unwrap();
    assert!(left("SELECT count(*) FROM series_block WHERE job_key IS NOT NULL") < JOBS);
    assert_eq!(left("SELECT count(*) FROM series WHERE job_key = 500"), 2, "it is kept");
    let plans = plans_since(&log, begin);
    for table in ["series_block", "ledger_line", "plan_change_event", "mark", "loss", "session"] {
        assert!(plans.iter().any(|plan| plan.contains(&format!("Delete on {table}"))), "{table}");
    }
    let scans = plans.iter().filter(|plan| {
        let mut tables = LARGE.iter().chain(&["rollup_1h"]);
        tables.any(|table| [" ", "\n"].iter().any(|end| plan.contains(&format!("Seq Scan on {table}{end}"))))
    });
    let scans: Vec<_> = scans.cloned().collect();
    assert!(scans.is_empty(), "{}", scans.join("\n"));
}
