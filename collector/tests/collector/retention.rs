//! Tests of retention: what is removed at which age, and what stays.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use polymeter_collector::{Collector, CollectorConfig};
use polymeter_proto::batch::Shape;
use polymeter_store::reader::{Rollup, SeriesScope};
use polymeter_store::{
    Administration, ControlRequest, ControlTable, Keep, Level, NewControlRequest, Part, Pruned, Replaced,
    Retention, StoredToken, TokenTable, prune, set_retention,
};

use crate::support::agent::{Agent, job, shape};
use crate::support::program::RunningCollector;
use crate::support::{Kind, TestEnvironment, now_us, only_job, wait_until};

scenarios![
    each_level_is_kept_for_its_time,
    a_year_in_fast_motion,
    the_space_of_removed_rows_is_returned,
    an_interrupted_removal_loses_nothing,
    a_released_job_is_removed,
    metadata_goes_with_the_last_level,
    samples_can_be_removed_earlier,
    the_collector_removes_old_samples,
    samples_older_than_their_retention_are_rejected,
    nothing_becomes_old_after_a_jump_of_the_clock,
];

const SECOND_US: i64 = 1_000_000;
const HOUR_US: i64 = 3600 * SECOND_US;
const DAY_US: i64 = 24 * HOUR_US;

/// Days with samples, counted back from today. The first is in a month that ended more than a year ago.
const DAYS: [i64; 7] = [430, 300, 200, 120, 60, 10, 1];

const JOB_DAY: i64 = 200;

/// One sample every 10 s, for an hour.
const OF_DAY: i64 = 360;

/// Series of a node, and as many of a job.
const SERIES: i64 = 3;

/// Noon, when the samples of a day begin. A test that runs at midnight has the same days before and after.
fn begin_us(days_ago: i64) -> i64 {
    static TODAY: OnceLock<i64> = OnceLock::new();
    (TODAY.get_or_init(|| now_us() / DAY_US) - days_ago) * DAY_US + 12 * HOUR_US
}

/// Accepts samples of every day, and leaves the policy of the store in force.
fn config(environment: &TestEnvironment) -> CollectorConfig {
    let mut config = CollectorConfig { retention: None, ..environment.config() };
    config.clock.max_age = Duration::from_secs(500 * 86_400);
    config
}

const OF_JOB: i64 = OF_DAY - 60;

/// Writes a counter, a gauge and a double of a node on all days, and those of a job on one day.
fn fill(environment: &mut TestEnvironment) {
    let collector = Collector::start(&config(environment), &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let job = job(1, "4711", begin_us(JOB_DAY) + (OF_DAY - OF_JOB) * 10 * SECOND_US);
    let (of_node, of_job) = (shape(1, None), shape(2, Some(&job)));
    for day in DAYS {
        send(&mut agent, &of_node, day, 0..OF_DAY);
        if day == JOB_DAY {
            send(&mut agent, &of_job, day, OF_DAY - OF_JOB..OF_DAY);
        }
    }
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    let end_us = begin_us(JOB_DAY) + HOUR_US;
    let end = match environment.kind {
        Kind::Sqlite => format!("{}", end_us * 1000),
        Kind::Postgres | Kind::Timescale | Kind::Citus => format!("to_timestamp({})", end_us / SECOND_US),
    };
    environment.execute(&format!("UPDATE job SET ended = {end}; UPDATE job_node SET ended = {end}"));
    if environment.kind == Kind::Timescale {
        // The maintenance may have begun among the samples, and adds later ones ten minutes later.
        for relation in ["samples_10s", "samples_1min", "samples_1h"] {
            environment.execute(&format!("CALL refresh_continuous_aggregate('{relation}', NULL, NULL)"));
        }
    }
}

fn send(agent: &mut Agent, shape: &Arc<Shape>, day: i64, numbers: Range<i64>) {
    for part in numbers.collect::<Vec<_>>().chunks(60) {
        let values: Vec<_> = part.iter().map(|number| row(day, *number)).collect();
        let rows: Vec<_> = part
            .iter()
            .zip(&values)
            .map(|(number, values)| (shape, begin_us(day) + number * 10 * SECOND_US, values.as_slice()))
            .collect();
        let sequence = agent.frame(&rows, &[], &[]);
        agent.send(sequence);
    }
}

/// A counter that grows over all days, and gauges.
fn row(day: i64, number: i64) -> [Option<u64>; 3] {
    let counter = ((500 - day) * OF_DAY + number).cast_unsigned();
    [Some(counter), Some(counter % 1000), Some((number as f64).to_bits())]
}

fn of_days(environment: &TestEnvironment, level: Level) -> Vec<i64> {
    DAYS.into_iter()
        .map(|day| {
            let (begin, end) = (begin_us(day), begin_us(day) + HOUR_US);
            let range = match environment.kind {
                Kind::Sqlite => format!("time >= {} AND time < {}", begin * 1000, end * 1000),
                Kind::Postgres | Kind::Timescale | Kind::Citus => format!(
                    "time >= to_timestamp({}) AND time < to_timestamp({})",
                    begin / SECOND_US,
                    end / SECOND_US
                ),
            };
            environment.number(&format!("SELECT count(*) FROM {} WHERE {range}", level.relation()))
        })
        .collect()
}

/// Rows per day of a level of which all days before `cutoff` are gone, except for that of the job if it is
/// kept.
fn expected(level: Level, cutoff: Option<i64>, keeps_job: bool) -> Vec<i64> {
    let per_hour = match level {
        Level::Samples | Level::TenSeconds => OF_DAY,
        Level::Minute => 60,
        Level::Hour => 1,
    };
    let of_job = if level == Level::Hour { 1 } else { per_hour * OF_JOB / OF_DAY };
    DAYS.into_iter()
        .map(|day| {
            let job = if day == JOB_DAY { of_job * SERIES } else { 0 };
            let is_there = cutoff.is_none_or(|days| day < days) || day == JOB_DAY && keeps_job;
            if is_there { per_hour * SERIES + job } else { 0 }
        })
        .collect()
}

fn assert_levels(environment: &TestEnvironment, cutoffs: [Option<i64>; 4], keeps_job: bool) {
    for (level, cutoff) in Level::ALL.into_iter().zip(cutoffs) {
        assert_eq!(of_days(environment, level), expected(level, cutoff, keeps_job), "{level:?} of {DAYS:?}");
    }
}

/// Count, sum and increase of all hours.
fn hours(environment: &TestEnvironment) -> Vec<Vec<f64>> {
    environment.rows(
        "SELECT series_id, sum(count), sum(sum), sum(increase), min(first), max(last) FROM samples_1h GROUP BY series_id ORDER BY series_id",
    )
}

/// Read as a report reads them.
fn samples_of_job(environment: &TestEnvironment) -> Vec<Vec<(i64, f64)>> {
    let (job, mut reader) = (only_job(environment), environment.reader());
    let series = reader.series(SeriesScope::Job(job.job_key)).unwrap();
    assert_eq!(series.len(), 3);
    series.iter().map(|row| reader.points(row.series_id, job.sampled_ns.clone()).unwrap()).collect()
}

/// Rows of the job in the view of Kwollect's users.
fn rows_of_view(environment: &TestEnvironment) -> i64 {
    environment.number("SELECT count(*) FROM metrics_by_job WHERE job_id = '4711'")
}

/// Returns the levels of the parts that are removed.
fn prune_now(environment: &TestEnvironment, before_us: Option<i64>) -> Vec<(Level, Pruned)> {
    let mut pruned = Vec::new();
    prune(&environment.url(), before_us, |part: &Part, result| pruned.push((part.level, result))).unwrap();
    pruned
}

fn administration(environment: &TestEnvironment) -> Administration {
    Administration::open(&environment.url()).unwrap()
}

const DEFAULT_CUTOFFS: [Option<i64>; 4] = [Some(90), Some(90), Some(365), None];

fn each_level_is_kept_for_its_time(environment: &mut TestEnvironment) {
    fill(environment);
    let url = environment.url();
    assert_eq!(prune_now(environment, None), [], "a new store keeps all");
    assert_levels(environment, [None; 4], true);
    let (hours_before, samples, rows) =
        (hours(environment), samples_of_job(environment), rows_of_view(environment));
    assert_eq!(rows, OF_JOB * 2 * SERIES);
    set_retention(&url, &Retention::default()).unwrap();
    let job_key = only_job(environment).job_key;
    administration(environment).keep(job_key, None).unwrap();
    // What is due changes nothing.
    let due = administration(environment).due(None).unwrap();
    assert!(due.iter().any(|part| part.level == Level::Samples), "{due:?}");
    assert!(due.iter().any(|part| part.kept_jobs == [job_key]), "{due:?}");
    assert_levels(environment, [None; 4], true);
    let pruned = prune_now(environment, None);
    assert!(pruned.len() >= due.len(), "{pruned:?}");
    assert!(pruned.iter().all(|(_, result)| *result != Pruned::Postponed), "{pruned:?}");
    // The samples of the node stay while the job ran there, and an hour before and after.
    assert_levels(environment, DEFAULT_CUTOFFS, true);
    assert_eq!(samples_of_job(environment), samples);
    let job = only_job(environment);
    assert_eq!(environment.reader().finest_rollup(&job).unwrap(), None, "it is kept");
    assert_eq!(rows_of_view(environment), rows);
    assert_eq!(hours(environment), hours_before);
    assert_eq!(administration(environment).due(None).unwrap(), []);
    assert_eq!(prune_now(environment, None), []);
    let states = administration(environment).retention().unwrap();
    let dropped: Vec<_> = states
        .iter()
        .map(|state| state.dropped_before_us.map(|time_us| (now_us() - time_us) / DAY_US))
        .collect();
    assert!(dropped[0].is_some_and(|days| (90..=120).contains(&days)) && dropped[3].is_none(), "{dropped:?}");
    // Further maintenance computes nothing again that is gone.
    let collector = Collector::start(&config(environment), &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n2", 2);
    send(&mut agent, &shape(1, None), 1, 0..OF_DAY);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    prune_now(environment, None);
    assert_eq!(hours(environment)[..6], hours_before);
}

/// Size of an SQLite store, after the log is written into the file.
fn file_bytes(environment: &mut TestEnvironment) -> Option<u64> {
    let url = environment.url();
    let path = url.file()?;
    environment.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    Some(std::fs::metadata(path).unwrap().len())
}

fn the_space_of_removed_rows_is_returned(environment: &mut TestEnvironment) {
    fill(environment);
    let before = file_bytes(environment);
    let storage = administration(environment).storage().unwrap();
    assert_eq!(storage.jobs, 1);
    assert!(storage.bytes > 100_000 && storage.returns_space, "{storage:?}");
    prune_now(environment, None);
    let day = Keep::Days(1);
    let retention = Retention { samples: day, ten_seconds: day, minute: day, hour: Keep::Forever };
    set_retention(&environment.url(), &retention).unwrap();
    prune_now(environment, None);
    let after = administration(environment).storage().unwrap();
    if environment.kind == Kind::Sqlite {
        assert!(
            storage.free_bytes * 10 <= storage.bytes && after.free_bytes * 10 <= after.bytes,
            "{after:?}"
        );
        let (before, after) = (before.unwrap(), file_bytes(environment).unwrap());
        assert!(after < before, "{before} bytes, then {after}");
    } else {
        let [before, of_samples] = [&storage, &after].map(|storage| {
            storage.levels.iter().find(|size| size.level == Level::Samples).map_or(0, |size| size.bytes)
        });
        assert!(of_samples < before, "{after:?}");
        assert!(after.parts.len() < storage.parts.len() + 10, "{after:?}");
    }
    // The writer goes on in the smaller file.
    let collector = Collector::start(&config(environment), &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n3", 3);
    send(&mut agent, &shape(1, None), 0, 0..OF_DAY);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
}

fn a_year_in_fast_motion(environment: &mut TestEnvironment) {
    fill(environment);
    // A new store keeps all, and adds samples to the rollups that arrived while these were computed.
    assert_eq!(prune_now(environment, None), []);
    let hours_before = hours(environment);
    // Time passes as the policy shrinks: each day is removed in its turn.
    for days in [420, 290, 190, 100, 50, 5] {
        let keep = Keep::Days(days.try_into().unwrap());
        let retention = Retention { samples: keep, ten_seconds: keep, minute: keep, hour: Keep::Forever };
        set_retention(&environment.url(), &retention).unwrap();
        prune_now(environment, None);
        let stays =
            |level| of_days(environment, level).iter().map(|rows| i64::from(*rows > 0)).collect::<Vec<_>>();
        let expected: Vec<_> = DAYS.iter().map(|day| i64::from(*day < days)).collect();
        assert_eq!(stays(Level::Samples), expected, "{days}");
        assert_eq!(stays(Level::TenSeconds), expected, "{days}");
        assert_eq!(hours(environment), hours_before, "{days}");
    }
}

fn an_interrupted_removal_loses_nothing(environment: &mut TestEnvironment) {
    fill(environment);
    prune_now(environment, None);
    let (hours_before, samples) = (hours(environment), samples_of_job(environment));
    let job_key = only_job(environment).job_key;
    administration(environment).keep(job_key, None).unwrap();
    // The month of the day before is over on each day of the year: minutes are removed month by month.
    let retention = Retention { minute: Keep::Days(85), ..Retention::default() };
    let removing = CollectorConfig { retention: Some(retention), ..config(environment) };
    for round in 0..8 {
        let collector = Collector::start(&removing, &environment.context).unwrap();
        std::thread::park_timeout(Duration::from_millis(8 << round));
        collector.stop().unwrap();
        assert_eq!(samples_of_job(environment), samples, "round {round}");
        let kept = of_days(environment, Level::Samples)[2];
        let all = (OF_DAY + OF_JOB) * SERIES;
        assert_eq!(kept, all, "round {round}");
    }
    prune_now(environment, None);
    assert_levels(environment, [Some(90), Some(90), Some(85), None], true);
    assert_eq!(samples_of_job(environment), samples);
    assert_eq!(hours(environment), hours_before);
}

fn a_released_job_is_removed(environment: &mut TestEnvironment) {
    fill(environment);
    set_retention(&environment.url(), &Retention::default()).unwrap();
    let job_key = only_job(environment).job_key;
    // The exemption of a job may end at a time.
    administration(environment).keep(job_key, Some(now_us() + DAY_US)).unwrap();
    let kept = administration(environment).kept_jobs().unwrap();
    assert_eq!((kept.len(), kept[0].job_id.as_str()), (1, "4711"));
    prune_now(environment, None);
    assert_levels(environment, DEFAULT_CUTOFFS, true);
    administration(environment).keep(job_key, Some(now_us() - DAY_US)).unwrap();
    prune_now(environment, None);
    assert_levels(environment, DEFAULT_CUTOFFS, false);
    administration(environment).release(job_key).unwrap();
    let job = only_job(environment);
    assert_eq!(environment.reader().finest_rollup(&job).unwrap(), Some(Rollup::Minute));
    administration(environment).keep(job_key, None).unwrap();
    assert!(administration(environment).release(job_key).unwrap());
    assert!(!administration(environment).release(job_key).unwrap());
    assert_eq!(administration(environment).kept_jobs().unwrap(), []);
}

fn count(environment: &TestEnvironment, table: &str) -> i64 {
    environment.number(&format!("SELECT count(*) FROM {table}"))
}

fn run_until(environment: &TestEnvironment, config: &CollectorConfig, finished: impl FnMut() -> bool) {
    let collector = Collector::start(config, &environment.context).unwrap();
    wait_until("the metadata is removed", finished);
    collector.stop().unwrap();
}

fn metadata_goes_with_the_last_level(environment: &mut TestEnvironment) {
    fill(environment);
    let collector = Collector::start(&config(environment), &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n0", 7);
    send(&mut agent, &shape(1, None), DAYS[0], 0..OF_DAY);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    let old = match environment.kind {
        Kind::Sqlite => format!("{}", begin_us(150) * 1000),
        Kind::Postgres | Kind::Timescale | Kind::Citus => {
            format!("to_timestamp({})", begin_us(150) / SECOND_US)
        }
    };
    // The nodes sent nothing later.
    environment.execute(&format!("UPDATE session SET ended = {old}, last_seen = {old}"));
    let tables = ["series", "series_block", "series_shape", "ledger_line", "session", "job", "job_node"];
    let counts = |environment: &TestEnvironment| tables.map(|table| count(environment, table));
    assert_eq!(counts(environment), [9, 3, 1, 3, 2, 1, 1]);
    let ten = Keep::Days(10);
    let retention = Retention { samples: ten, ten_seconds: ten, minute: ten, hour: ten };
    let job_key = only_job(environment).job_key;
    administration(environment).keep(job_key, None).unwrap();
    // The rows of all levels are removed first, the metadata by the next round.
    let removing = CollectorConfig { retention: Some(retention), ..config(environment) };
    set_retention(&environment.url(), &retention).unwrap();
    prune_now(environment, None);
    // TimescaleDB has chunks of 28 days of the summaries of an hour.
    let gone = administration(environment).retention().unwrap()[3].dropped_before_us.unwrap();
    assert!(gone > begin_us(150), "{gone}");
    run_until(environment, &removing, || count(environment, "session") == 1);
    assert_eq!(counts(environment), [6, 2, 1, 2, 1, 1, 1], "the job and its node are kept");
    administration(environment).release(job_key).unwrap();
    run_until(environment, &removing, || {
        count(environment, "session") == 0 && count(environment, "series_shape") == 0
    });
    assert_eq!(counts(environment), [0, 0, 0, 0, 0, 1, 1], "jobs stay");
    // Ids are not used again.
    let collector = Collector::start(&config(environment), &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 9);
    send(&mut agent, &shape(1, None), 1, 0..10);
    agent.wait_until_acknowledged();
    collector.stop().unwrap();
    assert_eq!(environment.number("SELECT min(series_id) FROM series"), 10);
}

fn samples_can_be_removed_earlier(environment: &mut TestEnvironment) {
    fill(environment);
    // Those that may not be in the summaries yet cannot.
    for time_us in [now_us(), now_us() + DAY_US] {
        let error = prune(&environment.url(), Some(time_us), |_, _| ()).unwrap_err().to_string();
        assert!(error.contains("cannot remove samples of the last hour"), "{error}");
        assert!(administration(environment).due(Some(time_us)).is_err());
    }
    assert_levels(environment, [None; 4], false);
    let hours_before = hours(environment);
    prune_now(environment, Some(now_us() - 30 * DAY_US));
    assert_levels(environment, [Some(30), None, None, None], false);
    assert_eq!(hours(environment), hours_before);
    let job = only_job(environment);
    assert_eq!(environment.reader().finest_rollup(&job).unwrap(), Some(Rollup::TenSeconds));
}

fn the_collector_removes_old_samples(environment: &mut TestEnvironment) {
    fill(environment);
    let removing = CollectorConfig { retention: Some(Retention::default()), ..config(environment) };
    let collector = Collector::start(&removing, &environment.context).unwrap();
    wait_until("the old days are removed", || {
        Level::ALL
            .into_iter()
            .zip(DEFAULT_CUTOFFS)
            .all(|(level, cutoff)| of_days(environment, level) == expected(level, cutoff, false))
    });
    collector.stop().unwrap();
}

fn samples_older_than_their_retention_are_rejected(environment: &mut TestEnvironment) {
    let removing = CollectorConfig { retention: Some(Retention::default()), ..config(environment) };
    let collector = Collector::start(&removing, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    for day in [120, 60] {
        send(&mut agent, &shape(1, None), day, 0..OF_DAY);
    }
    agent.wait_until_acknowledged();
    let totals = collector.stop().unwrap();
    assert_eq!(totals.losses.in_collector(), (OF_DAY * SERIES).cast_unsigned());
    assert_eq!(of_days(environment, Level::Samples)[3..5], [0, OF_DAY * SERIES]);
}

fn store_request(table: &mut ControlTable, days_ago: i64) {
    let at_us = now_us() - days_ago * DAY_US;
    let request = ControlRequest {
        collector_id: "c".to_owned(),
        job_id: "4711".to_owned(),
        uid: 1,
        line: "{}".to_owned(),
        is_lasting: false,
        at_us,
        expires_us: at_us,
    };
    let new = NewControlRequest { request_id: days_ago.to_string(), request, wanted: Vec::new() };
    table.take(&new, at_us, |_| Replaced::default()).unwrap();
}

fn token(id: &str, days_ago: i64) -> StoredToken {
    StoredToken {
        id: id.to_owned(),
        digest: String::new(),
        uid: 1,
        name: None,
        scope: "read".to_owned(),
        created_us: now_us() - 400 * DAY_US,
        expires_us: now_us() - days_ago * DAY_US,
        used_us: None,
    }
}

/// The program starts with a clock that is ahead of the last maintenance by 100 days.
fn nothing_becomes_old_after_a_jump_of_the_clock(environment: &mut TestEnvironment) {
    fill(environment);
    let ahead = if environment.kind == Kind::Sqlite { "100 * 86400000000000" } else { "interval '100 days'" };
    environment.execute(&format!("UPDATE clock_check SET accepted = accepted - {ahead}"));
    let job_key = only_job(environment).job_key;
    administration(environment).keep(job_key, Some(now_us() - 50 * DAY_US)).unwrap();
    let mut requests = ControlTable::open(&environment.url()).unwrap();
    [150, 50].into_iter().for_each(|days_ago| store_request(&mut requests, days_ago));
    let mut tokens = TokenTable::open(&environment.url()).unwrap();
    for (id, days_ago) in [("a", 150), ("b", 50), ("c", -1)] {
        assert!(tokens.create(&token(id, days_ago), 9, now_us() - 30 * DAY_US).unwrap());
    }
    assert_eq!(environment.lines("SELECT token_id FROM api_token ORDER BY 1"), ["b", "c"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("collector.toml");
    std::fs::write(&file, "[retention]\nraw = '90d'\n10s = '90d'\n1min = '1y'\n1h = 'forever'\n").unwrap();
    let store = match &environment.server {
        Some(server) => server.url(),
        None => environment.url().to_string(),
    };
    let collector = RunningCollector::start(&store, &["--config", file.to_str().unwrap()]);
    // This is the last task of the round that removes rows.
    wait_until("the old request is removed", || {
        environment.lines("SELECT request_id FROM control_request") == ["50"]
    });
    let lines = collector.stop();
    let said = lines.iter().filter(|line| {
        line.contains("cannot remove old rows")
            && line.contains("100 days after")
            && line.contains("confirm-clock")
    });
    assert_eq!(said.count(), 1, "{lines:?}");
    // By the last plausible time what it did not keep is gone, and the kept job is still kept.
    let by_accepted = [Some(190), Some(190), Some(465), None];
    assert_levels(environment, by_accepted, true);
    let jump = administration(environment).clock_jump().unwrap().unwrap();
    assert_eq!(jump.ahead_us() / DAY_US, 100, "{jump:?}");
    // Whoever corrects the clock reads of no jump any more, also before the next round of maintenance.
    let hour = if environment.kind == Kind::Sqlite { "3600000000000" } else { "interval '1 hour'" };
    let accepted = environment.lines("SELECT CAST(accepted AS text) FROM clock_check").concat();
    let now =
        if environment.kind == Kind::Sqlite { format!("{}", now_us() * 1000) } else { "now()".to_owned() };
    environment.execute(&format!("UPDATE clock_check SET accepted = {now} - {hour}"));
    assert_eq!(administration(environment).clock_jump().unwrap(), None);
    environment.execute(&format!("UPDATE clock_check SET accepted = '{accepted}'"));
    assert_eq!(
        administration(environment).clock_jump().unwrap().map(|jump| jump.ahead_us() / DAY_US),
        Some(100)
    );
    let refused = prune(&environment.url(), None, |part, _| panic!("{part:?}")).unwrap_err().to_string();
    assert!(refused.contains("store confirm-clock"), "{refused}");
    assert_levels(environment, by_accepted, true);
    let confirmed = administration(environment).confirm_clock().unwrap();
    assert_eq!(
        (confirmed.ahead_us() / DAY_US, administration(environment).clock_jump().unwrap()),
        (100, None)
    );
    prune_now(environment, None);
    assert_levels(environment, DEFAULT_CUTOFFS, false);
}
