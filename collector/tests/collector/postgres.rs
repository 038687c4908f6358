//! Tests of PostgreSQL: outages, deadlocks, several collectors, and refused rows.

use std::time::Duration;

use polymeter_collector::{Collector, CollectorConfig};
use polymeter_proto::ledger::Event;
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::message::ToAgent;
use polymeter_service::clock::Clock;
use polymeter_store::reader::SeriesScope;

use crate::support::agent::{Agent, job, shape, values};
use crate::support::server::Server;
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

polymeter_test_harness::tests![
    frames_are_stored_once_across_server_restarts,
    stop_without_a_server_acknowledges_nothing,
    an_outage_without_frames_ends_without_frames,
    a_deadlock_is_retried,
    a_node_that_returns_during_a_removal_keeps_its_series,
    two_collectors_share_a_database,
    two_collectors_agree_on_the_ids_of_series,
    a_refused_frame_does_not_stop_others,
    an_exhausted_sequence_costs_no_sample,
    new_jobs_need_no_scan,
    a_suppressed_insert_costs_no_sample
];

const OPEN_SESSIONS: &str = "SELECT count(*) FROM session WHERE ended IS NULL";

pub(crate) fn server(environment: &mut TestEnvironment) -> &mut Server {
    environment.server.as_mut().unwrap()
}

pub(crate) fn send_row(agent: &mut Agent, begin_us: i64, seed: i64) {
    let sequence = agent.frame(&[(&shape(1, None), begin_us + seed * 1_000_000, &values(seed).0)], &[], &[]);
    agent.send(sequence);
}

pub(crate) fn assert_counts(environment: &TestEnvironment, node: &str, count: usize) {
    assert_eq!(environment.counts(SeriesScope::Node(node)), [count; 3], "{node}");
}

fn frames_are_stored_once_across_server_restarts() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let begin_us = now_us();
    let collector = environment.collector();
    let mut agents: Vec<_> = (0..4)
        .map(|number| Agent::to(&environment.context, &collector, &format!("n{number}"), number + 1))
        .collect();
    for round in 0..3 {
        for seed in round * 20..round * 20 + 20 {
            agents.iter_mut().for_each(|agent| send_row(agent, begin_us, seed));
            if seed % 20 == 10 {
                server(&mut environment).stop();
            }
        }
        server(&mut environment).resume();
    }
    agents.iter_mut().for_each(Agent::wait_until_acknowledged);
    let totals = collector.stop().unwrap();
    assert_eq!(totals.given_up, 0);
    (0..4).for_each(|number| assert_counts(&environment, &format!("n{number}"), 60));
}

/// A collector that has nothing to store connects again by itself, and ends silent sessions then.
fn an_outage_without_frames_ends_without_frames() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let config = CollectorConfig { session_timeout: Duration::from_secs(2), ..environment.config() };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    send_row(&mut agent, now_us(), 0);
    agent.wait_until_acknowledged();
    assert_eq!(environment.number(OPEN_SESSIONS), 1);
    server(&mut environment).stop();
    let clock = Clock::start();
    wait_until("two checks for silent sessions have passed", || {
        clock.now().since_start > Duration::from_secs(5)
    });
    server(&mut environment).resume();
    assert_eq!(environment.number(OPEN_SESSIONS), 1);
    wait_until("the silent session has ended", || environment.number(OPEN_SESSIONS) == 0);
    collector.stop().unwrap();
}

fn stop_without_a_server_acknowledges_nothing() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let begin_us = now_us();
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    send_row(&mut agent, begin_us, 0);
    agent.wait_until_acknowledged();
    server(&mut environment).stop();
    (1..10).for_each(|seed| send_row(&mut agent, begin_us, seed));
    let totals = collector.stop().unwrap();
    assert_eq!(totals.given_up, 9);
    assert_eq!(agent.outbox.len(), 9);
    server(&mut environment).resume();
    let collector = environment.collector();
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_counts(&environment, "n1", 10);
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
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let begin_us = now_us();
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    send_row(&mut agent, begin_us, 0);
    agent.wait_until_acknowledged();
    let server = &*server(&mut environment);
    std::thread::scope(|scope| {
        scope.spawn(|| server.query(OTHER));
        wait_until("the other session has its lock", || server.query(IS_LOCKED) == "t");
        send_row(&mut agent, begin_us, 1);
    });
    agent.wait_until_acknowledged();
    let deadlocks = "SELECT sum(deadlocks) FROM pg_stat_database";
    wait_until("the server has counted the deadlock", || server.query(deadlocks) == "1");
    assert_eq!(collector.stop().unwrap().given_up, 0);
    assert_counts(&environment, "n1", 2);
}

fn two_collectors_agree_on_the_ids_of_series() {
    /// Keeps both collectors from taking ids until both have looked for the series, or wait for each other.
    const OTHER: &str = "BEGIN; LOCK TABLE series_counter IN EXCLUSIVE MODE;
        DO $$ BEGIN
            WHILE (SELECT count(*) FROM pg_locks WHERE NOT granted) < 2 LOOP
                PERFORM pg_sleep(0.01);
            END LOOP;
        END $$;
        COMMIT;";
    const IS_LOCKED: &str = "SELECT EXISTS (SELECT FROM pg_locks WHERE granted
        AND relation = 'series_counter'::regclass AND mode = 'ExclusiveLock')";
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let begin_us = now_us();
    let collectors = ["inproc://collector1", "inproc://collector2"].map(|endpoint| {
        let config = CollectorConfig { listen: endpoint.to_owned(), ..environment.config() };
        Collector::start(&config, &environment.context).unwrap()
    });
    // Then the collectors share the metrics and the list, and only the ids of the other node are new.
    let mut first = Agent::to(&environment.context, &collectors[0], "n0", 1);
    send_row(&mut first, begin_us, 0);
    first.wait_until_acknowledged();
    let mut agents = [2, 3].map(|number| {
        let collector = &collectors[usize::try_from(number).unwrap() - 2];
        Agent::to(&environment.context, collector, "n1", number)
    });
    let server = &*server(&mut environment);
    server.query("INSERT INTO node (node, first_seen) VALUES ('n1', now())");
    std::thread::scope(|scope| {
        scope.spawn(|| server.query(OTHER));
        wait_until("the other session has its lock", || server.query(IS_LOCKED) == "t");
        agents.iter_mut().zip(0..).for_each(|(agent, seed)| send_row(agent, begin_us, seed));
    });
    agents.iter_mut().for_each(Agent::wait_until_acknowledged);
    for collector in collectors {
        collector.stop().unwrap();
    }
    assert_counts(&environment, "n1", 2);
}

fn a_node_that_returns_during_a_removal_keeps_its_series() {
    /// Removes the node's series as retention does, and commits when the collector waits for it.
    const REMOVAL: &str = "BEGIN; SELECT node FROM node WHERE node = 'n1' FOR UPDATE;
        DO $$ BEGIN
            FOR attempt IN 1..500 LOOP
                EXIT WHEN EXISTS (SELECT FROM pg_locks WHERE NOT granted);
                PERFORM pg_sleep(0.01);
            END LOOP;
        END $$;
        DELETE FROM series_block WHERE node = 'n1'
            AND NOT EXISTS (SELECT FROM session WHERE session.node = 'n1' AND ended IS NULL);
        COMMIT;";
    const IS_LOCKED: &str = "SELECT EXISTS (SELECT FROM pg_locks WHERE granted AND mode = 'RowShareLock'
        AND relation = 'node'::regclass AND pid <> pg_backend_pid())";
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let begin_us = now_us();
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    send_row(&mut agent, begin_us, 0);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 2);
    let server = &*server(&mut environment);
    server.query("UPDATE session SET ended = now()");
    std::thread::scope(|scope| {
        scope.spawn(|| server.query(REMOVAL));
        wait_until("the removal has its lock", || server.query(IS_LOCKED) == "t");
        send_row(&mut agent, begin_us + 1_000_000, 1);
    });
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    let orphans = "SELECT count(*) FROM samples WHERE time > to_timestamp(0) AND NOT EXISTS (
        SELECT FROM series WHERE series.series_id = samples.series_id)";
    // The samples of before the removal, which real retention would have removed first, are left without
    // series.
    assert_eq!(server.query(orphans), server.query("SELECT (count(*) / 2)::text FROM samples"));
    assert_eq!(server.query("SELECT count(*) FROM series_block"), "1");
}

fn two_collectors_share_a_database() {
    let environment = TestEnvironment::new(Kind::Postgres);
    let begin_us = now_us();
    let config =
        |number| CollectorConfig { listen: format!("inproc://collector{number}"), ..environment.config() };
    // Both create the schema at the same time.
    let start = |number| Collector::start(&config(number), &environment.context).unwrap();
    let (a, b) = std::thread::scope(|scope| {
        let (a, b) = (scope.spawn(|| start(1)), scope.spawn(|| start(2)));
        (a.join().unwrap(), b.join().unwrap())
    });
    let mut to_a = Agent::to(&environment.context, &a, "n1", 1);
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
    let to_b = Agent::to(&environment.context, &b, "n1", 1);
    to_a.outbox.values().for_each(|bytes| to_b.send_bytes(bytes));
    to_a.wait_until_acknowledged();
    let (a, b) = (a.stop().unwrap(), b.stop().unwrap());
    assert_eq!(a.samples + b.samples, 60, "{a:?} {b:?}");
    assert_counts(&environment, "n1", 10);
    assert_eq!(environment.jobs().len(), 1);
}

fn a_refused_frame_does_not_stop_others() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let begin_us = now_us();
    environment.collector().stop().unwrap();
    // A constraint that an administrator may add to the database.
    server(&mut environment)
        .query("ALTER TABLE series_block ADD CONSTRAINT only_ours CHECK (node <> 'stranger')");
    let config =
        CollectorConfig { commit_interval: Duration::from_millis(300), writers: 1, ..environment.config() };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agents =
        ["n1", "stranger"].map(|node| Agent::to(&environment.context, &collector, node, node.len() as u64));
    for seed in 0..3 {
        agents.iter_mut().for_each(|agent| send_row(agent, begin_us, seed));
    }
    let job = job(1, "1", begin_us);
    let ended = [Event::JobEnded { job: job.handle, at_us: begin_us + 1_000_000 }];
    let sequence = agents[1].frame(&[(&shape(2, Some(&job)), begin_us, &values(1).0)], &[], &ended);
    agents[1].send(sequence);
    agents.iter_mut().for_each(Agent::wait_until_acknowledged);
    assert_eq!(agents[1].answers.last(), Some(&ToAgent::Ack { session: SessionId(8), through: 4 }));
    collector.stop().unwrap();
    let ends = "SELECT count(*) FROM job WHERE job_id = '1' AND ended IS NOT NULL";
    assert_eq!(environment.number(ends), 1, "the samples are refused, and the end of the job is stored");
    assert_counts(&environment, "n1", 3);
    let losses = environment.reader().last_losses(u32::MAX).unwrap();
    assert!(
        losses.iter().all(|loss| loss.reason == "store_refused" && loss.node == "stranger"),
        "{losses:?}"
    );
    assert_eq!(losses.iter().map(|loss| loss.samples).sum::<u64>(), 12);
}

fn an_exhausted_sequence_costs_no_sample() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let begin_us = now_us();
    environment.collector().stop().unwrap();
    for table in ["series_shape_shape_id", "job_job_key", "ledger_line_ledger_id"] {
        let sequence = format!("{table}_seq");
        server(&mut environment)
            .query(&format!("ALTER SEQUENCE {sequence} MAXVALUE 2; SELECT setval('{sequence}', 2)"));
    }
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 7);
    send_row(&mut agent, begin_us, 0);
    agent.send_from(0);
    // The collector reports the cause, retries, and acknowledges nothing meanwhile.
    assert_eq!(agent.receive(1500), None);
    for table in ["series_shape_shape_id", "job_job_key", "ledger_line_ledger_id"] {
        server(&mut environment).query(&format!("ALTER SEQUENCE {table}_seq NO MAXVALUE"));
    }
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_counts(&environment, "n1", 1);
    assert!(environment.reader().last_losses(u32::MAX).unwrap().is_empty());
    // Ids exceed 32 bits.
    server(&mut environment).query("UPDATE series_counter SET next_id = 5000000000");
    let collector = environment.collector();
    let mut other = Agent::to(&environment.context, &collector, "n2", 8);
    send_row(&mut other, begin_us, 0);
    other.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_counts(&environment, "n2", 1);
}

/// Registration of jobs reads no table that grows with the number of known jobs as a whole.
fn new_jobs_need_no_scan() {
    const KNOWN: i64 = 20_000;
    const FILL: &str = "
        INSERT INTO job (job_id, cluster, owner_uid, started, ended)
            SELECT 'k' || n, 'lab', 1000, '2026-01-01', '2026-01-01' FROM generate_series(1, 20000) AS n;
        INSERT INTO job_node (job_key, node, started, ended, session_id, handle)
            SELECT job_key, 'n' || job_key % 4, started, ended, 's' || job_key % 4, job_key FROM job;
        INSERT INTO session (session_id, node, agent_version, started, last_sequence, last_seen)
            SELECT 's' || n, 'n' || n % 4, '0', '2026-01-01', 1, '2026-01-01' FROM generate_series(1, 20000) AS n;
        INSERT INTO ledger_source (source) VALUES ('stat'), ('other');
        INSERT INTO ledger_line (session_key, handle, job_key, source_id)
            SELECT session_key, job_key, job_key, source_id FROM job JOIN session ON session_key = job_key, ledger_source;
        INSERT INTO series_shape (digest) VALUES ('two metrics');
        INSERT INTO series_shape_member (shape_id, position, metric, labels)
            SELECT 1, position, 'metric' || position, '{}' FROM generate_series(0, 1) AS position;
        INSERT INTO series_block (first_id, shape_id, job_key, node, job_id)
            SELECT 2 * job_key - 1, 1, job_key, 'n' || job_key % 4, job_id FROM job;
        UPDATE series_counter SET next_id = 40001;
        ANALYZE";
    const SCANNED: &str = "SELECT sum(seq_tup_read)::int8 FROM pg_stat_user_tables
        WHERE relname IN ('job', 'job_node', 'ledger_line', 'series_block', 'session')";
    let mut environment = TestEnvironment::new(Kind::Postgres);
    environment.collector().stop().unwrap();
    environment.execute(FILL);
    // The server's processes report their statistics at the latest when they exit.
    let processes = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    wait_until("the other connections are closed", || environment.number(processes) == 1);
    let before = environment.number(SCANNED);
    let begin_us = now_us();
    let config = CollectorConfig { commit_interval: Duration::from_millis(200), ..environment.config() };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    for number in 1..=300 {
        let job = job(number, &format!("new{number}"), begin_us);
        let ended = [Event::JobEnded { job: job.handle, at_us: begin_us + 1_000_000 }];
        let shape = shape(number, Some(&job));
        let sequence = agent.frame(&[(&shape, begin_us, &values(1).0)], &[], &ended);
        agent.send(sequence);
    }
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    wait_until("the collector's connections are closed", || environment.number(processes) == 1);
    let scanned = environment.number(SCANNED) - before;
    assert!(scanned < KNOWN, "{scanned} rows of whole tables were read");
    let ended = "SELECT count(*) FROM job_node WHERE session_id = '0000000000000001' AND ended IS NOT NULL";
    assert_eq!(environment.number(ended), 300);
}

fn a_suppressed_insert_costs_no_sample() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    environment.collector().stop().unwrap();
    // A trigger that an administrator may add to the database.
    server(&mut environment).query(
        "CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER suppress BEFORE INSERT ON series_block FOR EACH ROW EXECUTE FUNCTION suppress()",
    );
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    send_row(&mut agent, now_us(), 0);
    assert_eq!(agent.receive(1500), None, "nothing is acknowledged");
    server(&mut environment).query("DROP TRIGGER suppress ON series_block");
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_counts(&environment, "n1", 1);
    assert!(environment.reader().last_losses(u32::MAX).unwrap().is_empty());
}
