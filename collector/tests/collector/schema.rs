//! Tests of the versions of the schema, in each kind of store.

use std::thread;

use polymeter_collector::{Collector, CollectorStartError};
use polymeter_store::reader::Reader;
use polymeter_store::{
    Administration, ControlTable, JobEndQueue, Migration, OpenOptions, Retention, SCHEMA_VERSION, Store,
    StoreError, StoreUrl, TokenTable, prune, set_retention,
};

use crate::support::agent::Agent;
use crate::support::{TestEnvironment, now_us};
use crate::time_range::{quarantine_config, send_with_skewed_clock};

scenarios! {
    collectors_migrate_a_store_with_data_once,
    a_new_store_gets_the_newest_version,
    a_failed_migration_changes_nothing,
    refuses_a_newer_schema,
    refuses_the_tables_of_a_development_revision,
}

const LATER: &[Migration] = &[Migration {
    sqlite: "ALTER TABLE job ADD COLUMN colour text;
        UPDATE job SET colour = 'red';
        CREATE TABLE run_of_migration (number integer);
        INSERT INTO run_of_migration VALUES (1);",
    postgres: "ALTER TABLE job ADD COLUMN colour text;
        UPDATE job SET colour = 'red';
        CREATE TABLE run_of_migration (number integer);
        INSERT INTO run_of_migration VALUES (1);",
}];

const FAILING: &[Migration] = &[Migration {
    sqlite: "CREATE TABLE run_of_migration (number integer); INSERT INTO run_of_migration VALUES (1, 2);",
    postgres: "CREATE TABLE run_of_migration (number integer); INSERT INTO run_of_migration VALUES (1, 2);",
}];

/// Rows of the views that have the samples and their counts, each as text.
const ROWS: [&str; 2] = [
    "SELECT CAST(timestamp AS text) || '|' || device_id || '|' || metric_id || '|' || CAST(value AS text) || '|' || job_id
     FROM metrics_by_job ORDER BY 1",
    "SELECT source || '|' || due || '|' || taken || '|' || stored || '|' || quarantined || '|' || unknown
     FROM ledger_balance ORDER BY 1",
];

/// Puts some of the samples into quarantine.
fn fill(environment: &TestEnvironment) {
    let collector = Collector::start(&quarantine_config(environment), &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 21);
    send_with_skewed_clock(&mut agent, now_us());
    agent.wait_until_acknowledged();
    assert_eq!(collector.stop().unwrap().quarantined, 3);
}

fn open(environment: &TestEnvironment, later_migrations: &'static [Migration]) -> Result<Store, StoreError> {
    let config = environment.config();
    let options = OpenOptions {
        timescale: config.timescaledb,
        citus: config.citus,
        may_create: true,
        later_migrations,
        ..OpenOptions::default()
    };
    Store::open(&environment.url(), &options)
}

fn versions(environment: &TestEnvironment) -> Vec<String> {
    environment.lines("SELECT CAST(version AS text) FROM store_version ORDER BY version")
}

fn collectors_migrate_a_store_with_data_once(environment: &mut TestEnvironment) {
    fill(environment);
    let before = ROWS.map(|select| environment.lines(select));
    assert_eq!(before[1], ["stat|12|9|6|3|0"]);
    assert!(!before[0].is_empty());
    thread::scope(|scope| {
        let openings = [0; 4].map(|_| scope.spawn(|| open(environment, LATER).map(drop)));
        for opening in openings {
            opening.join().unwrap().unwrap();
        }
    });
    let expected: Vec<_> = (1..=SCHEMA_VERSION + 1).map(|version| version.to_string()).collect();
    assert_eq!(versions(environment), expected);
    assert_eq!(environment.number("SELECT count(*) FROM run_of_migration"), 1);
    assert_eq!(environment.number("SELECT count(*) FROM job WHERE colour = 'red'"), 1);
    assert_eq!(ROWS.map(|select| environment.lines(select)), before);
    // The program that knows the version writes on; this one refuses it.
    open(environment, LATER).unwrap().check().unwrap();
    expect_refusals(environment, |error| matches!(error, StoreError::NewerSchema { .. }));
}

fn a_new_store_gets_the_newest_version(environment: &mut TestEnvironment) {
    thread::scope(|scope| {
        let openings = [0; 2].map(|_| scope.spawn(|| open(environment, LATER).map(drop)));
        for opening in openings {
            opening.join().unwrap().unwrap();
        }
    });
    let expected: Vec<_> = (1..=SCHEMA_VERSION + 1).map(|version| version.to_string()).collect();
    assert_eq!(versions(environment), expected);
    assert_eq!(environment.number("SELECT count(*) FROM run_of_migration"), 1);
}

fn a_failed_migration_changes_nothing(environment: &mut TestEnvironment) {
    fill(environment);
    let before = ROWS.map(|select| environment.lines(select));
    let error = open(environment, FAILING).unwrap_err();
    assert!(error.to_string().contains("cannot migrate the schema"), "{error}");
    assert_eq!(versions(environment), [SCHEMA_VERSION.to_string()]);
    open(environment, LATER).unwrap();
    assert_eq!(environment.number("SELECT count(*) FROM run_of_migration"), 1);
    assert_eq!(ROWS.map(|select| environment.lines(select)), before);
}

type Use = fn(&StoreUrl) -> Result<(), StoreError>;

/// Expects that the store is refused for writing, for reading and for maintenance, and is left as it is.
fn expect_refusals(environment: &TestEnvironment, is_expected: fn(&StoreError) -> bool) {
    let error = Collector::start(&environment.config(), &environment.context).unwrap_err();
    let CollectorStartError::Store { source, .. } = error else { panic!("{error:?}") };
    assert!(is_expected(&source), "{source:?}");
    let url = environment.url();
    let uses: [(&str, Use); 7] = [
        ("read", |url| Reader::open(url).map(drop)),
        ("administer", |url| Administration::open(url).map(drop)),
        ("remove old rows", |url| prune(url, None, |_, _| panic!("a part is removed"))),
        ("write the retention", |url| set_retention(url, &Retention::default())),
        ("use tokens", |url| TokenTable::open(url).map(drop)),
        ("use requests", |url| ControlTable::open(url).map(drop)),
        ("use ends of jobs", |url| JobEndQueue::open(url).map(drop)),
    ];
    for (what, attempt) in uses {
        let error = attempt(&url).expect_err(what);
        assert!(is_expected(&error), "{what}: {error:?}");
        let message = error.to_string();
        assert!(message.starts_with("cannot use the store: ") && message.contains("; "), "{what}: {message}");
    }
}

fn refuses_a_newer_schema(environment: &mut TestEnvironment) {
    environment.collector().stop().unwrap();
    environment.execute("INSERT INTO store_version VALUES (99)");
    expect_refusals(environment, |error| matches!(error, StoreError::NewerSchema { found: 99 }));
    environment.execute("DELETE FROM store_version WHERE version = 99");
    environment.collector().stop().unwrap();
    // A collector migrates an older store; readers refuse it before.
    environment.execute("UPDATE store_version SET version = 0");
    let Err(StoreError::OlderSchema { found: 0 }) = Reader::open(&environment.url()) else {
        panic!("the reader accepts it")
    };
}

fn refuses_the_tables_of_a_development_revision(environment: &mut TestEnvironment) {
    environment.execute(
        "CREATE TABLE schema_version (version integer NOT NULL);
         CREATE TABLE samples (time integer NOT NULL, series_id integer NOT NULL, value float)",
    );
    // The first of these versions has the number of this program's own.
    for version in [1, 8] {
        environment.execute(&format!("INSERT INTO schema_version VALUES ({version})"));
        expect_refusals(environment, |error| matches!(error, StoreError::DevelopmentSchema));
        assert_eq!(environment.number("SELECT max(version) FROM schema_version"), version);
    }
    let tables = if environment.server.is_some() {
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v')"
    } else {
        "SELECT count(*) FROM sqlite_master"
    };
    assert_eq!(environment.number(tables), 2, "nothing is added");
}
