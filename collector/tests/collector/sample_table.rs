//! Tests of the forms of the table of samples: partitions of PostgreSQL, and hypertables of TimescaleDB.

use polymeter_collector::{Collector, CollectorConfig, CollectorStartError};
use polymeter_store::{ExtensionMode, StoreError};

use crate::postgres::{assert_counts, send_row, server};
use crate::support::agent::{Agent, job, shape, values};
use crate::support::server::Server;
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

polymeter_test_harness::tests![
    views_on_postgresql,
    views_on_timescaledb,
    partitions_are_created_ahead,
    closed_partitions_get_their_index,
    a_partition_is_closed_an_hour_after_its_day,
    recent_samples_are_found_by_their_time,
    samples_of_a_commit_are_ordered,
    rows_are_compressed_as_they_arrive,
    recent_samples_are_ordered_beside_writers,
    compresses_old_chunks_if_the_scheduler_fails,
    timescaledb_can_be_turned_off,
    timescaledb_can_be_required,
    refuses_a_hypertable_without_timescaledb
];

fn views_on_postgresql() {
    assert_kwollect_views(Kind::Postgres);
}

fn views_on_timescaledb() {
    assert_kwollect_views(Kind::Timescale);
}

fn assert_kwollect_views(kind: Kind) {
    let mut environment = TestEnvironment::new(kind);
    let begin_us = now_us();
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let job = job(1, "4711", begin_us + 2_000_000);
    for seed in 0..4 {
        let (time_us, row) = (begin_us + seed * 1_000_000, values(seed).0);
        let of_job = shape(2, Some(&job));
        let rows = [(&shape(1, None), time_us, row.as_slice()), (&of_job, time_us, row.as_slice())];
        let sequence = agent.frame(if seed < 2 { &rows[..1] } else { &rows }, &[], &[]);
        agent.send(sequence);
    }
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    let server = server(&mut environment);
    assert_eq!(
        server.query("SELECT count(*) FROM metrics WHERE device_id = 'n1' AND metric_id = 'cpu.usage'"),
        "6"
    );
    assert_eq!(server.query("SELECT count(*) FROM metrics WHERE labels ->> 'job_id' = '4711'"), "6");
    // The job's own series, and the node's since the job began.
    assert_eq!(server.query("SELECT count(*), min(value) FROM metrics_by_job WHERE job_id = '4711' AND metric_id = 'cpu.usage'"), "4|2000006");
    assert_eq!(
        server.query("SELECT DISTINCT labels FROM metrics_by_job WHERE metric_id = 'node.load1'"),
        r#"{"cpu": "3", "node": "a=b"}"#
    );
}

fn partitions_are_created_ahead() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let collector = environment.collector();
    let tomorrow = "SELECT to_regclass('samples_' || to_char((now() AT TIME ZONE 'UTC')::date + 1, 'YYYYMMDD')) IS NOT NULL";
    let server = server(&mut environment);
    wait_until("the partition of tomorrow exists", || server.query(tomorrow) == "t");
    collector.stop().unwrap();
}

fn closed_partitions_get_their_index() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    send_row(&mut agent, now_us() - 5 * 86_400 * 1_000_000, 0);
    send_row(&mut agent, now_us(), 0);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    let collector = environment.collector();
    let built = "SELECT count(*) FROM pg_indexes WHERE indexname LIKE 'samples%by_series'";
    wait_until("the closed partitions have their index", || server(&mut environment).query(built) != "0");
    wait_until("none is left to close", || {
        server(&mut environment).query("SELECT count(*) FROM polymeter_partition_to_close") == "0"
    });
    collector.stop().unwrap();
    let open =
        server(&mut environment).query("SELECT count(*) FROM pg_indexes WHERE indexname LIKE 'samples%brin'");
    assert!(open.parse::<u32>().unwrap() >= 3, "{open}");
}

fn a_partition_is_closed_an_hour_after_its_day() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    environment.collector().stop().unwrap();
    let server = server(&mut environment);
    let day = "(now() AT TIME ZONE 'UTC')::date - ago";
    server.query(&format!("SELECT polymeter_create_partition({day}) FROM generate_series(-1, 3) AS ago"));
    // In one statement, so that all of it sees the same time.
    let wrong = server.query(&format!(
        "SELECT ago FROM generate_series(-1, 3) AS ago
         LEFT JOIN polymeter_partition_to_close ON partition = 'samples_' || to_char({day}, 'YYYYMMDD')
         WHERE (partition IS NOT NULL) <> (now() AT TIME ZONE 'UTC' >= {day} + interval '25 h')"
    ));
    assert_eq!(wrong, "");
    assert_eq!(server.query("SELECT count(*) BETWEEN 2 AND 3 FROM polymeter_partition_to_close"), "t");
}

fn pages_read(server: &Server) -> u32 {
    let read = "SET enable_seqscan = off; SET max_parallel_workers_per_gather = 0; EXPLAIN (ANALYZE, COSTS off, TIMING off)
             SELECT count(*) FROM samples WHERE time >= date_trunc('day', now(), 'UTC') + interval '1 h'
                 AND time < date_trunc('day', now(), 'UTC') + interval '2 h'";
    let plan = server.query(read);
    let lossy = plan.split_once("lossy=").map_or("", |(_, rest)| rest);
    lossy.split_whitespace().next().unwrap_or("").parse::<u32>().unwrap_or_else(|_| panic!("{plan}"))
}

fn recent_samples_are_found_by_their_time() {
    let environment = TestEnvironment::new(Kind::Postgres);
    environment.collector().stop().unwrap();
    let server = environment.server.as_ref().unwrap();
    server.query("SELECT polymeter_create_partition((now() AT TIME ZONE 'UTC')::date)");
    // Some hundred thousand samples of this day, in the order of their times.
    server.query(
        "INSERT INTO samples (time, series_id, value) SELECT date_trunc('day', now(), 'UTC') + second * interval '1 s', 1, 1 FROM generate_series(0, 86399) AS second, generate_series(1, 4)",
    );
    let all = pages_read(server);
    assert!(all > 2000, "{all}");
    let collector = environment.collector();
    wait_until("the pages are summarised", || pages_read(server) < all / 2);
    collector.stop().unwrap();
}

fn samples_of_a_commit_are_ordered() {
    let environment = TestEnvironment::new(Kind::Postgres);
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let begin_us = now_us();
    let job = job(1, "4711", begin_us);
    let (of_node, of_job, row) = (shape(1, None), shape(2, Some(&job)), values(0).0);
    // The series of the job get their ids first, those of the node are the first in the second frame.
    for rows in [
        vec![(&of_job, begin_us, row.as_slice())],
        vec![
            (&of_node, begin_us + 1_000_000, row.as_slice()),
            (&of_job, begin_us + 1_000_000, row.as_slice()),
            (&of_node, begin_us + 2_000_000, row.as_slice()),
        ],
    ] {
        let sequence = agent.frame(&rows, &[], &[]);
        agent.send(sequence);
        agent.wait_until_acknowledged();
    }
    collector.stop().unwrap();
    let server = environment.server.as_ref().unwrap();
    let of_second = format!("FROM samples WHERE time > to_timestamp({})", begin_us / 1_000_000);
    let stored = server.query(&format!("SELECT series_id, time {of_second} ORDER BY ctid"));
    assert_eq!(stored, server.query(&format!("SELECT series_id, time {of_second} ORDER BY series_id, time")));
    let series = server.query(&format!("SELECT count(DISTINCT series_id) {of_second}"));
    assert!(stored.lines().count() > series.parse().unwrap(), "several samples of a series: {stored}");
}

fn rows_are_compressed_as_they_arrive() {
    let mut environment = TestEnvironment::new(Kind::Timescale);
    let collector = environment.collector();
    assert_eq!(
        collector.write_mode().name,
        "TimescaleDB hypertable with direct compression",
        "{}",
        collector.write_mode()
    );
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    (0..100).for_each(|seed| send_row(&mut agent, now_us(), seed));
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_counts(&environment, "n1", 100);
    let server = server(&mut environment);
    let chunks = "SELECT bool_and(is_compressed AND pg_relation_size(format('%I.%I', chunk_schema, chunk_name)::regclass) = 0)
                  FROM timescaledb_information.chunks WHERE hypertable_name = 'samples'";
    assert_eq!(server.query(chunks), "t");
}

fn batches(server: &Server) -> u64 {
    let relations = server.query(
        "SELECT compress_relid FROM _timescaledb_catalog.compression_settings JOIN show_chunks('samples') AS chunk ON relid = chunk
         WHERE compress_relid IS NOT NULL",
    );
    relations
        .lines()
        .map(|relation| server.query(&format!("SELECT count(*) FROM {relation}")).parse::<u64>().unwrap())
        .sum()
}

fn recent_samples_are_ordered_beside_writers() {
    let mut environment = TestEnvironment::new(Kind::Timescale);
    let begin_us = now_us() - 4 * 3600 * 1_000_000;
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    for seed in 0..60 {
        send_row(&mut agent, begin_us, seed * 100);
        // A commit for each frame or two, and a batch for each commit.
        agent.wait_until_acknowledged();
    }
    collector.stop().unwrap();
    environment.execute("UPDATE samples_order SET ordered_before = now() - interval '6 h'");
    let server = server(&mut environment);
    let all = "SELECT count(*), sum(CAST(value AS numeric)), min(time), max(time) FROM samples WHERE time < now() - interval '1 h'";
    let (before, samples) = (batches(server), server.query(all));
    assert!(before >= 30, "{before}");
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 2);
    let begin_us = now_us();
    let mut seed = 0;
    let server = self::server(&mut environment);
    wait_until("the samples are ordered", || {
        send_row(&mut agent, begin_us, seed % 60);
        seed += 1;
        server.query("SELECT ordered_before > now() - interval '1 h' FROM samples_order") == "t"
    });
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_eq!(server.query(all), samples);
    let of_series = "SELECT count(*) FROM samples WHERE series_id = (SELECT min(series_id) FROM samples) AND time < now() - interval '1 h'";
    assert_eq!(server.query(of_series), "60");
    // A batch or two for each period are left: the samples of 100 minutes lie in at most three, and around
    // midnight in two chunks.
    const PIECES: u64 = 4;
    let written = u64::try_from(seed).unwrap();
    assert!(
        batches(server) <= 2 * PIECES + written,
        "{} batches, {written} written meanwhile",
        batches(server)
    );
}

fn compresses_old_chunks_if_the_scheduler_fails() {
    let mut environment = TestEnvironment::new(Kind::Timescale);
    environment.collector().stop().unwrap();
    let server = server(&mut environment);
    let policy = "FROM timescaledb_information.job_stats JOIN timescaledb_information.jobs USING (job_id)
                  WHERE proc_name = 'policy_compression'";
    wait_until("the policy ran once", || {
        server.query(&format!("SELECT count(*) {policy} AND last_run_status IS NOT NULL")) == "1"
    });
    server.query(
        "SET timescaledb.enable_direct_compress_insert = off;
         INSERT INTO samples (time, series_id, value) SELECT now() - interval '5 days', 1, number FROM generate_series(1, 1000) AS number",
    );
    let status = server.query(&format!("SELECT last_run_status {policy}"));
    let collector = environment.collector();
    if status == "Failed" {
        let compressed = "SELECT bool_and(is_compressed) FROM timescaledb_information.chunks WHERE hypertable_name = 'samples'";
        wait_until("the chunk is compressed", || {
            environment.server.as_ref().unwrap().query(compressed) == "t"
        });
    } else {
        polymeter_test_harness::skip("scheduler", &format!("the server's scheduler works: {status}"));
    }
    collector.stop().unwrap();
}

fn timescaledb_can_be_turned_off() {
    let environment = TestEnvironment::new(Kind::Timescale);
    let off = CollectorConfig { timescaledb: ExtensionMode::Off, ..environment.config() };
    let collector = Collector::start(&off, &environment.context).unwrap();
    assert_eq!(collector.write_mode().name, "PostgreSQL with a partition per day");
    collector.stop().unwrap();
    // The table keeps its form, independent of the current setting.
    let auto = CollectorConfig { timescaledb: ExtensionMode::Auto, ..environment.config() };
    let collector = Collector::start(&auto, &environment.context).unwrap();
    assert_eq!(collector.write_mode().name, "PostgreSQL with a partition per day");
    assert!(collector.write_mode().reason.contains("without TimescaleDB"), "{}", collector.write_mode());
    collector.stop().unwrap();
}

fn timescaledb_can_be_required() {
    let environment = TestEnvironment::new(Kind::Postgres);
    let required = CollectorConfig { timescaledb: ExtensionMode::Require, ..environment.config() };
    let error = Collector::start(&required, &environment.context).unwrap_err();
    let CollectorStartError::Store { source: StoreError::Unusable(why), .. } = &error else {
        panic!("{error:?}")
    };
    assert!(why.contains("cannot use TimescaleDB, which is required"), "{why}");
}

fn refuses_a_hypertable_without_timescaledb() {
    let mut environment = TestEnvironment::new(Kind::Timescale);
    environment.collector().stop().unwrap();
    let server = server(&mut environment);
    server.stop();
    server.forget_timescaledb();
    server.resume();
    let auto = CollectorConfig { timescaledb: ExtensionMode::Auto, ..environment.config() };
    let error = Collector::start(&auto, &environment.context).unwrap_err();
    let CollectorStartError::Store { source: StoreError::Unusable(why), .. } = &error else {
        panic!("{error:?}")
    };
    assert!(why.contains("shared_preload_libraries"), "{why}");
}
