//! Scenarios of agents and a collector, each with every kind of store.

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

use std::sync::Arc;

use common::agent::{Agent, job, shape, values};
use common::{Site, now_us, wait_until};
use polymeter_collector::ingest::{OutOfRangePolicy, TimeRange};
use polymeter_collector::{Collector, CollectorConfig, CollectorStartError};
use polymeter_proto::batch::Shape;
use polymeter_proto::ledger::{Cause, Event, JobFacts, JobFactsUpdate, LedgerEntry, PlanChange, Tally};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{JobHandle, SessionId};
use polymeter_proto::wire::message::{Lost, SkipReason, ToAgent, ToCollector};
use polymeter_store::StoreError;
use polymeter_store::reader::{JobRow, LedgerRow, Reader, SeriesScope};

scenarios! {
    reads_back_what_was_sampled,
    repeated_frames_are_stored_once,
    requests_gaps_and_unknown_ids,
    skipped_frames_are_a_loss,
    restarted_collector_continues,
    invalid_messages_do_no_harm,
    reused_job_ids_are_other_jobs,
    samples_out_of_range_are_counted,
    samples_out_of_range_are_quarantined,
    stop_commits_messages_in_the_socket,
    refuses_a_newer_schema,
    migrates_older_schemas_with_data,
}

/// Adds a frame of one row, `seed` seconds after `begin_us`.
fn tick(agent: &mut Agent, shape: &Arc<Shape>, begin_us: i64, seed: i64) -> u64 {
    agent.frame(&[(shape, begin_us + seed * 1_000_000 + 7, &values(seed).0)], &[], &[])
}

fn ticks(agent: &mut Agent, shape: &Arc<Shape>, begin_us: i64, seeds: std::ops::Range<i64>) {
    for seed in seeds {
        tick(agent, shape, begin_us, seed);
    }
}

/// Checks that each series of `of` has exactly the samples of [`tick`] for `seeds`.
fn assert_ticks(site: &Site, of: SeriesScope<'_>, begin_us: i64, seeds: impl Iterator<Item = i64> + Clone) {
    let mut reader = site.reader();
    let series = reader.series(of).unwrap();
    assert_eq!(
        series.iter().map(|series| series.metric.as_str()).collect::<Vec<_>>(),
        ["cpu.usage", "memory.margin", "node.load1"]
    );
    for (column, series) in series.iter().enumerate() {
        let expected: Vec<_> = seeds
            .clone()
            .map(|seed| ((begin_us + seed * 1_000_000 + 7) * 1000, values(seed).1[column]))
            .collect();
        assert_eq!(
            reader.points(series.series_id, i64::MIN..i64::MAX).unwrap(),
            expected,
            "{}",
            series.metric
        );
    }
}

fn the_job(site: &Site) -> JobRow {
    let jobs = site.jobs();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs.into_iter().next().unwrap()
}

fn what_the_scheduler_told() -> [Event; 2] {
    let told = |is_over, facts| Event::JobFacts(JobFactsUpdate { job: JobHandle(1), is_over, facts });
    let begun = JobFacts {
        account: Some("physics".try_into().unwrap()),
        cores: Some(256),
        state: Some("RUNNING".try_into().unwrap()),
        ..JobFacts::default()
    };
    let over =
        JobFacts { state: Some("FAILED".try_into().unwrap()), exit_code: Some(3), ..JobFacts::default() };
    [told(false, begun), told(true, over)]
}

fn has_what_the_scheduler_told(found: &JobRow) {
    assert_eq!(
        (found.account.as_deref(), found.queue.as_deref(), found.cores),
        (Some("physics"), None, Some(256))
    );
    assert_eq!((found.state.as_deref(), found.exit_code, found.exit_signal), (Some("FAILED"), Some(3), None));
}

/// Checks the received tallies, and the counted rows of the source that sent no tally.
fn assert_ledger(ledger: &[LedgerRow], told: Tally) {
    let of = |source: &str| -> Vec<_> {
        let rows = ledger.iter().filter(|row| row.source == source);
        rows.map(|row| (row.node.as_str(), row.tally, row.stored)).collect()
    };
    let counted = Tally { due: 60, taken: 60, ..Tally::default() };
    assert_eq!(of("memory.stat"), [("n1", told, 0), ("n2", told, 0)]);
    assert_eq!(of("stat"), [("n1", counted, 60), ("n2", counted, 60)]);
}

fn reads_back_what_was_sampled(site: &mut Site) {
    let begin_us = now_us();
    let collector = site.collector();
    let tally = |due| Tally { due, taken: due - 1, late: 1, missed: 1, absent: 0, dropped: 0 };
    for (number, node) in ["n1", "n2"].into_iter().enumerate() {
        let mut agent = Agent::to(&site.context, &collector, node, 100 + number as u64);
        let job = job(1, "4711", begin_us + number as i64 * 1_000_000);
        let (own, of_job) = (shape(1, None), shape(2, Some(&job)));
        for seed in 0..20 {
            let (row, _) = values(seed);
            let time_us = begin_us + seed * 1_000_000 + 7;
            let entry = |due| LedgerEntry {
                job: Some(JobHandle(1)),
                source: "memory.stat".try_into().unwrap(),
                tally: tally(due),
            };
            agent.frame(&[(&own, time_us, &row), (&of_job, time_us, &row)], &[entry(seed as u64 + 1)], &[]);
        }
        let change = PlanChange {
            at_us: begin_us + 5,
            job: Some(JobHandle(1)),
            metric: MetricName::new("cpu.usage").unwrap(),
            old: Some(Period::SECOND),
            new: None,
            cause: Cause::JobEnd,
            by: Some("ada".try_into().unwrap()),
            until_us: None,
        };
        let ended = Event::JobEnded { job: JobHandle(1), at_us: begin_us + 30_000_000 + number as i64 };
        let [begun, over] = what_the_scheduler_told();
        agent.frame(&[], &[], &[begun, Event::PlanChange(change), ended, over]);
        agent.send_from(0);
        agent.settle();
    }
    let totals = collector.stop().unwrap();
    assert_eq!((totals.frames, totals.samples, totals.given_up), (42, 2 * 2 * 3 * 20, 0));

    let found = the_job(site);
    assert_eq!(
        (found.job_id.as_str(), found.owner_uid, found.owner.as_deref()),
        ("4711", Some(1000), Some("ada"))
    );
    assert_eq!((found.started_ns, found.ended_ns), (begin_us * 1000, Some((begin_us + 30_000_001) * 1000)));
    assert_eq!(found.nodes, ["n1", "n2"]);
    has_what_the_scheduler_told(&found);
    let mut reader = site.reader();
    let series = reader.series(SeriesScope::Job(found.job_key)).unwrap();
    assert_eq!(series.len(), 6);
    assert_eq!(series[2].labels.to_string(), "cpu=3,node=a=b");
    assert_eq!((series[0].unit.as_str(), series[0].kind.as_str()), ("nanoseconds", "counter"));
    assert_ticks(site, SeriesScope::Node("n2"), begin_us, 0..20);
    // The samples of the job are those within its time.
    let (mut ids, mut points) =
        (series.iter().map(|series| series.series_id).collect::<Vec<_>>(), Vec::new());
    let read = reader.samples(&ids, &found.sampled_ns, |sample| {
        points.push(sample);
        Ok::<_, StoreError>(())
    });
    read.unwrap();
    ids.sort_unstable();
    assert_eq!(points.len(), 6 * 20);
    assert!(points.is_sorted_by_key(|sample| (sample.series_id, sample.time_ns)));
    assert_eq!((points[0].series_id, points[119].series_id), (ids[0], ids[5]));
    let first: Vec<f64> = points
        .iter()
        .filter(|point| point.series_id == series[0].series_id)
        .map(|point| point.value)
        .collect();
    assert_eq!(first, (0..20).map(|seed| values(seed).1[0]).collect::<Vec<_>>());
    assert_ledger(&reader.ledger(found.job_key).unwrap(), tally(20));
    let changes = reader.plan_changes(found.job_key).unwrap();
    assert_eq!(changes.len(), 2);
    assert_eq!(
        (changes[0].old_period_us, changes[0].new_period_us, changes[0].cause.as_str()),
        (Some(1_000_000), None, "job_end")
    );
    assert_eq!(changes[0].actor.as_deref(), Some("ada"));
    assert!(reader.last_losses(u32::MAX).unwrap().is_empty());
}

fn repeated_frames_are_stored_once(site: &mut Site) {
    let begin_us = now_us();
    let collector = site.collector();
    let mut agent = Agent::to(&site.context, &collector, "n1", 1);
    let own = shape(1, None);
    for seed in 0..30 {
        let sequence = tick(&mut agent, &own, begin_us, seed);
        agent.send(sequence);
        agent.send(sequence);
        agent.send(1);
    }
    agent.send_from(0);
    let frames = agent.outbox.clone();
    agent.settle();
    // The frames are sent again long after they were acknowledged.
    frames.values().for_each(|bytes| agent.send_bytes(bytes));
    assert_eq!(agent.must_hear(), ToAgent::Ack { session: SessionId(1), through: 30 });
    let totals = collector.stop().unwrap();
    assert_eq!((totals.frames, totals.samples), (30, 90));
    assert_ticks(site, SeriesScope::Node("n1"), begin_us, 0..30);
}

fn requests_gaps_and_unknown_ids(site: &mut Site) {
    let (begin_us, session) = (now_us(), SessionId(5));
    let collector = site.collector();
    let mut agent = Agent::to(&site.context, &collector, "n1", 5);
    let own = shape(1, None);
    ticks(&mut agent, &own, begin_us, 0..4);
    agent.send(3);
    agent.send(4);
    assert_eq!(agent.must_hear(), ToAgent::Resend { session, from: 1 });
    agent.send_from(1);
    agent.settle();
    collector.stop().unwrap();

    // The new collector only knows the last sequence number of the session.
    let collector = site.collector();
    let sequence = tick(&mut agent, &own, begin_us, 4);
    wait_until("the collector asks", || {
        agent.send(sequence);
        agent.hear(100) == Some(ToAgent::NeedDictionary { session })
    });
    agent.send_bytes(&agent.dictionary().encode());
    agent.send(sequence);
    agent.settle();
    collector.stop().unwrap();
    assert_ticks(site, SeriesScope::Node("n1"), begin_us, 0..5);
    assert!(site.reader().last_losses(u32::MAX).unwrap().is_empty());
}

fn skipped_frames_are_a_loss(site: &mut Site) {
    let (begin_us, session) = (now_us(), SessionId(6));
    let collector = site.collector();
    let mut agent = Agent::to(&site.context, &collector, "n1", 6);
    let own = shape(1, None);
    ticks(&mut agent, &own, begin_us, 0..6);
    agent.send(1);
    agent.send(2);
    let span_us = (begin_us + 2_000_007, begin_us + 3_000_007);
    let lost = |reason| match reason {
        SkipReason::AlreadyAcknowledged | SkipReason::Damaged => Vec::new(),
        SkipReason::OutboxFull | SkipReason::Refused => {
            vec![Lost { job: None, source: "stat".try_into().unwrap(), samples: 6 }]
        }
    };
    let skipped = |first, last, reason| ToCollector::Skipped {
        session,
        first,
        last,
        reason,
        span_us,
        lost: lost(reason),
    };
    wait_until("two frames are committed", || {
        agent.send(1);
        agent.hear(100) == Some(ToAgent::Ack { session, through: 2 })
    });
    agent.skip(&skipped(3, 4, SkipReason::OutboxFull));
    agent.send_from(5);
    agent.settle();
    // The repeated skip is no loss. The skip of acknowledged frames, which are in another store, is a loss of
    // an unknown number.
    agent.skip(&skipped(3, 4, SkipReason::OutboxFull));
    agent.skip(&skipped(7, 9, SkipReason::AlreadyAcknowledged));
    wait_until("the skipped are acknowledged", || agent.must_hear() == ToAgent::Ack { session, through: 9 });
    collector.stop().unwrap();
    assert_ticks(site, SeriesScope::Node("n1"), begin_us, [0, 1, 4, 5].into_iter());
    let losses = site.reader().last_losses(u32::MAX).unwrap();
    let told: Vec<_> = losses.iter().map(|loss| (loss.samples, loss.reason.as_str())).collect();
    assert_eq!(told, [(6, "outbox_full"), (0, "store_replaced")], "{losses:?}");
    assert_eq!((losses[0].first_time_ns, losses[0].last_time_ns), (span_us.0 * 1000, span_us.1 * 1000));
}

fn restarted_collector_continues(site: &mut Site) {
    let begin_us = now_us();
    let own = shape(1, None);
    let mut agent = Agent::new(&site.context, &site.config().listen, "n1", 7);
    for life in 0..3 {
        let collector = site.collector();
        for seed in life * 10..life * 10 + 10 {
            let sequence = tick(&mut agent, &own, begin_us, seed);
            agent.send(sequence);
        }
        if life == 2 {
            agent.settle();
        }
        collector.stop().unwrap();
    }
    assert_ticks(site, SeriesScope::Node("n1"), begin_us, 0..30);
    assert!(site.reader().last_losses(u32::MAX).unwrap().is_empty());
}

fn invalid_messages_do_no_harm(site: &mut Site) {
    let begin_us = now_us();
    let collector = site.collector();
    let own = shape(1, None);
    let mut agent = Agent::to(&site.context, &collector, "n1", 8);
    let mut hostile = Agent::to(&site.context, &collector, "n2", 9);
    let good = {
        tick(&mut hostile, &own, begin_us, 0);
        hostile.outbox.remove(&1).unwrap()
    };
    let mut other_version = good.clone();
    other_version[3] = 9;
    for seed in 0..20_usize {
        let sequence = tick(&mut agent, &own, begin_us, seed as i64);
        agent.send(sequence);
        let mut flipped = good.clone();
        let at = seed * 5 % good.len();
        flipped[at] ^= 1 << (seed % 8);
        hostile.send_bytes(&flipped);
        hostile.send_bytes(&good[..seed * good.len() / 20]);
        hostile.send_bytes(&other_version);
        hostile.send_bytes(b"PLC\x02\xff\xff\xff");
        hostile.send_bytes(b"GET / HTTP/1.1");
    }
    agent.settle();
    let ToAgent::Refused { versions: (2, 2), reason, .. } = hostile.must_hear() else {
        panic!("{:?}", hostile.heard)
    };
    assert!(!reason.is_empty());
    assert_eq!(hostile.hear(50), None, "one answer in ten seconds");
    // The agent is killed.
    drop(hostile);
    let totals = collector.stop().unwrap();
    assert_eq!((totals.samples, totals.refused), (60, 100));
    assert_ticks(site, SeriesScope::Node("n1"), begin_us, 0..20);
}

fn reused_job_ids_are_other_jobs(site: &mut Site) {
    let begin_us = now_us() - 3600 * 1_000_000;
    let collector = site.collector();
    for (session, node, started_s, ended_s) in
        [(1, "n1", 0, Some(10)), (2, "n2", 5, Some(20)), (3, "n1", 100, None), (4, "n1", 100, None)]
    {
        let mut agent = Agent::to(&site.context, &collector, node, session);
        let job = job(1, "12", begin_us + started_s * 1_000_000);
        agent.frame(
            &[(&shape(1, Some(&job)), begin_us + (started_s + 1) * 1_000_000, &values(session as i64).0)],
            &[],
            &[],
        );
        if let Some(ended_s) = ended_s {
            agent.frame(
                &[],
                &[],
                &[Event::JobEnded { job: JobHandle(1), at_us: begin_us + ended_s * 1_000_000 }],
            );
        }
        agent.send_from(0);
        agent.settle();
    }
    collector.stop().unwrap();
    let jobs = site.jobs();
    let times: Vec<_> = jobs
        .iter()
        .map(|job| (job.started_ns / 1000 - begin_us, job.ended_ns.map(|ended| ended / 1000 - begin_us)))
        .collect();
    assert_eq!(times, [(0, Some(20_000_000)), (100_000_000, None)]);
    assert_eq!((jobs[0].nodes.len(), jobs[1].nodes.len()), (2, 1));
    // A restarted agent continues the existing series.
    assert_eq!(site.counts(SeriesScope::Job(jobs[1].job_key)), [2, 2, 2]);
}

fn samples_out_of_range_are_counted(site: &mut Site) {
    let begin_us = now_us();
    let collector = site.collector();
    let own = shape(1, None);
    let mut agent = Agent::to(&site.context, &collector, "n1", 10);
    let (row, _) = values(0);
    let row = row.as_slice();
    agent.frame(
        &[(&own, begin_us + 7, row), (&own, begin_us - 400 * 86_400 * 1_000_000, row), (&own, i64::MAX, row)],
        &[],
        &[],
    );
    // A time a month ago is accepted; on plain PostgreSQL it needs a partition that does not exist yet.
    agent.frame(&[(&own, begin_us - 30 * 86_400 * 1_000_000, row)], &[], &[]);
    agent.send_from(0);
    agent.settle();
    let totals = collector.stop().unwrap();
    assert_eq!((totals.samples, totals.losses.in_collector()), (6, 6));
    let losses = site.reader().last_losses(u32::MAX).unwrap();
    assert!(losses.iter().all(|loss| loss.reason == "clock"));
    assert_eq!(losses.iter().map(|loss| loss.samples).sum::<u64>(), 6);
}

const YEAR_US: i64 = 366 * 86_400 * 1_000_000;

fn quarantining(site: &Site) -> CollectorConfig {
    let clock = TimeRange { out_of_range: OutOfRangePolicy::Quarantine, ..TimeRange::default() };
    CollectorConfig { clock, ..site.config() }
}

/// Sends a tally and rows of a job's source: two rows with the current time and one from a clock that is two
/// years behind.
fn send_from_a_wrong_clock(agent: &mut Agent, begin_us: i64) {
    let (row, _) = values(1);
    let row = row.as_slice();
    let of_job = shape(1, Some(&job(1, "1", begin_us)));
    let tally = Tally { due: 12, taken: 9, late: 0, missed: 2, absent: 1, dropped: 0 };
    let entry = LedgerEntry { job: Some(JobHandle(1)), source: "stat".try_into().unwrap(), tally };
    let rows =
        [(&of_job, begin_us, row), (&of_job, begin_us - 2 * YEAR_US, row), (&of_job, begin_us + 7, row)];
    agent.frame(&rows, &[entry], &[]);
    agent.send_from(0);
}

fn samples_out_of_range_are_quarantined(site: &mut Site) {
    let begin_us = now_us();
    let collector = Collector::start(&quarantining(site), &site.context).unwrap();
    let mut agent = Agent::to(&site.context, &collector, "n1", 20);
    send_from_a_wrong_clock(&mut agent, begin_us);
    // The frame is sent twice, as after a lost acknowledgement.
    agent.send_from(0);
    agent.settle();
    let totals = collector.stop().unwrap();
    assert_eq!((totals.samples, totals.quarantined, totals.losses.in_collector()), (6, 3, 0));
    assert_eq!(site.number("SELECT count(*) FROM samples"), 6);
    let two_years = match site.kind {
        common::Kind::Sqlite => {
            format!("received - time BETWEEN {y}000 AND {y}000 + 3600000000000", y = 2 * YEAR_US)
        }
        _ => "received - time BETWEEN interval '732 days' AND interval '732 days 1 hour'".to_owned(),
    };
    let of_job = "samples_quarantine JOIN series USING (series_id) JOIN job USING (job_key)";
    assert_eq!(
        site.number(&format!("SELECT count(*) FROM {of_job} WHERE job.job_id = '1' AND {two_years}")),
        3
    );
    let adds_up = "due = missed + absent + dropped + skipped + rejected + quarantined + stored";
    let counts = "quarantined = 3 AND stored = 6 AND rejected = 0 AND job_key IS NOT NULL";
    assert_eq!(site.number(&format!("SELECT count(*) FROM ledger_balance WHERE {adds_up} AND {counts}")), 1);
    assert_eq!(site.number("SELECT sum(stored) FROM session"), 6);
    assert_eq!(site.number("SELECT count(*) FROM loss"), 0);
    let job_key = the_job(site).job_key;
    let ledger = site.reader().ledger(job_key).unwrap();
    assert_eq!((ledger[0].quarantined, ledger[0].stored), (3, 6));
    // No partition for a day two years ago was created in the table of the other samples.
    if site.kind == common::Kind::Postgres {
        let old = "SELECT count(*) FROM pg_class WHERE relname ~ '^samples_[0-9]{8}$'
             AND relname < 'samples_' || to_char(now() AT TIME ZONE 'UTC' - interval '2 days', 'YYYYMMDD')";
        assert_eq!(site.number(old), 0);
    }
    // The samples can be moved, as docs/explanation/security.md describes.
    if site.kind != common::Kind::Sqlite {
        site.execute(
            "INSERT INTO samples SELECT time + interval '732 days', series_id, value FROM samples_quarantine JOIN series USING (series_id) WHERE node = 'n1';
             DELETE FROM samples_quarantine USING series WHERE series.series_id = samples_quarantine.series_id AND node = 'n1'",
        );
        assert_eq!(site.number("SELECT count(*) FROM samples"), 9);
        assert_eq!(site.number("SELECT count(*) FROM samples_quarantine"), 0);
    }
}

/// The statements that made the schema of each version, in files that never change.
const SQLITE: [&str; 5] = [
    include_str!("../../store/schema/sqlite/1.sql"),
    include_str!("../../store/schema/sqlite/2.sql"),
    include_str!("../../store/schema/sqlite/3.sql"),
    include_str!("../../store/schema/sqlite/4.sql"),
    include_str!("../../store/schema/sqlite/5.sql"),
];
const POSTGRES: [&str; 5] = [
    include_str!("../../store/schema/postgres/1.sql"),
    include_str!("../../store/schema/postgres/2.sql"),
    include_str!("../../store/schema/postgres/3.sql"),
    include_str!("../../store/schema/postgres/4.sql"),
    include_str!("../../store/schema/postgres/5.sql"),
];

/// Creates a store in the state of an older version, with a job of 3 samples that its ledger counts.
fn make_store_of_version(site: &mut Site, version: usize) {
    site.execute("CREATE TABLE schema_version (version int4 NOT NULL)");
    for (number, (sqlite, postgres)) in (1..=version).zip(SQLITE.into_iter().zip(POSTGRES)) {
        let partitioning = if site.kind == common::Kind::Postgres { "PARTITION BY RANGE (time)" } else { "" };
        site.execute(&match site.kind {
            common::Kind::Sqlite => sqlite.to_owned(),
            _ => postgres
                .replace("/* PARTITIONING */", partitioning)
                .replace("/* WIDEN SAMPLES */", "ALTER TABLE samples ALTER COLUMN series_id TYPE int8;"),
        });
        site.execute(&format!("INSERT INTO schema_version VALUES ({number})"));
    }
    match site.kind {
        common::Kind::Sqlite => {}
        common::Kind::Postgres => {
            site.execute(include_str!("../../store/schema/postgres/partitions_1.sql"));
            site.execute("SELECT polymeter_create_partition(date '2026-01-01')");
        }
        common::Kind::Timescale => site.execute(
            "CREATE EXTENSION IF NOT EXISTS timescaledb;
             SELECT create_hypertable('samples', by_range('time', interval '1 day'), create_default_indexes => false);
             ALTER TABLE samples SET (timescaledb.compress, timescaledb.compress_segmentby = '',
                                      timescaledb.compress_orderby = 'series_id,time')",
        ),
    }
    let time = |seconds: u32| match site.kind {
        common::Kind::Sqlite => format!("{}", (1_767_225_600 + i64::from(seconds)) * 1_000_000_000),
        _ => format!("'2026-01-01 00:00:{seconds:02}+00'"),
    };
    let [zero, one, two] = [0, 1, 2].map(time);
    site.execute(&format!(
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
        site.execute(&format!(
            "INSERT INTO samples_apart VALUES ({zero}, 1, 40, {two});
             UPDATE ledger SET apart = 1, taken = 4, due = 6"
        ));
    }
    if version >= 5 {
        site.execute("UPDATE ledger SET handle = 1, stored = 3");
    }
    if version >= 5 && site.kind != common::Kind::Sqlite {
        // The samples of the newest frames are not counted in the ledger yet.
        site.execute(
            r#"UPDATE ledger SET stored = 1; UPDATE session SET pending = '{"1": 2}', ended = last_seen"#,
        );
    }
    if site.kind == common::Kind::Timescale {
        // The policy is created last, since its first run would interfere.
        site.execute("SELECT compress_chunk(chunk) FROM show_chunks('samples') AS chunk");
        site.execute("SELECT add_compression_policy('samples', compress_after => interval '2 days')");
    }
}

fn migrates_older_schemas_with_data(site: &mut Site) {
    for version in 1..=5 {
        let mut site = Site::new(site.kind);
        make_store_of_version(&mut site, version);
        let found = i32::try_from(version).unwrap();
        let Err(StoreError::OlderSchema { found: of }) = Reader::open(&site.url()) else {
            panic!("it is read")
        };
        assert_eq!(of, found);
        let collector = Collector::start(&quarantining(&site), &site.context).unwrap();
        let mut agent = Agent::to(&site.context, &collector, "n1", 21);
        send_from_a_wrong_clock(&mut agent, now_us());
        agent.settle();
        assert_eq!(collector.stop().unwrap().quarantined, 3);
        assert_eq!(site.number("SELECT max(version) FROM schema_version"), 6);
        let old = if version >= 4 { "('stat', 6, 3, 1, 0)" } else { "('stat', 5, 3, 0, 0)" };
        let found = format!(
            "SELECT count(*) FROM ledger_balance WHERE (source, due, stored, quarantined, unknown) IN ({old}, ('stat', 12, 6, 3, 0))"
        );
        assert_eq!(site.number(&found), 2, "version {version}");
        let quarantined = if version >= 4 { 4 } else { 3 };
        assert_eq!(site.number("SELECT count(*) FROM samples_quarantine"), quarantined, "version {version}");
        // No samples are lost, and there is room for more than 2^31 series.
        let mut reader = site.reader();
        let jobs = site.jobs();
        let old = jobs.iter().find(|job| job.job_id == "old").unwrap();
        let series = reader.series(SeriesScope::Job(old.job_key)).unwrap();
        let points = reader.points(series[0].series_id, i64::MIN..i64::MAX).unwrap();
        assert_eq!(points.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [10.0, 20.0, 30.0]);
        let key = Some(old.job_key);
        assert_eq!(reader.marks(key).unwrap()[0].actor.as_deref(), Some("uid 1000"));
        assert_eq!(reader.plan_changes(key).unwrap()[0].actor.as_deref(), Some("uid 1000"));
        let refused = reader.refused_requests(old.job_key).unwrap();
        let refused: Vec<_> = refused.iter().map(|row| (row.actor.as_deref(), row.reason.as_str())).collect();
        assert_eq!(
            refused,
            [(Some("zoe"), "period 10us refused: too short"), (None, "unknown metric")],
            "version {version}"
        );
        if site.kind != common::Kind::Sqlite {
            let narrow = "SELECT count(*) FROM information_schema.columns
                 WHERE table_schema = 'public' AND column_name IN ('series_id', 'job_key') AND data_type <> 'bigint'";
            assert_eq!(site.number(narrow), 0);
        }
        if site.kind == common::Kind::Timescale {
            let compressing = "SELECT count(*) FROM timescaledb_information.jobs WHERE proc_name LIKE 'policy_compression%' AND hypertable_name = 'samples'";
            assert_eq!(site.number(compressing), 1);
        }
    }
}

fn stop_commits_messages_in_the_socket(site: &mut Site) {
    let begin_us = now_us();
    let config = polymeter_collector::CollectorConfig {
        listen: "inproc://collector".to_owned(),
        commit_interval: std::time::Duration::from_secs(3600),
        ..site.config()
    };
    let collector = polymeter_collector::Collector::start(&config, &site.context).unwrap();
    let mut agent = Agent::to(&site.context, &collector, "n1", 11);
    let own = shape(1, None);
    ticks(&mut agent, &own, begin_us, 0..50);
    agent.send_from(0);
    let totals = collector.stop().unwrap();
    assert_eq!((totals.frames, totals.samples), (50, 150));
    agent.settle();
    assert_eq!(agent.heard.last(), Some(&ToAgent::Ack { session: SessionId(11), through: 50 }));
    assert_ticks(site, SeriesScope::Node("n1"), begin_us, 0..50);
}

fn refuses_a_newer_schema(site: &mut Site) {
    site.collector().stop().unwrap();
    site.execute("INSERT INTO schema_version VALUES (99)");
    let error = polymeter_collector::Collector::start(&site.config(), &site.context).unwrap_err();
    let CollectorStartError::Store { source, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(source, StoreError::NewerSchema { found: 99 }), "{source:?}");
    assert!(source.to_string().contains("use a newer polymeter-collector"), "{source}");
    let Err(StoreError::NewerSchema { found: 99 }) = Reader::open(&site.url()) else { panic!("it is read") };
    // A collector migrates an older store; readers refuse it before.
    site.execute("DELETE FROM schema_version WHERE version > 1");
    let Err(StoreError::OlderSchema { found: 1 }) = Reader::open(&site.url()) else { panic!("it is read") };
}
