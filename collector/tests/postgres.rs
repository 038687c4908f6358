//! Tests specific to a server: outages, several collectors, and different features.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a fault of a test is a failed test"
)]

mod common;

use common::agent::{Agent, job, shape, values};
use common::server::Server;
use common::{Kind, Site, now_us, wait_until};
use polymeter_collector::{Collector, CollectorConfig, CollectorStartError};
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::message::ToAgent;
use polymeter_store::reader::SeriesScope;
use polymeter_store::{StoreError, TimescaleMode};

polymeter_test_harness::tests![
    a_restarted_server_has_each_frame_once,
    stop_without_a_server_acknowledges_nothing,
    a_deadlock_is_retried,
    two_collectors_share_a_database,
    views_on_postgresql,
    views_on_timescaledb,
    closed_partitions_get_their_index,
    rows_are_compressed_as_they_arrive,
    compresses_old_chunks_if_the_scheduler_fails,
    timescaledb_can_be_left_unused,
    timescaledb_can_be_required,
    refuses_a_hypertable_without_timescaledb,
    a_refused_frame_does_not_stop_others,
    an_exhausted_sequence_costs_no_sample
];

fn main() -> std::process::ExitCode {
    polymeter_test_harness::run(&[TESTS])
}

fn server(site: &mut Site) -> &mut Server {
    site.server.as_mut().unwrap()
}

fn tick(agent: &mut Agent, begin_us: i64, seed: i64) {
    let sequence = agent.frame(&[(&shape(1, None), begin_us + seed * 1_000_000, &values(seed).0)], &[], &[]);
    agent.send(sequence);
}

fn assert_counts(site: &Site, node: &str, count: usize) {
    assert_eq!(site.counts(SeriesScope::Node(node)), [count; 3], "{node}");
}

fn a_restarted_server_has_each_frame_once() {
    let mut site = Site::new(Kind::Postgres);
    let begin_us = now_us();
    let collector = site.collector();
    let mut agents: Vec<_> = (0..4)
        .map(|number| Agent::to(&site.context, &collector, &format!("n{number}"), number + 1))
        .collect();
    for round in 0..3 {
        for seed in round * 20..round * 20 + 20 {
            agents.iter_mut().for_each(|agent| tick(agent, begin_us, seed));
            if seed % 20 == 10 {
                server(&mut site).stop();
            }
        }
        server(&mut site).resume();
    }
    agents.iter_mut().for_each(Agent::settle);
    let totals = collector.stop().unwrap();
    assert_eq!(totals.given_up, 0);
    (0..4).for_each(|number| assert_counts(&site, &format!("n{number}"), 60));
}

fn stop_without_a_server_acknowledges_nothing() {
    let mut site = Site::new(Kind::Postgres);
    let begin_us = now_us();
    let collector = site.collector();
    let mut agent = Agent::to(&site.context, &collector, "n1", 1);
    tick(&mut agent, begin_us, 0);
    agent.settle();
    server(&mut site).stop();
    (1..10).for_each(|seed| tick(&mut agent, begin_us, seed));
    let totals = collector.stop().unwrap();
    assert_eq!(totals.given_up, 9);
    assert_eq!(agent.outbox.len(), 9);
    server(&mut site).resume();
    let collector = site.collector();
    agent.settle();
    collector.stop().unwrap();
    assert_counts(&site, "n1", 10);
}

fn a_deadlock_is_retried() {
    /// Locks the table that the collector writes second, waits until the collector waits for it, and then
    /// locks the one that the collector wrote first. The server reports the deadlock to the collector: the
    /// other session would check for one only after an hour.
    const OTHER: &str = "SET deadlock_timeout = '1h'; BEGIN; LOCK TABLE samples IN ACCESS EXCLUSIVE MODE;
        DO $$ BEGIN
            WHILE NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'samples'::regclass) LOOP
                PERFORM pg_sleep(0.01);
            END LOOP;
        END $$;
        LOCK TABLE session IN ACCESS EXCLUSIVE MODE; COMMIT;";
    const IS_LOCKED: &str = "SELECT EXISTS (SELECT FROM pg_locks WHERE granted
        AND relation = 'samples'::regclass AND mode = 'AccessExclusiveLock')";
    let mut site = Site::new(Kind::Postgres);
    let begin_us = now_us();
    let collector = site.collector();
    let mut agent = Agent::to(&site.context, &collector, "n1", 1);
    tick(&mut agent, begin_us, 0);
    agent.settle();
    let server = &*server(&mut site);
    std::thread::scope(|scope| {
        scope.spawn(|| server.query(OTHER));
        wait_until("the other has its lock", || server.query(IS_LOCKED) == "t");
        tick(&mut agent, begin_us, 1);
    });
    agent.settle();
    let deadlocks = "SELECT sum(deadlocks) FROM pg_stat_database";
    wait_until("the server has counted the deadlock", || server.query(deadlocks) == "1");
    assert_eq!(collector.stop().unwrap().given_up, 0);
    assert_counts(&site, "n1", 2);
}

fn two_collectors_share_a_database() {
    let site = Site::new(Kind::Postgres);
    let begin_us = now_us();
    let config = |number| CollectorConfig { listen: format!("inproc://collector{number}"), ..site.config() };
    // Both create the schema at the same time.
    let start = |number| Collector::start(&config(number), &site.context).unwrap();
    let (a, b) = std::thread::scope(|scope| {
        let (a, b) = (scope.spawn(|| start(1)), scope.spawn(|| start(2)));
        (a.join().unwrap(), b.join().unwrap())
    });
    let mut to_a = Agent::to(&site.context, &a, "n1", 1);
    let job = job(1, "1", begin_us);
    for seed in 0..10 {
        let row = values(seed).0;
        let time_us = begin_us + seed * 1_000_000;
        let sequence =
            to_a.frame(&[(&shape(1, None), time_us, &row), (&shape(2, Some(&job)), time_us, &row)], &[], &[]);
        to_a.send(sequence);
    }
    // The same frames are sent to the other collector, which finds the session in the store, or detects the
    // repetition when it commits.
    let to_b = Agent::to(&site.context, &b, "n1", 1);
    to_a.outbox.values().for_each(|bytes| to_b.send_bytes(bytes));
    to_a.settle();
    let (a, b) = (a.stop().unwrap(), b.stop().unwrap());
    assert_eq!(a.samples + b.samples, 60, "{a:?} {b:?}");
    assert_counts(&site, "n1", 10);
    assert_eq!(site.jobs().len(), 1);
}

fn views_on_postgresql() {
    views_are_those_of_kwollect(Kind::Postgres);
}

fn views_on_timescaledb() {
    views_are_those_of_kwollect(Kind::Timescale);
}

fn views_are_those_of_kwollect(kind: Kind) {
    let mut site = Site::new(kind);
    let begin_us = now_us();
    let collector = site.collector();
    let mut agent = Agent::to(&site.context, &collector, "n1", 1);
    let job = job(1, "4711", begin_us + 2_000_000);
    for seed in 0..4 {
        let (time_us, row) = (begin_us + seed * 1_000_000, values(seed).0);
        let of_job = shape(2, Some(&job));
        let rows = [(&shape(1, None), time_us, row.as_slice()), (&of_job, time_us, row.as_slice())];
        let sequence = agent.frame(if seed < 2 { &rows[..1] } else { &rows }, &[], &[]);
        agent.send(sequence);
    }
    agent.settle();
    collector.stop().unwrap();
    let server = server(&mut site);
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

fn closed_partitions_get_their_index() {
    let mut site = Site::new(Kind::Postgres);
    let collector = site.collector();
    let mut agent = Agent::to(&site.context, &collector, "n1", 1);
    tick(&mut agent, now_us() - 5 * 86_400 * 1_000_000, 0);
    tick(&mut agent, now_us(), 0);
    agent.settle();
    collector.stop().unwrap();
    let collector = site.collector();
    let built = "SELECT count(*) FROM pg_indexes WHERE indexname LIKE 'samples%by_series'";
    wait_until("the closed partitions have their index", || server(&mut site).query(built) != "0");
    wait_until("none is left to close", || {
        server(&mut site).query("SELECT count(*) FROM polymeter_partition_to_close") == "0"
    });
    collector.stop().unwrap();
    let open = server(&mut site).query("SELECT count(*) FROM pg_indexes WHERE indexname LIKE 'samples%brin'");
    assert!(open.parse::<u32>().unwrap() >= 3, "{open}");
}

fn rows_are_compressed_as_they_arrive() {
    let mut site = Site::new(Kind::Timescale);
    let collector = site.collector();
    assert_eq!(
        collector.write_mode().name,
        "TimescaleDB hypertable with direct compression",
        "{}",
        collector.write_mode()
    );
    let mut agent = Agent::to(&site.context, &collector, "n1", 1);
    (0..100).for_each(|seed| tick(&mut agent, now_us(), seed));
    agent.settle();
    collector.stop().unwrap();
    assert_counts(&site, "n1", 100);
    let server = server(&mut site);
    let chunks = "SELECT bool_and(is_compressed AND pg_relation_size(format('%I.%I', chunk_schema, chunk_name)::regclass) = 0)
                  FROM timescaledb_information.chunks WHERE hypertable_name = 'samples'";
    assert_eq!(server.query(chunks), "t");
}

fn compresses_old_chunks_if_the_scheduler_fails() {
    let mut site = Site::new(Kind::Timescale);
    site.collector().stop().unwrap();
    let server = server(&mut site);
    let policy = "FROM timescaledb_information.job_stats JOIN timescaledb_information.jobs USING (job_id)
                  WHERE proc_name = 'policy_compression'";
    wait_until("the policy ran once", || {
        server.query(&format!("SELECT count(*) {policy} AND last_run_status IS NOT NULL")) == "1"
    });
    server.query(
        "SET timescaledb.enable_direct_compress_insert = off;
         INSERT INTO samples SELECT now() - interval '5 days', 1, number FROM generate_series(1, 1000) AS number",
    );
    let status = server.query(&format!("SELECT last_run_status {policy}"));
    let collector = site.collector();
    if status == "Failed" {
        let compressed = "SELECT bool_and(is_compressed) FROM timescaledb_information.chunks WHERE hypertable_name = 'samples'";
        wait_until("the chunk is compressed", || site.server.as_ref().unwrap().query(compressed) == "t");
    } else {
        polymeter_test_harness::skip("scheduler", &format!("the server's scheduler works: {status}"));
    }
    collector.stop().unwrap();
}

fn timescaledb_can_be_left_unused() {
    let site = Site::new(Kind::Timescale);
    let off = CollectorConfig { timescaledb: TimescaleMode::Off, ..site.config() };
    let collector = Collector::start(&off, &site.context).unwrap();
    assert_eq!(collector.write_mode().name, "PostgreSQL with a partition per day");
    collector.stop().unwrap();
    // The table keeps its form, independent of the current setting.
    let auto = CollectorConfig { timescaledb: TimescaleMode::Auto, ..site.config() };
    let collector = Collector::start(&auto, &site.context).unwrap();
    assert_eq!(collector.write_mode().name, "PostgreSQL with a partition per day");
    assert!(collector.write_mode().reason.contains("without TimescaleDB"), "{}", collector.write_mode());
    collector.stop().unwrap();
}

fn timescaledb_can_be_required() {
    let site = Site::new(Kind::Postgres);
    let required = CollectorConfig { timescaledb: TimescaleMode::Require, ..site.config() };
    let error = Collector::start(&required, &site.context).unwrap_err();
    let CollectorStartError::Store { source: StoreError::Unusable(why), .. } = &error else {
        panic!("{error:?}")
    };
    assert!(why.contains("cannot use TimescaleDB, which is required"), "{why}");
}

fn refuses_a_hypertable_without_timescaledb() {
    let mut site = Site::new(Kind::Timescale);
    site.collector().stop().unwrap();
    let server = server(&mut site);
    server.stop();
    server.forget_timescaledb();
    server.resume();
    let auto = CollectorConfig { timescaledb: TimescaleMode::Auto, ..site.config() };
    let error = Collector::start(&auto, &site.context).unwrap_err();
    let CollectorStartError::Store { source: StoreError::Unusable(why), .. } = &error else {
        panic!("{error:?}")
    };
    assert!(why.contains("shared_preload_libraries"), "{why}");
}

fn a_refused_frame_does_not_stop_others() {
    let mut site = Site::new(Kind::Postgres);
    let begin_us = now_us();
    site.collector().stop().unwrap();
    // A constraint that an administrator may add to the database.
    server(&mut site).query("ALTER TABLE series ADD CONSTRAINT only_ours CHECK (node <> 'stranger')");
    let config = CollectorConfig {
        commit_interval: std::time::Duration::from_millis(300),
        writers: 1,
        ..site.config()
    };
    let collector = Collector::start(&config, &site.context).unwrap();
    let mut agents =
        ["n1", "stranger"].map(|node| Agent::to(&site.context, &collector, node, node.len() as u64));
    for seed in 0..3 {
        agents.iter_mut().for_each(|agent| tick(agent, begin_us, seed));
    }
    agents.iter_mut().for_each(Agent::settle);
    assert_eq!(agents[1].heard.last(), Some(&ToAgent::Ack { session: SessionId(8), through: 3 }));
    collector.stop().unwrap();
    assert_counts(&site, "n1", 3);
    let losses = site.reader().last_losses(u32::MAX).unwrap();
    assert!(
        losses.iter().all(|loss| loss.reason == "store_refused" && loss.node == "stranger"),
        "{losses:?}"
    );
    assert_eq!(losses.iter().map(|loss| loss.samples).sum::<u64>(), 9);
}

fn an_exhausted_sequence_costs_no_sample() {
    let mut site = Site::new(Kind::Postgres);
    let begin_us = now_us();
    site.collector().stop().unwrap();
    for table in ["series_series_id", "job_job_key", "ledger_ledger_id"] {
        let sequence = format!("{table}_seq");
        server(&mut site)
            .query(&format!("ALTER SEQUENCE {sequence} MAXVALUE 2; SELECT setval('{sequence}', 2)"));
    }
    let collector = site.collector();
    let mut agent = Agent::to(&site.context, &collector, "n1", 7);
    tick(&mut agent, begin_us, 0);
    agent.send_from(0);
    // The collector reports the cause, retries, and acknowledges nothing meanwhile.
    assert_eq!(agent.hear(1500), None);
    for table in ["series_series_id", "job_job_key", "ledger_ledger_id"] {
        server(&mut site).query(&format!("ALTER SEQUENCE {table}_seq NO MAXVALUE"));
    }
    agent.settle();
    collector.stop().unwrap();
    assert_counts(&site, "n1", 1);
    assert!(site.reader().last_losses(u32::MAX).unwrap().is_empty());
    // Ids exceed 32 bits.
    server(&mut site).query("SELECT setval('series_series_id_seq', 5000000000)");
    let collector = site.collector();
    let mut other = Agent::to(&site.context, &collector, "n2", 8);
    tick(&mut other, begin_us, 0);
    other.settle();
    collector.stop().unwrap();
    assert_counts(&site, "n2", 1);
}
