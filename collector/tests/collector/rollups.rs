//! Tests of the rollups: on every store they equal a computation of the test from the samples.

use std::collections::BTreeMap;

use polymeter_collector::Collector;

use crate::support::agent::{Agent, shape};
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

scenarios![rollups_equal_the_samples, late_samples_are_added, no_temporary_files_are_written];

const SECOND_US: i64 = 1_000_000;
pub(crate) const HOUR_US: i64 = 3600 * SECOND_US;

/// Relations, with the width of their buckets.
const ROLLUPS: [(&str, i64); 3] =
    [("samples_10s", 10 * SECOND_US), ("samples_1min", 60 * SECOND_US), ("samples_1h", HOUR_US)];

/// The mean time between two samples.
const PERIOD_US: i64 = 7 * SECOND_US + 13_000;

/// Returns the time of a sample since the first one: of twenty, twelve are at each second and the others at
/// each 16 s, so that buckets of 10 s have up to ten, and minutes have parts of both kinds.
const fn offset_us(number: i64) -> i64 {
    let (block, position) = (number.div_euclid(20), number.rem_euclid(20));
    let seconds = if position < 12 { position } else { 12 + (position - 12) * 16 };
    block * 20 * PERIOD_US + seconds * SECOND_US
}

/// A bucket: its series and its begin.
type Key = (i64, i64);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Bucket {
    count: f64,
    min: f64,
    max: f64,
    sum: f64,
    parts: f64,
    first: f64,
    last: f64,
    increase: f64,
}

/// Full hour, more than three hours ago.
pub(crate) fn begin_us() -> i64 {
    now_us() / HOUR_US * HOUR_US - 3 * HOUR_US
}

/// Values of sample `number` of a node: a counter that restarts now and then and falls a little twice, and
/// gauges.
fn row(node: i64, number: i64) -> [Option<u64>; 3] {
    let since_restart = (number + node * 100) % 700;
    let more = match number {
        ..10 => 5_000_000,
        150 | 200 => -2500,
        _ => 0,
    };
    let counter = (since_restart * (1000 + node) + more).cast_unsigned();
    let gauge = (number * 7919 + node) % 1000 - 500;
    let float = gauge as f64 / 3.0;
    [Some(counter), Some(gauge.cast_unsigned()), Some(float.to_bits())]
}

fn is_gap(number: i64) -> bool {
    (300..420).contains(&number)
}

pub(crate) fn send(agent: &mut Agent, node: i64, numbers: impl Iterator<Item = i64>, begin_us: i64) {
    let shape = shape(1, None);
    let numbers: Vec<i64> = numbers.filter(|number| !is_gap(*number)).collect();
    for part in numbers.chunks(60) {
        let values: Vec<_> = part.iter().map(|number| row(node, *number)).collect();
        let rows: Vec<_> = part
            .iter()
            .zip(&values)
            .map(|(number, values)| (&shape, begin_us + offset_us(*number), values.as_slice()))
            .collect();
        let sequence = agent.frame(&rows, &[], &[]);
        agent.send(sequence);
    }
    agent.wait_until_acknowledged();
}

fn rows<const N: usize>(environment: &TestEnvironment, query: &str) -> Vec<[f64; N]> {
    let rows = environment.rows(query);
    rows.iter().map(|row| std::array::from_fn(|column| row[column])).collect()
}

fn time_column(environment: &TestEnvironment) -> &'static str {
    match environment.kind {
        Kind::Sqlite => "time / 1000",
        Kind::Postgres | Kind::Timescale | Kind::Citus => "CAST(extract(epoch FROM time) * 1000000 AS int8)",
    }
}

fn buckets(environment: &TestEnvironment, relation: &str) -> BTreeMap<Key, Bucket> {
    let time = time_column(environment);
    let query = format!(
        "SELECT series_id, {time}, count, min, max, sum, parts, first, last, increase FROM {relation}"
    );
    let rows: Vec<[f64; 10]> = rows(environment, &query);
    let number = rows.len();
    let buckets: BTreeMap<Key, Bucket> = rows
        .into_iter()
        .map(|[series, time, count, min, max, sum, parts, first, last, increase]| {
            ((series as i64, time as i64), Bucket { count, min, max, sum, parts, first, last, increase })
        })
        .collect();
    assert_eq!(buckets.len(), number, "{relation} has a bucket twice");
    buckets
}

fn samples(environment: &TestEnvironment) -> BTreeMap<i64, Vec<(i64, f64)>> {
    let time = time_column(environment);
    let mut samples: BTreeMap<i64, Vec<(i64, f64)>> = BTreeMap::new();
    for [series, time, value] in rows(environment, &format!("SELECT series_id, {time}, value FROM samples")) {
        samples.entry(series as i64).or_default().push((time as i64, value));
    }
    samples.values_mut().for_each(|samples| samples.sort_by_key(|(time, _)| *time));
    samples
}

/// Computes the buckets from the samples: those of more than 10 s have the sum of the means of 10 s. The
/// increase is the sum of the steps above the highest value, where
/// a step down to half or less is a restart from 0.
fn expected(samples: &BTreeMap<i64, Vec<(i64, f64)>>, width_us: i64) -> BTreeMap<Key, Bucket> {
    let mut buckets: BTreeMap<Key, Bucket> = BTreeMap::new();
    let mut highest: BTreeMap<Key, f64> = BTreeMap::new();
    for (series, samples) in samples {
        for (time, value) in samples.iter().copied() {
            let empty = Bucket {
                count: 0.0,
                min: value,
                max: value,
                sum: 0.0,
                parts: 0.0,
                first: value,
                last: value,
                increase: 0.0,
            };
            let key = (*series, time.div_euclid(width_us) * width_us);
            let bucket = buckets.entry(key).or_insert(empty);
            let highest = highest.entry(key).or_insert(value);
            if value < *highest && value <= *highest / 2.0 {
                bucket.increase += value;
                *highest = value;
            } else if value > *highest {
                bucket.increase += value - *highest;
                *highest = value;
            }
            bucket.count += 1.0;
            bucket.min = bucket.min.min(value);
            bucket.max = bucket.max.max(value);
            (bucket.sum, bucket.parts) = (bucket.sum + value, bucket.parts + 1.0);
            bucket.last = value;
        }
    }
    if width_us > 10 * SECOND_US {
        buckets.values_mut().for_each(|bucket| (bucket.sum, bucket.parts) = (0.0, 0.0));
        for ((series, begin_us), tens) in expected(samples, 10 * SECOND_US) {
            let bucket = buckets.get_mut(&(series, begin_us.div_euclid(width_us) * width_us)).unwrap();
            (bucket.sum, bucket.parts) = (bucket.sum + tens.sum / tens.count, bucket.parts + 1.0);
        }
    }
    buckets
}

/// First difference between the views and the samples.
pub(crate) fn difference(environment: &TestEnvironment) -> Option<String> {
    let samples = samples(environment);
    let counters: Vec<i64> = rows(environment, "SELECT series_id FROM series WHERE metric = 'cpu.usage'")
        .iter()
        .map(|[id]| *id as i64)
        .collect();
    assert_eq!(counters.len(), 2);
    ROLLUPS.iter().find_map(|(relation, width_us)| {
        let (found, expected) = (buckets(environment, relation), expected(&samples, *width_us));
        if found.len() != expected.len() {
            return Some(format!("{relation} has {} buckets in place of {}", found.len(), expected.len()));
        }
        expected.iter().find_map(|(key, expected)| {
            let Some(found) = found.get(key) else { return Some(format!("{relation} lacks {key:?}")) };
            let increase = if counters.contains(&key.0) { expected.increase } else { found.increase };
            let is_close = (found.sum - expected.sum).abs()
                <= 1e-9 * expected.count * expected.max.abs().max(expected.min.abs());
            let expected = Bucket { sum: found.sum, increase, ..*expected };
            (!is_close || *found != expected)
                .then(|| format!("{relation} at {key:?}: {found:?} in place of {expected:?}"))
        })
    })
}

pub(crate) fn wait_until_computed(environment: &TestEnvironment, time_us: i64) {
    let query = match environment.kind {
        Kind::Sqlite => {
            "SELECT CASE WHEN min(samples_rowid) = (SELECT max(rowid) FROM samples) THEN 9223372036854775807 ELSE 0 END FROM rollup"
        }
        Kind::Postgres | Kind::Citus => {
            "SELECT CAST(extract(epoch FROM greatest(min(computed_before), '1970-01-01')) * 1000000 AS int8) FROM rollup"
        }
        Kind::Timescale => {
            "SELECT min(_timescaledb_functions.cagg_watermark(mat_hypertable_id)) FROM _timescaledb_catalog.continuous_agg"
        }
    };
    wait_until("the rollups are computed", || environment.number(query) >= time_us);
}

pub(crate) fn agents(environment: &TestEnvironment, collector: &Collector, session: u64) -> [Agent; 2] {
    [0, 1].map(|node| Agent::to(&environment.context, collector, &format!("n{node}"), session + node))
}

/// Samples of a node: up to now, or a little more.
const NUMBER: i64 = 4 * HOUR_US / PERIOD_US;

pub(crate) fn now_number(begin_us: i64) -> i64 {
    ((now_us() - begin_us) / PERIOD_US).min(NUMBER)
}

/// Numbers of samples that are newer than any bucket that is computed: less than a minute old, or a little
/// ahead.
pub(crate) fn recent_numbers(begin_us: i64) -> std::ops::Range<i64> {
    let now = now_number(begin_us);
    now + 3..now + 13
}

/// Maintenance begins with a round of all tasks.
pub(crate) fn restart(environment: &TestEnvironment, collector: Collector) -> Collector {
    collector.stop().unwrap();
    environment.collector()
}

fn rollups_equal_the_samples(environment: &mut TestEnvironment) {
    let begin_us = begin_us();
    let collector = environment.collector();
    for (node, agent) in (0..).zip(&mut agents(environment, &collector, 1)) {
        send(agent, node, 0..now_number(begin_us) - 60, begin_us);
    }
    let collector = restart(environment, collector);
    wait_until_computed(environment, begin_us + 2 * HOUR_US);
    wait_until("the rollups are right", || difference(environment).is_none());
    // Samples behind the computed range are in the views at once.
    for (node, agent) in (0..).zip(&mut agents(environment, &collector, 3)) {
        send(agent, node, recent_numbers(begin_us), begin_us);
    }
    assert_eq!(difference(environment), None);
    if environment.kind != Kind::Sqlite {
        assert_functions_return_the_views(environment, begin_us);
    }
    collector.stop().unwrap();
}

/// The functions for the buckets of a range return what the views have there, also at its ends.
fn assert_functions_return_the_views(environment: &TestEnvironment, begin_us: i64) {
    const COLUMNS: &str = "series_id, time, count, min, max, parts, first, last, increase";
    let time = |time_us: i64| format!("to_timestamp({})", time_us / SECOND_US);
    let minute_us = 60 * SECOND_US;
    for (relation, _) in ROLLUPS {
        for (begin, end) in [
            ("'-infinity'".to_owned(), "'infinity'".to_owned()),
            // Within computed buckets.
            (time(begin_us + 20 * minute_us + 3 * SECOND_US), time(begin_us + 62 * minute_us + SECOND_US)),
            // From computed buckets to the newest samples.
            (time(begin_us + 59 * minute_us), time(now_us() - 5 * SECOND_US)),
        ] {
            let view = format!("SELECT {COLUMNS} FROM {relation} WHERE time >= {begin} AND time < {end}");
            let function = format!("SELECT {COLUMNS} FROM {relation}_between({begin}, {end})");
            let count =
                |source: &str| environment.number(&format!("SELECT count(*) FROM ({source}) AS buckets"));
            assert!(count(&view) > 0, "{view}");
            let surplus = [
                count(&format!("{view} EXCEPT ALL ({function})")),
                count(&format!("{function} EXCEPT ALL ({view})")),
            ];
            assert_eq!(surplus, [0, 0], "{view}; {function}");
        }
    }
    let of_parts =
        "SELECT series_id, time, max(max) AS max, sum(mean * parts) AS sum, sum(parts) AS parts FROM (
             SELECT series_id, time, max(max) AS max, sum(sum) / sum(weight) AS mean, max(parts) AS parts
             FROM polymeter_minute_part GROUP BY series_id, time, part
         ) AS part GROUP BY series_id, time";
    let surplus = format!(
        "SELECT count(*) FROM samples_1min FULL JOIN ({of_parts}) AS part USING (series_id, time)
         WHERE part.max IS DISTINCT FROM samples_1min.max
             OR part.parts IS DISTINCT FROM samples_1min.parts OR abs(part.sum - samples_1min.sum) > 1e-9 * abs(part.sum)"
    );
    assert_eq!(environment.number(&surplus), 0);
}

fn late_samples_are_added(environment: &mut TestEnvironment) {
    let begin_us = begin_us();
    let (now, late) = (now_number(begin_us), 600..640);
    let collector = environment.collector();
    for (node, agent) in (0..).zip(&mut agents(environment, &collector, 1)) {
        send(agent, node, (0..now).filter(|number| number % 50 != 3 && !late.contains(number)), begin_us);
    }
    let collector = restart(environment, collector);
    wait_until_computed(environment, begin_us + 2 * HOUR_US);
    // Late frames, and one with late and recent samples.
    for (node, agent) in (0..).zip(&mut agents(environment, &collector, 3)) {
        send(agent, node, (0..now).filter(|number| number % 50 == 3 && !late.contains(number)), begin_us);
        send(agent, node, late.clone().chain(now..now + 10), begin_us);
    }
    let collector = restart(environment, collector);
    wait_until("the late samples are added", || difference(environment).is_none());
    collector.stop().unwrap();
}

/// 30,000 buckets take more memory than a server allows by default.
fn no_temporary_files_are_written(environment: &mut TestEnvironment) {
    match environment.kind {
        Kind::Postgres | Kind::Timescale => {}
        // SQLite has no such limit, and stand-ins for Citus compute as PostgreSQL does.
        Kind::Sqlite | Kind::Citus => return,
    }
    environment.collector().stop().unwrap();
    let begin_us = begin_us();
    let begin = format!("to_timestamp({})", begin_us / SECOND_US);
    if environment.kind == Kind::Postgres {
        environment
            .execute(&format!("SELECT polymeter_create_partition(CAST({begin} AT TIME ZONE 'UTC' AS date))"));
    }
    environment.execute(&format!(
        "INSERT INTO samples (time, series_id, value)
         SELECT {begin} + number * interval '5 s', series, number
         FROM generate_series(1, 1000) series, generate_series(0, 59) number"
    ));
    let collector = environment.collector();
    wait_until_computed(environment, begin_us + 300 * SECOND_US);
    collector.stop().unwrap();
    assert_eq!(environment.number("SELECT count(*) FROM samples_10s"), 30_000);
    // The maintenance is counted once its connection has ended.
    let others = "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    wait_until("all connections have ended", || environment.number(others) == 0);
    const WRITTEN: &str = "SELECT temp_bytes FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(environment.number(WRITTEN), 0);
    // The figure counts what is written.
    environment.execute(
        "SET work_mem = '64kB'; SELECT count(*) FROM (SELECT value FROM samples ORDER BY value) AS sorted",
    );
    wait_until("a sort is counted", || environment.number(WRITTEN) > 0);
}
