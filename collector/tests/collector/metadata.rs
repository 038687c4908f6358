//! Tests of the lists that jobs share: series, changes of plan, lines of the ledger; in each kind of store.

use std::thread;

use polymeter_collector::{Collector, CollectorConfig};
use polymeter_proto::ledger::{Cause, Event, PlanChange};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::JobHandle;

use crate::schema::make_empty_store_of_version;
use crate::support::agent::{Agent, job, shape, values};
use crate::support::{Kind, TestEnvironment, now_us};

scenarios! {
    version_6_is_migrated_row_by_row,
    counts_outlive_their_session,
    jobs_share_the_lists_of_their_series_and_plans,
    collectors_register_the_same_series_once,
}

/// The rows of the views, each as text, without the ids that a migration may change.
const ROWS: [&str; 4] = [
    "SELECT series_id || '|' || node || '|' || metric || '|' || coalesce(CAST(job_key AS text), '-') || '|' || coalesce(job_id, '-')
         || '|' || CAST(labels AS text) FROM series ORDER BY series_id",
    "SELECT CAST(time AS text) || '|' || node || '|' || coalesce(CAST(job_key AS text), '-') || '|' || coalesce(job_id, '-') || '|' || metric
         || '|' || coalesce(CAST(old_period_us AS text), '-') || '|' || coalesce(CAST(new_period_us AS text), '-') || '|' || cause
         || '|' || coalesce(actor, '-') || '|' || coalesce(CAST(until AS text), '-') || '|' || coalesce(reason, '-')
     FROM plan_change ORDER BY 1",
    "SELECT ledger_id || '|' || session_id || '|' || coalesce(CAST(job_key AS text), '-') || '|' || coalesce(CAST(handle AS text), '-')
         || '|' || source || '|' || due || '|' || taken || '|' || late || '|' || missed || '|' || absent || '|' || dropped || '|' || skipped
         || '|' || rejected || '|' || quarantined || '|' || stored FROM ledger ORDER BY ledger_id",
    "SELECT session_id || '|' || coalesce(CAST(job_key AS text), '-') || '|' || coalesce(CAST(handle AS text), '-') || '|' || source
         || '|' || due || '|' || taken || '|' || late || '|' || missed || '|' || absent || '|' || dropped || '|' || skipped
         || '|' || rejected || '|' || quarantined || '|' || stored || '|' || unknown FROM ledger_balance ORDER BY 1",
];

/// The number of blocks in which no series is inserted twice, or has the id of another one.
const TWICE: &str = "SELECT (SELECT count(*) FROM (
         SELECT 1 FROM series GROUP BY node, metric, job_key, labels HAVING count(*) > 1) AS same)
     + (SELECT count(*) FROM (SELECT 1 FROM series GROUP BY series_id HAVING count(*) > 1) AS same_id)";

fn rows(environment: &TestEnvironment) -> Vec<Vec<String>> {
    ROWS.iter().map(|select| environment.lines(select)).collect()
}

/// Inserts what collectors of version 6 stored: series that two connections registered at the same time, with gaps
/// between ids; steps and labels; the changes of plan of a start, and the same change twice; a ledger with and without
/// handles.
fn insert_data_of_version_6(environment: &mut TestEnvironment) {
    let time = |seconds: i64| match environment.kind {
        Kind::Sqlite => format!("{}", (1_767_225_600 + seconds) * 1_000_000_000),
        Kind::Postgres | Kind::Timescale | Kind::Citus => {
            format!("to_timestamp({})", 1_767_225_600 + seconds)
        }
    };
    let (begin, later) = (time(0), time(60));
    let keep = if environment.kind == Kind::Sqlite { "" } else { "OVERRIDING SYSTEM VALUE" };
    let mut series = Vec::new();
    for job in 1..=3_i64 {
        for (number, metric) in (0..).zip(["cpu.usage", "memory.current", "pids.current"]) {
            // The ids of the jobs 1 and 2 alternate; those of job 3 follow each other, behind a gap.
            let id = if job == 3 { 20 + number } else { 2 * number + job };
            series.push(format!("({id}, 'n1', '{metric}', {job}, 'j{job}', '{{}}')"));
        }
    }
    for (id, label) in [(10, r#"{"step": "0"}"#), (11, r#"{"step": "batch", "task": "ä'' 1"}"#)] {
        series.push(format!("({id}, 'n1', 'cpu.usage', 1, 'j1', '{label}')"));
    }
    for (id, node) in [(12, "n1"), (13, "n1"), (14, "n2")] {
        series.push(format!("({id}, '{node}', 'node.load1', NULL, NULL, '{{\"cpu\": \"{id}\"}}')"));
    }
    environment.execute(&format!(
        "INSERT INTO node VALUES ('n1', {begin}), ('n2', {begin});
         INSERT INTO metric VALUES ('cpu.usage', 'nanoseconds', 'counter');
         INSERT INTO series (series_id, node, metric, job_key, job_id, labels) {keep} VALUES {};
         INSERT INTO session (session_id, node, agent_version, started, last_sequence, last_seen, stored) VALUES
             ('0000000000000077', 'n1', '0', {begin}, 5, {later}, 7), ('0000000000000078', 'n2', '0', {begin}, 5, {later}, 0);
         INSERT INTO ledger (session_id, job_key, handle, source, due, taken, late, missed, absent, dropped, skipped, rejected, quarantined, stored)
         VALUES ('0000000000000077', 1, 1, 'stat', 20, 10, 1, 9, 1, 1, 2, 3, 1, 2), ('0000000000000077', NULL, NULL, 'stat', 5, 5, 0, 0, 0, 0, 0, 0, 0, 5),
             ('0000000000000077', 2, NULL, 'other', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), ('0000000000000078', 2, 1, 'stat', 3, 1, 0, 2, 0, 0, 0, 0, 0, 1);
         INSERT INTO plan_change (time, node, job_key, job_id, metric, old_period_us, new_period_us, cause, actor, until, reason) VALUES
             ({begin}, 'n1', 1, 'j1', 'cpu.usage', NULL, 1000000, 'baseline', NULL, NULL, NULL),
             ({begin}, 'n1', 1, 'j1', 'memory.current', NULL, 1000000, 'baseline', NULL, NULL, NULL),
             ({begin}, 'n1', 2, 'j2', 'memory.current', NULL, 1000000, 'baseline', NULL, NULL, NULL),
             ({begin}, 'n1', 2, 'j2', 'cpu.usage', NULL, 1000000, 'baseline', NULL, NULL, NULL),
             ({begin}, 'n2', NULL, NULL, 'node.load1', 1000000, NULL, 'governor', NULL, NULL, NULL),
             ({begin}, 'n2', NULL, NULL, 'node.load1', 1000000, NULL, 'governor', NULL, NULL, NULL),
             ({later}, 'n1', 1, 'j1', 'cpu.usage', 1000000, 1000, 'lease', 'zoe', {later}, NULL),
             ({later}, 'n1', 1, 'j1', 'every \"metric\"', NULL, 10, 'refused', NULL, NULL, 'period 10us refused: too short')",
        series.join(", ")
    ));
    if environment.kind != Kind::Sqlite {
        // The samples of the newest frames are not counted in the ledger yet.
        environment.execute(r#"UPDATE session SET pending = '{"1": 3, "4": 1}'"#);
    }
}

fn version_6_is_migrated_row_by_row(environment: &mut TestEnvironment) {
    make_empty_store_of_version(environment, 6);
    insert_data_of_version_6(environment);
    let before = rows(environment);
    assert_eq!(before.iter().map(Vec::len).collect::<Vec<_>>(), [14, 8, 4, 4]);
    environment.collector().stop().unwrap();
    assert_eq!(rows(environment), before);
    assert_eq!(environment.number(TWICE), 0);
    // The jobs 1 and 2 alternate: a block each time. Job 3 is a block, likewise the steps, and each node's series.
    assert_eq!(environment.number("SELECT count(*) FROM series_block"), 6 + 1 + 1 + 2);
    let overlapping = "SELECT count(*) FROM series JOIN series_block ON first_id = (
             SELECT max(first_id) FROM series_block WHERE first_id <= series_id)
         WHERE series.node <> series_block.node OR coalesce(series.job_key, 0) <> coalesce(series_block.job_key, 0)";
    assert_eq!(environment.number(overlapping), 0);
    // The changes at the begin of two jobs are the same set.
    assert_eq!(environment.number("SELECT count(*) FROM plan_change_event"), 5);
    assert_eq!(environment.number("SELECT count(*) FROM plan_change_set"), 4);
    // A collector registers others behind all of them.
    let collector = environment.collector();
    let mut agent = Agent::to(&environment.context, &collector, "n2", 1);
    agent.frame(&[(&shape(1, None), now_us(), &values(1).0)], &[], &[]);
    agent.send_from(0);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    let known = before[0].len();
    assert_eq!(environment.lines(ROWS[0])[..known], before[0]);
    assert_eq!(environment.number("SELECT min(series_id) FROM series WHERE series_id > 22"), 23);
    assert_eq!(environment.number(TWICE), 0);
    let next = "SELECT next_id - (SELECT max(series_id) FROM series) FROM series_counter";
    assert_eq!(environment.number(next), 1);
}

fn counts_outlive_their_session(environment: &mut TestEnvironment) {
    make_empty_store_of_version(environment, 6);
    insert_data_of_version_6(environment);
    let time = |seconds: i64| match environment.kind {
        Kind::Sqlite => format!("{}", (1_767_225_600 + seconds) * 1_000_000_000),
        Kind::Postgres | Kind::Timescale | Kind::Citus => {
            format!("to_timestamp({})", 1_767_225_600 + seconds)
        }
    };
    let (begin, end) = (time(10), time(50));
    // Sessions that are gone: of a job, of a node, and one that stored nothing.
    environment.execute(&format!(
        "INSERT INTO job (job_id, started, ended) VALUES ('j1', {begin}, {end});
         INSERT INTO job_node (job_key, node, started, session_id) SELECT job_key, 'n1', started, '0000000000000079' FROM job;
         INSERT INTO ledger (session_id, job_key, handle, source, due, taken, late, missed, absent, dropped, skipped, rejected, quarantined, stored)
         VALUES ('0000000000000079', 1, 1, 'gone', 20, 10, 1, 9, 1, 1, 2, 3, 1, 2), ('0000000000000080', NULL, NULL, 'gone', 5, 5, 0, 0, 0, 0, 0, 0, 0, 5),
             ('0000000000000081', 1, 1, 'gone', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)"
    ));
    let mut before = environment.lines(ROWS[2]);
    assert_eq!(before.len(), 7);
    environment.collector().stop().unwrap();
    before.retain(|line| !line.contains("0000000000000081"));
    assert_eq!(environment.lines(ROWS[2]), before);
    let sessions = "SELECT node || '|' || agent_version || '|' || end_reason FROM session WHERE session_id > '0000000000000078' ORDER BY session_id";
    assert_eq!(environment.lines(sessions), ["n1|unknown|silent", "unknown|unknown|silent"]);
    assert_eq!(
        environment.number("SELECT count(*) FROM session WHERE ended IS NOT NULL AND last_sequence = 0"),
        2
    );
    // A report of the job counts them.
    let ledger = environment.reader().ledger(1).unwrap();
    let gone: Vec<_> = ledger.iter().filter(|row| row.source == "gone").collect();
    assert_eq!(
        gone.iter().map(|row| (row.node.as_str(), row.tally.due, row.stored)).collect::<Vec<_>>(),
        [("n1", 20, 2)]
    );
}

/// Sends a job on each of `nodes`, whose changes of plan are the same.
fn send_jobs(environment: &TestEnvironment, collector: &Collector, session: u64, nodes: &[&str]) {
    let begin_us = now_us();
    for (number, node) in (1_u64..).zip(nodes) {
        let mut agent = Agent::to(&environment.context, collector, node, session + number);
        let job = job(1, &format!("on {node}"), begin_us);
        let change = |metric| PlanChange {
            at_us: begin_us,
            job: Some(JobHandle(1)),
            level: None,
            metric: MetricName::new(metric).unwrap(),
            old: None,
            new: Some(Period::SECOND),
            cause: Cause::Baseline,
            by: None,
            until_us: None,
        };
        let events = ["memory.current", "cpu.usage"].map(|metric| Event::PlanChange(change(metric)));
        let (of_node, of_job) = (shape(1, None), shape(2, Some(&job)));
        let row = values(1).0;
        agent.frame(&[(&of_node, begin_us, &row), (&of_job, begin_us, &row)], &[], &events);
        agent.send_from(0);
        agent.wait_until_acknowledged();
    }
}

fn jobs_share_the_lists_of_their_series_and_plans(environment: &mut TestEnvironment) {
    let nodes = ["n1", "n2", "n3", "n4"];
    let collector = environment.collector();
    send_jobs(environment, &collector, 0, &nodes);
    collector.stop().unwrap();
    let is = |environment: &TestEnvironment, select: &str, expected: i64| {
        assert_eq!(environment.number(select), expected, "{select}");
    };
    is(environment, "SELECT count(*) FROM series", 24);
    is(environment, "SELECT count(*) FROM series_block", 8);
    is(environment, "SELECT count(*) FROM series_shape", 1);
    is(environment, "SELECT count(*) FROM series_shape_member", 3);
    is(environment, "SELECT count(*) FROM plan_change", 8);
    is(environment, "SELECT count(*) FROM plan_change_event", 4);
    is(environment, "SELECT count(*) FROM plan_change_set", 1);
    let series = environment.lines(ROWS[0]);
    // After a restart everything is found again.
    let collector = environment.collector();
    send_jobs(environment, &collector, 10, &nodes);
    collector.stop().unwrap();
    assert_eq!(environment.lines(ROWS[0]), series);
    is(environment, "SELECT count(*) FROM plan_change_set", 1);
    is(environment, "SELECT count(*) FROM samples", 48);
    is(environment, TWICE, 0);
    // Ids are not used again when series were deleted.
    let last = environment.number("SELECT max(series_id) FROM series");
    environment.execute("DELETE FROM series_block");
    let collector = environment.collector();
    send_jobs(environment, &collector, 20, &["n5"]);
    collector.stop().unwrap();
    is(environment, "SELECT min(series_id) FROM series", last + 1);
}

fn collectors_register_the_same_series_once(environment: &mut TestEnvironment) {
    const JOBS: u32 = 40;
    // The first collector creates the schema.
    environment.collector().stop().unwrap();
    let begin_us = now_us();
    let start = |number: u64| {
        let listen = format!("inproc://collector{number}");
        Collector::start(&CollectorConfig { listen, ..environment.config() }, &environment.context).unwrap()
    };
    let collectors = [start(1), start(2)];
    // Two sessions of the same node report the same jobs, each to another collector.
    thread::scope(|scope| {
        for (number, collector) in (1..).zip(&collectors) {
            let (context, endpoint) = (&environment.context, collector.endpoint().to_owned());
            scope.spawn(move || {
                let mut agent = Agent::new(context, &endpoint, "n1", number);
                for handle in 1..=JOBS {
                    let job = job(handle, &format!("{handle}"), begin_us);
                    let row = values(1).0;
                    let (of_node, of_job) = (shape(1, None), shape(handle + 1, Some(&job)));
                    let sequence =
                        agent.frame(&[(&of_node, begin_us, &row), (&of_job, begin_us, &row)], &[], &[]);
                    agent.send(sequence);
                }
                agent.wait_until_acknowledged();
            });
        }
    });
    for collector in collectors {
        collector.stop().unwrap();
    }
    assert_eq!(environment.number("SELECT count(*) FROM job"), i64::from(JOBS));
    assert_eq!(environment.number("SELECT count(*) FROM series"), i64::from(3 * (JOBS + 1)));
    assert_eq!(environment.number(TWICE), 0);
    assert_eq!(
        environment.number("SELECT count(*) FROM samples JOIN series USING (series_id)"),
        i64::from(2 * 6 * JOBS)
    );
    let balance = "SELECT sum(stored) FROM ledger_balance";
    assert_eq!(environment.number(balance), i64::from(2 * 6 * JOBS));
}
