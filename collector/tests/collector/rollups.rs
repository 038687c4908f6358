//! Tests of the rollups: on every store they equal a computation of the test from the samples.

use std::collections::BTreeMap;

use polymeter_collector::Collector;

use crate::support::agent::{Agent, shape};
use crate::support::{Kind, TestEnvironment, now_us, wait_until};

scenarios![rollups_equal_the_samples, late_samples_are_added, means_weigh_the_time];

const SECOND_US: i64 = 1_000_000;
pub(crate) const HOUR_US: i64 = 3600 * SECOND_US;

/// The relations, with the width of their buckets.
const ROLLUPS: [(&str, i64); 3] =
    [("samples_10s", 10 * SECOND_US), ("samples_1min", 60 * SECOND_US), ("samples_1h", HOUR_US)];

/// The time between two samples: some buckets have one, some two, and some none.
const PERIOD_US: i64 = 7 * SECOND_US + 13_000;

/// A bucket: its series and its begin.
type Key = (i64, i64);

/// The columns of a bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bucket {
    count: f64,
    min: f64,
    max: f64,
    integral: f64,
    covered_s: f64,
    first: f64,
    last: f64,
    increase: f64,
}

/// Returns the begin of the data: a full hour, more than three hours ago.
pub(crate) fn begin_us() -> i64 {
    now_us() / HOUR_US * HOUR_US - 3 * HOUR_US
}

/// Returns the values of sample `number` of a node: a counter that restarts now and then and falls a little
/// twice, and gauges.
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

/// Returns true if a sample is missing in the data.
fn is_gap(number: i64) -> bool {
    (300..420).contains(&number)
}

/// Sends samples of a node in frames of some minutes.
pub(crate) fn send(agent: &mut Agent, node: i64, numbers: impl Iterator<Item = i64>, begin_us: i64) {
    let numbers = numbers.filter(|number| !is_gap(*number));
    let samples: Vec<_> = numbers.map(|number| (number, begin_us + number * PERIOD_US)).collect();
    send_at(agent, node, &samples, 60);
}

/// Sends the samples with these numbers and times in frames of `frame` samples.
fn send_at(agent: &mut Agent, node: i64, samples: &[(i64, i64)], frame: usize) {
    let shape = shape(1, None);
    for part in samples.chunks(frame) {
        let values: Vec<_> = part.iter().map(|(number, _)| row(node, *number)).collect();
        let rows: Vec<_> = part
            .iter()
            .zip(&values)
            .map(|((_, time_us), values)| (&shape, *time_us, values.as_slice()))
            .collect();
        let sequence = agent.frame(&rows, &[], &[]);
        agent.send(sequence);
    }
    agent.wait_until_acknowledged();
}

/// Returns the numeric rows of a query.
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
        "SELECT series_id, {time}, count, min, max, integral, covered_s, first, last, increase FROM {relation}"
    );
    let rows: Vec<[f64; 10]> = rows(environment, &query);
    let number = rows.len();
    let buckets: BTreeMap<Key, Bucket> = rows
        .into_iter()
        .map(|[series, time, count, min, max, integral, covered_s, first, last, increase]| {
            let bucket = Bucket { count, min, max, integral, covered_s, first, last, increase };
            ((series as i64, time as i64), bucket)
        })
        .collect();
    assert_eq!(buckets.len(), number, "{relation} has a bucket twice");
    buckets
}

/// Returns the samples of each series in the order of their times.
fn samples(environment: &TestEnvironment) -> BTreeMap<i64, Vec<(i64, f64)>> {
    let time = time_column(environment);
    let mut samples: BTreeMap<i64, Vec<(i64, f64)>> = BTreeMap::new();
    for [series, time, value] in rows(environment, &format!("SELECT series_id, {time}, value FROM samples")) {
        samples.entry(series as i64).or_default().push((time as i64, value));
    }
    samples.values_mut().for_each(|samples| samples.sort_by_key(|(time, _)| *time));
    samples
}

/// The time within which other samples tell how long a sample holds.
const NEAR_US: i64 = 300 * SECOND_US;

/// Returns the seconds for which each sample holds: until the next one; where one is near before it, at most three
/// times the longer one of the gaps before and after that.
fn held_s(samples: &[(i64, f64)]) -> Vec<f64> {
    let near = |from: i64, to: i64| (to - from <= NEAR_US).then_some(to - from);
    let mut held = Vec::new();
    for (number, (time, _)) in samples.iter().enumerate() {
        let at = |other: usize| samples.get(other).map(|(time, _)| *time);
        let before = number.checked_sub(1).and_then(at).and_then(|before| near(before, *time));
        let next = at(number + 1).filter(|next| near(*time, *next).is_some());
        let held_us = match next {
            None => before.unwrap_or(NEAR_US),
            Some(next) => {
                let second = at(number + 2).filter(|second| near(*time, *second).is_some());
                let after = second.map_or(0, |second| second - next);
                before.map_or(next - time, |before| (next - time).min(3 * before.max(after)))
            }
        };
        held.push(held_us.max(1) as f64 / 1e6);
    }
    held
}

/// Computes the buckets from the samples. The increase is the sum of the steps above the highest value, where
/// a step down to half or less is a restart from 0.
fn expected(samples: &BTreeMap<i64, Vec<(i64, f64)>>, width_us: i64) -> BTreeMap<Key, Bucket> {
    let mut buckets: BTreeMap<Key, Bucket> = BTreeMap::new();
    let mut highest: BTreeMap<Key, f64> = BTreeMap::new();
    for (series, samples) in samples {
        for ((time, value), held_s) in samples.iter().copied().zip(held_s(samples)) {
            let empty = Bucket {
                count: 0.0,
                min: value,
                max: value,
                integral: 0.0,
                covered_s: 0.0,
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
            bucket.integral += value * held_s;
            bucket.covered_s += held_s;
            bucket.last = value;
        }
    }
    buckets
}

/// Returns the first difference between the views and the samples; none if they agree.
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
            let largest = expected.max.abs().max(expected.min.abs());
            let is_close = (found.integral - expected.integral).abs() <= 1e-9 * expected.covered_s * largest
                && (found.covered_s - expected.covered_s).abs() <= 1e-9 * expected.covered_s;
            let Bucket { integral, covered_s, .. } = *found;
            let same = Bucket { integral, covered_s, increase, ..*expected };
            (!is_close || *found != same)
                .then(|| format!("{relation} at {key:?}: {found:?} in place of {expected:?}"))
        })
    })
}

/// Waits until the rollups before `time_us` are computed.
pub(crate) fn wait_until_computed(environment: &TestEnvironment, time_us: i64) {
    let query = match environment.kind {
        Kind::Sqlite => {
            "SELECT CASE WHEN min(samples_rowid) = (SELECT max(rowid) FROM samples) THEN 9223372036854775807 ELSE 0 END FROM rollup"
        }
        Kind::Postgres | Kind::Timescale | Kind::Citus => {
            "SELECT CAST(extract(epoch FROM greatest(min(computed_before), '1970-01-01')) * 1000000 AS int8) FROM rollup"
        }
    };
    wait_until("the rollups are computed", || environment.number(query) >= time_us);
}

pub(crate) fn agents(environment: &TestEnvironment, collector: &Collector, session: u64) -> [Agent; 2] {
    [0, 1].map(|node| Agent::to(&environment.context, collector, &format!("n{node}"), session + node))
}

/// The number of samples of a node: up to now, or a little more.
const NUMBER: i64 = 4 * HOUR_US / PERIOD_US;

pub(crate) fn now_number(begin_us: i64) -> i64 {
    ((now_us() - begin_us) / PERIOD_US).min(NUMBER)
}

/// Starts the collector again: its maintenance begins with a round of all tasks.
pub(crate) fn restart(environment: &TestEnvironment, collector: Collector) -> Collector {
    collector.stop().unwrap();
    environment.collector()
}

fn rollups_equal_the_samples(environment: &mut TestEnvironment) {
    let begin_us = begin_us();
    let sent = now_number(begin_us) - 10;
    let collector = environment.collector();
    for (node, agent) in (0..).zip(&mut agents(environment, &collector, 1)) {
        send(agent, node, 0..sent, begin_us);
    }
    let collector = restart(environment, collector);
    wait_until_computed(environment, begin_us + 2 * HOUR_US);
    wait_until("the rollups are right", || difference(environment).is_none());
    // Samples behind the computed range are in the views at once.
    let now = now_number(begin_us);
    for (node, agent) in (0..).zip(&mut agents(environment, &collector, 3)) {
        send(agent, node, sent..now, begin_us);
    }
    assert_eq!(difference(environment), None);
    if environment.kind != Kind::Sqlite {
        assert_functions_return_the_views(environment, begin_us);
    }
    collector.stop().unwrap();
}

/// The functions for the buckets of a range return what the views have there, also at its ends.
fn assert_functions_return_the_views(environment: &TestEnvironment, begin_us: i64) {
    const COLUMNS: &str =
        "series_id, time, count, min, max, round(covered_s::numeric, 6), first, last, increase";
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
    // The views of users read the parts of minutes.
    let server = environment.server.as_ref().unwrap();
    let parts = server.query(
        "SELECT polymeter_minute_statement('series.series_id', 'to_timestamp(0)', 'to_timestamp(4e9)')",
    );
    let surplus = format!(
        "SELECT count(*) FROM samples_1min FULL JOIN (
             SELECT series_id, time, max(max) AS max, sum(covered_s) AS covered_s FROM series CROSS JOIN LATERAL ({parts}) AS part
             GROUP BY series_id, time) AS part USING (series_id, time)
         WHERE part.max IS DISTINCT FROM samples_1min.max OR NOT coalesce(abs(part.covered_s - samples_1min.covered_s) < 1e-6, false)"
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

/// Returns the numbers and times of samples up to now, whose period changes at random, also within buckets,
/// with gaps.
fn uneven(node: i64, begin_us: i64) -> Vec<(i64, i64)> {
    const PERIODS_US: [i64; 8] =
        [10_000, 10_000, 100_000, SECOND_US, SECOND_US, 7 * SECOND_US, 70 * SECOND_US, 290 * SECOND_US];
    let mut seed = (node + 1).cast_unsigned();
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let (mut samples, mut time_us, mut number) = (Vec::new(), begin_us, 0);
    while time_us < now_us() {
        let period_us = PERIODS_US[random(PERIODS_US.len())];
        for _ in 0..=random(30) {
            samples.push((number, time_us));
            number += 1;
            // A read is late by a little.
            time_us += period_us + random(period_us as usize / 20) as i64;
        }
        if random(12) == 0 {
            time_us += (random(900) as i64 + 1) * SECOND_US;
        }
    }
    samples.retain(|(_, time_us)| *time_us < now_us());
    samples
}

/// Returns the integral and the time of each series, in all buckets of a relation.
fn whole(environment: &TestEnvironment, relation: &str) -> Vec<[f64; 3]> {
    rows(
        environment,
        &format!(
            "SELECT series_id, sum(integral), sum(covered_s) FROM {relation} GROUP BY series_id ORDER BY series_id"
        ),
    )
}

/// The means of buckets are those over the time, wherever the period of a series changes, and whenever
/// samples arrive. The sums of all buckets are those of the samples, at each width.
fn means_weigh_the_time(environment: &mut TestEnvironment) {
    let begin_us = begin_us();
    let samples = [0, 1].map(|node| uneven(node, begin_us));
    // Some single samples are late, and some ranges.
    let is_late = |number: i64| number % 40 == 7 || number % 300 < 40;
    let of = |node: i64, late: bool| {
        let mut part = samples[node as usize].clone();
        part.retain(|(number, _)| is_late(*number) == late);
        part
    };
    let collector = environment.collector();
    for (node, agent) in (0..).zip(&mut agents(environment, &collector, 1)) {
        send_at(agent, node, &of(node, false), 500);
    }
    let collector = restart(environment, collector);
    wait_until_computed(environment, begin_us + 2 * HOUR_US);
    wait_until("the rollups are right", || difference(environment).is_none());
    for (node, agent) in (0..).zip(&mut agents(environment, &collector, 3)) {
        send_at(agent, node, &of(node, true), 77);
    }
    let collector = restart(environment, collector);
    wait_until("the late samples are added", || difference(environment).is_none());
    let stored = self::samples(environment);
    for (relation, _) in ROLLUPS {
        for [series, integral, covered_s] in whole(environment, relation) {
            let samples = &stored[&(series as i64)];
            let held_s = held_s(samples);
            let time_s: f64 = held_s.iter().sum();
            let expected: f64 = samples.iter().zip(&held_s).map(|((_, value), held_s)| value * held_s).sum();
            let size: f64 =
                samples.iter().zip(&held_s).map(|((_, value), held_s)| value.abs() * held_s).sum();
            assert!((covered_s - time_s).abs() < 1e-9 * time_s, "{relation}: {covered_s} s, not {time_s} s");
            assert!((integral - expected).abs() < 1e-9 * size, "{relation}: {integral}, not {expected}");
        }
    }
    collector.stop().unwrap();
}
