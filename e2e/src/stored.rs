//! Queries of the store.

use std::collections::BTreeMap;

use polymeter_proto::ledger::Tally;
use polymeter_store::reader::{JobFilter, JobRow, Reader, SeriesRow, SeriesScope};

use crate::{TestEnvironment, wait_until};

/// A metric's name and its labels.
pub type Key = (String, String);

/// Samples of one series: microseconds since the epoch, and values.
#[derive(Debug, Clone)]
pub struct Series {
    pub kind: String,
    pub points: Vec<(i64, f64)>,
}

pub fn jobs(reader: &mut Reader) -> Vec<JobRow> {
    let mut jobs = reader.jobs(&JobFilter { limit: u32::MAX, ..JobFilter::default() }).unwrap();
    jobs.reverse();
    jobs
}

pub fn job(reader: &mut Reader, id: &str) -> Option<JobRow> {
    let mut jobs = reader.jobs(&JobFilter { job_id: Some(id.to_owned()), ..JobFilter::default() }).unwrap();
    assert!(jobs.len() < 2, "job {id} is stored twice: {jobs:?}");
    jobs.pop()
}

/// Waits until the end of the job is stored, which the store writes after all its samples.
pub fn wait_for_end(env: &TestEnvironment, id: &str) -> JobRow {
    let mut reader = env.reader();
    wait_until(&format!("the store knows the end of job {id}"), || {
        job(&mut reader, id).is_some_and(|job| job.ended_ns.is_some())
    });
    job(&mut reader, id).unwrap()
}

/// Samples of a job or of the node. Panics if a series has two samples of the same time.
pub fn samples(reader: &mut Reader, of: SeriesScope<'_>) -> BTreeMap<Key, Series> {
    let rows = reader.series(of).unwrap();
    samples_of(reader, rows)
}

pub fn samples_on(reader: &mut Reader, job_key: i64, node: &str) -> BTreeMap<Key, Series> {
    let mut rows = reader.series(SeriesScope::Job(job_key)).unwrap();
    rows.retain(|row| row.node == node);
    samples_of(reader, rows)
}

fn samples_of(reader: &mut Reader, rows: Vec<SeriesRow>) -> BTreeMap<Key, Series> {
    let mut all = BTreeMap::new();
    for row in rows {
        let points = reader.points(row.series_id, i64::MIN..i64::MAX).unwrap();
        let points: Vec<_> = points.into_iter().map(|(time_ns, value)| (time_ns / 1000, value)).collect();
        for pair in points.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{} {} twice at {}", row.metric, row.labels, pair[0].0);
        }
        let key = (row.metric, row.labels.to_string());
        let series = Series { kind: row.kind, points };
        assert!(all.insert(key.clone(), series).is_none(), "{key:?} is two series");
    }
    all
}

pub fn rows(reader: &mut Reader, job_key: i64) -> u64 {
    samples(reader, SeriesScope::Job(job_key)).values().map(|series| series.points.len() as u64).sum()
}

/// Tally of each source of a job, summed over sessions.
pub fn ledger(reader: &mut Reader, job_key: i64) -> BTreeMap<String, Tally> {
    let mut ledger: BTreeMap<String, Tally> = BTreeMap::new();
    for row in reader.ledger(job_key).unwrap() {
        ledger.entry(row.source).or_default().add(&row.tally);
    }
    ledger
}

/// Sum of a ledger. Each of its lines must add up.
pub fn sum(ledger: &BTreeMap<String, Tally>) -> Tally {
    let mut sum = Tally::default();
    for (source, tally) in ledger {
        assert_eq!(tally.due, tally.taken + tally.missed + tally.absent, "{source}: {tally:?}");
        sum.add(tally);
    }
    sum
}
