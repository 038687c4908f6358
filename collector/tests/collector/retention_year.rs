//! A year of retention in fast motion, with the default policy: samples for 90 days, summaries of a minute
//! for a year, those of an hour for ever. The time of the test goes from a year ago to today: at each step
//! the policy keeps rows as if it were that day, samples of the day arrive, and others of which an agent kept
//! a spool.

use std::time::Duration;

use polymeter_collector::{Collector, CollectorConfig};
use polymeter_store::reader::{JobRow, Rollup, SeriesScope};
use polymeter_store::{Administration, Keep, Level, Pruned, Retention, prune, set_retention};

use crate::support::agent::{Agent, Row, job, shape};
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

scenarios![a_year_with_late_samples_and_a_kept_job];

const SECOND_US: i64 = 1_000_000;
const HOUR_US: i64 = 3600 * SECOND_US;
const DAY_US: i64 = 24 * HOUR_US;

/// Days of the steps, counted back from today.
const STEPS: [u32; 7] = [360, 300, 240, 180, 120, 60, 1];

/// Age in days.
const LATE: i64 = 20;

/// Age in days of samples that are older than the policy keeps any.
const TOO_LATE: i64 = 100;

/// One sample every 10 s, for ten minutes.
const OF_DAY: i64 = 60;

/// Series of a node, and as many of a job.
const SERIES: i64 = 3;

/// Days of the jobs, whose samples arrive late. The first one is kept.
const JOB_DAYS: [i64; 2] = [300 + LATE, 240 + LATE];

/// Default policy, as it was `days` ago.
const fn policy(days: u32) -> Retention {
    Retention {
        samples: Keep::Days(90 + days),
        ten_seconds: Keep::Days(90 + days),
        minute: Keep::Days(365 + days),
        hour: Keep::Forever,
    }
}

fn begin_us(today: i64, days_ago: i64) -> i64 {
    (today - days_ago) * DAY_US + 12 * HOUR_US
}

/// Sends the samples of the node, and of a job if one ran on that day.
fn send(agent: &mut Agent, begin_us: i64, job_id: Option<&str>) {
    let job = job_id.map(|id| job(1, id, begin_us));
    let shapes: Vec<_> =
        [Some(shape(1, None)), job.as_ref().map(|job| shape(2, Some(job)))].into_iter().flatten().collect();
    let values = |number: i64| [number, number % 7, number].map(|value| Some(value.cast_unsigned()));
    let rows: Vec<_> =
        (0..OF_DAY).map(|number| (begin_us + number * 10 * SECOND_US, values(number))).collect();
    let rows: Vec<Row<'_>> = shapes
        .iter()
        .flat_map(|shape| rows.iter().map(move |(time_us, values)| (shape, *time_us, values.as_slice())))
        .collect();
    let sequence = agent.frame(&rows, &[], &[]);
    agent.send(sequence);
    agent.wait_until_acknowledged();
}

fn rows_of_day(environment: &TestEnvironment, level: Level, begin_us: i64) -> i64 {
    let [begin, end] = [begin_us, begin_us + HOUR_US].map(|time_us| match environment.kind {
        Kind::Sqlite => format!("{}", time_us * 1000),
        Kind::Postgres | Kind::Timescale | Kind::Citus => format!("to_timestamp({})", time_us / SECOND_US),
    });
    let count = if level == Level::Samples { "count(*)" } else { "CAST(coalesce(sum(count), 0) AS bigint)" };
    let relation = level.relation();
    environment.number(&format!("SELECT {count} FROM {relation} WHERE time >= {begin} AND time < {end}"))
}

fn end_job(environment: &mut TestEnvironment, begin_us: i64) {
    let end_us = begin_us + OF_DAY * 10 * SECOND_US;
    let end = match environment.kind {
        Kind::Sqlite => format!("{}", end_us * 1000),
        Kind::Postgres | Kind::Timescale | Kind::Citus => format!("to_timestamp({})", end_us / SECOND_US),
    };
    environment.execute(&format!(
        "UPDATE job SET ended = {end} WHERE ended IS NULL; UPDATE job_node SET ended = {end} WHERE ended IS NULL"
    ));
}

fn job_of(environment: &TestEnvironment, id: &str) -> JobRow {
    environment.reader().last_job(Some(id)).unwrap().unwrap()
}

fn prune_all(environment: &TestEnvironment) {
    prune(&environment.url(), None, |part, result| assert_ne!(result, Pruned::Postponed, "{part:?}"))
        .unwrap();
}

fn a_year_with_late_samples_and_a_kept_job(environment: &mut TestEnvironment) {
    let today = now_us() / DAY_US;
    // The samples of each day that were stored, all series together.
    let mut stored: Vec<(i64, i64)> = Vec::new();
    for (session, days) in (1..).zip(STEPS) {
        let age = i64::from(days);
        let mut config = CollectorConfig { retention: Some(policy(days)), ..environment.config() };
        config.clock.max_age = Duration::from_secs(500 * 86_400);
        let collector = Collector::start(&config, &environment.context).unwrap();
        let mut agent = Agent::to(&environment.context, &collector, "n1", session);
        send(&mut agent, begin_us(today, age), None);
        let job_id = JOB_DAYS.contains(&(age + LATE)).then(|| format!("of day {}", age + LATE));
        send(&mut agent, begin_us(today, age + LATE), job_id.as_deref());
        send(&mut agent, begin_us(today, age + TOO_LATE), None);
        let totals = collector.stop().unwrap();
        assert_eq!(totals.losses.in_collector(), (OF_DAY * SERIES).cast_unsigned(), "{days}: those too late");
        let of_late = if job_id.is_some() { 2 } else { 1 };
        stored.extend([(age, OF_DAY * SERIES), (age + LATE, OF_DAY * SERIES * of_late)]);
        end_job(environment, begin_us(today, age + LATE));
        if age + LATE == JOB_DAYS[0] {
            let job_key = job_of(environment, &format!("of day {}", JOB_DAYS[0])).job_key;
            Administration::open(&environment.url()).unwrap().keep(job_key, None).unwrap();
        }
        // The maintenance adds late samples to the summaries before it removes old ones.
        let collector = Collector::start(&config, &environment.context).unwrap();
        wait_until("the samples of both days are summarised", || {
            [(age, 1), (age + LATE, of_late)].into_iter().all(|(day, shapes)| {
                rows_of_day(environment, Level::Hour, begin_us(today, day)) == OF_DAY * SERIES * shapes
            })
        });
        collector.stop().unwrap();
        set_retention(&environment.url(), &policy(days)).unwrap();
        prune_all(environment);
        for (day, count) in &stored {
            let (is_kept, begin_us) = (*day == JOB_DAYS[0], begin_us(today, *day));
            let expected = |limit: i64| if day - age < limit || is_kept { *count } else { 0 };
            let rows = |level| rows_of_day(environment, level, begin_us);
            assert_eq!(rows(Level::Samples), expected(90), "step {days}, day {day}");
            assert_eq!(rows(Level::TenSeconds), expected(90), "step {days}, day {day}");
            // A partition or chunk of a month is dropped when all of it is old.
            let minutes = rows(Level::Minute);
            assert!(minutes == *count || minutes == expected(365), "step {days}, day {day}: {minutes}");
            assert!(minutes == *count || day - age >= 365, "step {days}, day {day}: {minutes}");
            assert_eq!(rows(Level::Hour), *count, "step {days}, day {day}: hours are kept for ever");
        }
    }
    let [kept, other] = JOB_DAYS.map(|day| job_of(environment, &format!("of day {day}")));
    let mut reader = environment.reader();
    assert_eq!(reader.finest_rollup(&kept).unwrap(), None);
    assert_eq!(reader.finest_rollup(&other).unwrap(), Some(Rollup::Minute));
    assert_eq!(environment.counts(SeriesScope::Job(kept.job_key)), [60; 3]);
    // With the last level the metadata of the other job goes.
    let last = Retention { hour: Keep::Days(90), minute: Keep::Days(90), ..Retention::default() };
    set_retention(&environment.url(), &last).unwrap();
    prune_all(environment);
    let config = CollectorConfig { retention: Some(last), ..environment.config() };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let blocks = |job: &JobRow| format!("SELECT count(*) FROM series_block WHERE job_key = {}", job.job_key);
    wait_until("the metadata is removed", || environment.number(&blocks(&other)) == 0);
    collector.stop().unwrap();
    assert_eq!(environment.number(&blocks(&kept)), 1);
    assert_eq!(environment.counts(SeriesScope::Job(kept.job_key)), [60; 3]);
    assert_eq!(environment.number("SELECT count(*) FROM job"), 2, "jobs stay");
}
