//! Tests of stores with other versions of the schema, of every kind.

use std::ops::RangeInclusive;

use polymeter_collector::{Collector, CollectorStartError};
use polymeter_store::reader::{Reader, SeriesScope};
use polymeter_store::{SCHEMA_VERSION, StoreError};

use crate::support::agent::Agent;
use crate::support::{Kind, TestEnvironment, now_us};
use crate::time_range::{quarantine_config, send_with_skewed_clock};

scenarios! {
    migrates_older_schemas_with_data,
    refuses_a_newer_schema,
}

/// The statements that made the schema of each version before the current one, in files that never change.
const SQLITE: [&str; SCHEMA_VERSION as usize - 1] = [
    include_str!("../../../store/schema/sqlite/1.sql"),
    include_str!("../../../store/schema/sqlite/2.sql"),
    include_str!("../../../store/schema/sqlite/3.sql"),
    include_str!("../../../store/schema/sqlite/4.sql"),
    include_str!("../../../store/schema/sqlite/5.sql"),
    concat!(
        include_str!("../../../store/schema/all/6.sql"),
        include_str!("../../../store/schema/sqlite/6.sql")
    ),
    concat!(
        include_str!("../../../store/schema/sqlite/7_jobs.sql"),
        include_str!("../../../store/schema/sqlite/7_metadata.sql"),
        include_str!("../../../store/schema/sqlite/7_rollups.sql"),
        include_str!("../../../store/schema/sqlite/7_retention.sql"),
        include_str!("../../../store/schema/sqlite/7_views.sql"),
    ),
];
const POSTGRES: [&str; SCHEMA_VERSION as usize - 1] = [
    include_str!("../../../store/schema/postgres/1.sql"),
    include_str!("../../../store/schema/postgres/2.sql"),
    include_str!("../../../store/schema/postgres/3.sql"),
    include_str!("../../../store/schema/postgres/4.sql"),
    include_str!("../../../store/schema/postgres/5.sql"),
    concat!(
        include_str!("../../../store/schema/all/6.sql"),
        include_str!("../../../store/schema/postgres/6.sql")
    ),
    concat!(
        include_str!("../../../store/schema/postgres/7_jobs.sql"),
        include_str!("../../../store/schema/postgres/7_metadata.sql"),
        include_str!("../../../store/schema/postgres/7_rollups.sql"),
        include_str!("../../../store/schema/postgres/7_retention.sql"),
        include_str!("../../../store/schema/postgres/7_views.sql"),
        include_str!("../../../store/schema/postgres/7_roles.sql")
    ),
];

/// The rollups of version 7 on a table that TimescaleDB compresses, and on any other.
const CONTINUOUS: &str = include_str!("../../../store/schema/postgres/7_rollups_continuous.sql");
const ROLLUP_TABLES: &str = include_str!("../../../store/schema/postgres/7_rollups_tables.sql");

/// The partitions of plain PostgreSQL, as version 7 changes them.
const PARTITIONS_7: &str = include_str!("../../../store/schema/postgres/partitions_7.sql");

/// The last version whose tables [`insert_data`] can fill: version 6 renames tables and columns.
const DATA_VERSION: usize = 5;

/// Runs the migrations of `versions`.
fn migrate(environment: &mut TestEnvironment, versions: RangeInclusive<usize>) {
    let has_partitions = matches!(environment.kind, Kind::Postgres | Kind::Citus);
    let partitioning = if has_partitions { "PARTITION BY RANGE (time)" } else { "" };
    for version in versions {
        let rollups = if environment.kind == Kind::Timescale { CONTINUOUS } else { ROLLUP_TABLES };
        environment.execute(&match environment.kind {
            Kind::Sqlite => SQLITE[version - 1].to_owned(),
            Kind::Postgres | Kind::Timescale | Kind::Citus => POSTGRES[version - 1]
                .replace("/* PARTITIONING */", partitioning)
                .replace("/* ROLLUPS */", rollups)
                .replace("/* WIDEN SAMPLES */", "ALTER TABLE samples ALTER COLUMN series_id TYPE int8;"),
        });
        if version == 7 && has_partitions {
            environment.execute(PARTITIONS_7);
        }
        environment.execute(&format!("INSERT INTO schema_version VALUES ({version})"));
    }
}

/// Creates a store in the state of an older version, without data.
pub(crate) fn make_empty_store_of_version(environment: &mut TestEnvironment, version: usize) {
    environment.execute("CREATE TABLE schema_version (version int4 NOT NULL)");
    if environment.kind == Kind::Timescale {
        environment.execute("CREATE EXTENSION IF NOT EXISTS timescaledb");
    }
    migrate(environment, 1..=version);
    match environment.kind {
        Kind::Sqlite => {}
        Kind::Postgres | Kind::Citus => {
            environment.execute(include_str!("../../../store/schema/postgres/partitions_1.sql"))
        }
        Kind::Timescale => environment.execute("SELECT create_hypertable('samples', 'time')"),
    }
}

/// Creates a store in the state of an older version, with a job of 3 samples that its ledger counts.
fn make_store_of_version(environment: &mut TestEnvironment, version: usize) {
    environment.execute("CREATE TABLE schema_version (version int4 NOT NULL)");
    migrate(environment, 1..=version.min(DATA_VERSION));
    match environment.kind {
        Kind::Sqlite => {}
        Kind::Postgres | Kind::Citus => {
            environment.execute(include_str!("../../../store/schema/postgres/partitions_1.sql"));
            environment.execute("SELECT polymeter_create_partition(date '2026-01-01')");
        }
        Kind::Timescale => environment.execute(
            "CREATE EXTENSION IF NOT EXISTS timescaledb;
             SELECT create_hypertable('samples', by_range('time', interval '1 day'), create_default_indexes => false);
             ALTER TABLE samples SET (timescaledb.compress, timescaledb.compress_segmentby = '',
                                      timescaledb.compress_orderby = 'series_id,time')",
        ),
    }
    insert_data(environment, version);
    migrate(environment, DATA_VERSION + 1..=version);
    if environment.kind == Kind::Timescale {
        // The policy is created last, since its first run would interfere.
        environment.execute("SELECT compress_chunk(chunk) FROM show_chunks('samples') AS chunk");
        environment.execute("SELECT add_compression_policy('samples', compress_after => interval '2 days')");
    }
}

/// Inserts a job of 3 samples that its ledger counts, as a collector of that version, or of version 5, does.
fn insert_data(environment: &mut TestEnvironment, version: usize) {
    let time = |seconds: u32| match environment.kind {
        Kind::Sqlite => format!("{}", (1_767_225_600 + i64::from(seconds)) * 1_000_000_000),
        _ => format!("'2026-01-01 00:00:{seconds:02}+00'"),
    };
    let [zero, one, two] = [0, 1, 2].map(time);
    environment.execute(&format!(
        "INSERT INTO node VALUES ('n0', {zero});
         INSERT INTO metric VALUES ('cpu.usage', 'nanoseconds', 'counter');
         INSERT INTO job (job_id, owner_uid, started) VALUES ('old', 1000, {zero});
         INSERT INTO job_node (job_key, node, started) VALUES (1, 'n0', {zero});
         INSERT INTO series (node, metric, job_key, job_id, labels) VALUES ('n0', 'cpu.usage', 1, 'old', '{{}}');
         INSERT INTO samples VALUES ({zero}, 1, 10), ({one}, 1, 20), ({two}, 1, 30);
         INSERT INTO session (session_id, node, agent_version, started, last_sequence, last_seen) VALUES ('0000000000000099', 'n0', '0', {zero}, 5, {two});
         INSERT INTO ledger (session_id, job_key, source, due, taken, late, missed, absent, dropped) VALUES ('0000000000000099', 1, 'stat', 5, 3, 0, 2, 0, 0);
         INSERT INTO mark (time, node, job_key, job_id, name, by_whom) VALUES ({one}, 'n0', 1, 'old', 'begin', 'uid 1000');
         INSERT INTO plan_change (time, node, job_key, job_id, metric, new_period_us, cause, by_whom) VALUES
             ({one}, 'n0', 1, 'old', 'cpu.usage', 1000, 'lease', 'uid 1000'),
             ({one}, 'n0', 1, 'old', 'cpu.user', 10, 'refused', 'zoe: period 10us refused: too short'),
             ({two}, 'n0', 1, 'old', 'no.such', NULL, 'refused', 'unknown user: unknown metric')"
    ));
    if version >= 4 {
        environment.execute(&format!(
            "INSERT INTO samples_apart VALUES ({zero}, 1, 40, {two});
             UPDATE ledger SET apart = 1, taken = 4, due = 6"
        ));
    }
    if version >= 5 {
        environment.execute("UPDATE ledger SET handle = 1, stored = 3");
    }
    if version >= 5 && environment.kind != Kind::Sqlite {
        // The samples of the newest frames are not counted in the ledger yet.
        environment.execute(
            r#"UPDATE ledger SET stored = 1; UPDATE session SET pending = '{"1": 2}', ended = last_seen"#,
        );
    }
}

fn migrates_older_schemas_with_data(environment: &mut TestEnvironment) {
    for version in 1..SCHEMA_VERSION as usize {
        let mut environment = TestEnvironment::new(environment.kind);
        make_store_of_version(&mut environment, version);
        let found = i32::try_from(version).unwrap();
        let Err(StoreError::OlderSchema { found: of }) = Reader::open(&environment.url()) else {
            panic!("the reader accepts it")
        };
        assert_eq!(of, found);
        let collector = Collector::start(&quarantine_config(&environment), &environment.context).unwrap();
        let mut agent = Agent::to(&environment.context, &collector, "n1", 21);
        send_with_skewed_clock(&mut agent, now_us());
        agent.wait_until_acknowledged();
        assert_eq!(collector.stop().unwrap().quarantined, 3);
        assert_eq!(environment.number("SELECT max(version) FROM schema_version"), i64::from(SCHEMA_VERSION));
        let old = if version >= 4 { "('stat', 6, 3, 1, 0)" } else { "('stat', 5, 3, 0, 0)" };
        let found = format!(
            "SELECT count(*) FROM ledger_balance WHERE (source, due, stored, quarantined, unknown) IN ({old}, ('stat', 12, 6, 3, 0))"
        );
        assert_eq!(environment.number(&found), 2, "version {version}");
        let quarantined = if version >= 4 { 4 } else { 3 };
        assert_eq!(
            environment.number("SELECT count(*) FROM samples_quarantine"),
            quarantined,
            "version {version}"
        );
        // No samples are lost, and there is room for more than 2^31 series.
        let mut reader = environment.reader();
        let jobs = environment.jobs();
        let old = jobs.iter().find(|job| job.job_id == "old").unwrap();
        let series = reader.series(SeriesScope::Job(old.job_key)).unwrap();
        let points = reader.points(series[0].series_id, i64::MIN..i64::MAX).unwrap();
        assert_eq!(points.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [10.0, 20.0, 30.0]);
        let key = old.job_key;
        assert_eq!(reader.marks(key).unwrap()[0].actor.as_deref(), Some("uid 1000"));
        assert_eq!(reader.plan_changes(key).unwrap()[0].actor.as_deref(), Some("uid 1000"));
        let changes = reader.plan_changes(key).unwrap();
        assert_eq!((changes.len(), changes[0].level.as_deref()), (1, None), "version {version}");
        let refused = reader.refused_requests(old.job_key).unwrap();
        let refused: Vec<_> = refused.iter().map(|row| (row.actor.as_deref(), row.reason.as_str())).collect();
        assert_eq!(
            refused,
            [(Some("zoe"), "period 10us refused: too short"), (None, "unknown metric")],
            "version {version}"
        );
        if environment.kind != Kind::Sqlite {
            let narrow = "SELECT count(*) FROM information_schema.columns
                 WHERE table_schema = 'public' AND column_name IN ('series_id', 'job_key') AND data_type <> 'bigint'";
            assert_eq!(environment.number(narrow), 0);
        }
        if environment.kind == Kind::Timescale {
            let compressing = "SELECT count(*) FROM timescaledb_information.jobs WHERE proc_name LIKE 'policy_compression%' AND hypertable_name = 'samples'";
            assert_eq!(environment.number(compressing), 1);
        }
    }
}

fn refuses_a_newer_schema(environment: &mut TestEnvironment) {
    environment.collector().stop().unwrap();
    environment.execute("INSERT INTO schema_version VALUES (99)");
    let error = Collector::start(&environment.config(), &environment.context).unwrap_err();
    let CollectorStartError::Store { source, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(source, StoreError::NewerSchema { found: 99 }), "{source:?}");
    assert!(source.to_string().contains("use a newer polymeter-collector"), "{source}");
    let Err(StoreError::NewerSchema { found: 99 }) = Reader::open(&environment.url()) else {
        panic!("the reader accepts it")
    };
    // A collector migrates an older store; readers refuse it before.
    environment.execute("DELETE FROM schema_version WHERE version > 1");
    let Err(StoreError::OlderSchema { found: 1 }) = Reader::open(&environment.url()) else {
        panic!("the reader accepts it")
    };
}
