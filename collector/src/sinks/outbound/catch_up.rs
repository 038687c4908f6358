//! After a restart: samples that are in the store and never reached the spool, since the collector was killed
//! between the commit and the write to the spool.
//!
//! Only nodes with a series in the spool are read, since other collectors may serve the others, and only a
//! short time behind the spool's newest sample, which is more than a queue holds.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use polymeter_proto::exposition::Part;
use polymeter_proto::name::MetricName;
use polymeter_proto::read::{IdRanges, JobFilter, SeriesRow};
use polymeter_proto::series::{Kind, MetricDescriptor, Number, Unit};
use polymeter_store::StoreError;
use polymeter_store::reader::{Read, Reader, SeriesScope};

use super::request::hash;
use super::series::{Identity, SeriesTable};

/// How long before the newest sample in the spool jobs and nodes are read. One that sent nothing for longer
/// has nothing that is missing.
const ACTIVE_MS: i64 = 3_600_000;

/// How long behind the newest sample in the spool samples are searched for; those of new jobs and nodes also
/// before it.
const GAP_MS: i64 = 600_000;

/// Time since the last sample from which a series counts as slow.
const SLOW_MS: i64 = 60_000;

const PAGE: u32 = 1000;

const MS_NS: i64 = 1_000_000;

/// Samples of a series in memory.
const CHUNK: usize = 65_536;

/// Series of a node or job in the store, and the times from which their samples may be missing.
struct Scope {
    node: String,
    job: Option<(i64, String)>,
    series: Vec<SeriesRow>,
    spans_ns: Vec<(Range<i64>, IdRanges)>,
}

impl Scope {
    const fn new(node: String, job: Option<(i64, String)>, series: Vec<SeriesRow>) -> Self {
        Self { node, job, series, spans_ns: Vec::new() }
    }

    fn identified<T>(&self, row: &SeriesRow, with: impl FnOnce(Identity<'_>) -> T) -> Option<T> {
        let metric = MetricDescriptor {
            name: MetricName::new(row.metric.clone()).ok()?,
            unit: Unit::ALL.into_iter().find(|unit| unit.as_str() == row.unit).unwrap_or(Unit::Labelled),
            kind: if row.kind == Kind::Counter.as_str() { Kind::Counter } else { Kind::Gauge },
            number: Number::Float,
        };
        let job = self.job.as_ref().map(|(_, id)| id.as_str());
        Some(with(Identity { node: &row.node, job, metric: &metric, labels: &row.labels }))
    }

    fn of_store(&self) -> SeriesScope<'_> {
        match &self.job {
            Some((key, _)) => SeriesScope::Job(*key),
            None => SeriesScope::Node(&self.node),
        }
    }

    /// Last times of the series that are sent, in milliseconds since the epoch; none for one that is not in
    /// the spool.
    fn last_times(&self, table: &SeriesTable) -> Vec<(&SeriesRow, Option<i64>)> {
        let last_times = self.series.iter().filter_map(|row| {
            let last_ms = self.identified(row, |series| {
                let is_sent = table.selection.has(series);
                is_sent
                    .then(|| table.times().get(&hash(&table.selection.encode(series, Part::Last))).copied())
            });
            Some((row, last_ms??))
        });
        last_times.collect()
    }
}

pub(super) struct Missing(Vec<Scope>);

impl Missing {
    pub(super) fn find(reader: &mut Reader, table: &SeriesTable, now_ms: i64) -> Result<Self, StoreError> {
        let Some(newest_ms) = table.times().values().copied().max() else { return Ok(Self(Vec::new())) };
        // The clock of a node may be ahead.
        let newest_ms = newest_ms.min(now_ms);
        let mut scopes = scopes(reader, newest_ms - ACTIVE_MS)?;
        let times: Vec<_> = scopes.iter().map(|scope| scope.last_times(table)).collect();
        let known = times.iter().flatten().filter(|(_, last_ms)| last_ms.is_some());
        let nodes: HashSet<&str> = known.map(|(row, _)| row.node.as_str()).collect();
        let spans: Vec<_> = times
            .iter()
            .map(|of_scope| {
                let own: Vec<_> =
                    of_scope.iter().filter(|(row, _)| nodes.contains(row.node.as_str())).copied().collect();
                spans_ns(&own, newest_ms)
            })
            .collect();
        scopes.iter_mut().zip(spans).for_each(|(scope, spans)| scope.spans_ns = spans);
        Ok(Self(scopes))
    }

    /// Reads the samples and passes them to `each`, by series: times in microseconds since the epoch,
    /// ascending. Samples up to the last time of a series may be among them.
    pub(super) fn read(
        &self,
        reader: &mut Reader,
        mut each: impl FnMut(Identity<'_>, &[(i64, f64)]),
    ) -> Result<(), StoreError> {
        for scope in &self.0 {
            let rows: HashMap<i64, &SeriesRow> =
                scope.series.iter().map(|row| (row.series_id, row)).collect();
            for (span_ns, ids) in &scope.spans_ns {
                let (mut current, mut found) = (None, Vec::new());
                let mut pass = |id: Option<i64>, samples: &mut Vec<(i64, f64)>| {
                    if let Some(row) = id.and_then(|id| rows.get(&id)) {
                        scope.identified(row, |series| each(series, samples));
                    }
                    samples.clear();
                };
                reader.samples::<StoreError>(scope.of_store(), ids, span_ns, |sample| {
                    if current != Some(sample.series_id) || found.len() >= CHUNK {
                        pass(current.replace(sample.series_id), &mut found);
                    }
                    found.push((sample.time_ns.div_euclid(1000), sample.value));
                    Ok(())
                })?;
                pass(current, &mut found);
            }
        }
        Ok(())
    }
}

/// Spans in which samples of series may be missing: behind the last one of each. Slow series are read apart
/// from the others, which have far more samples in the same time.
fn spans_ns(series: &[(&SeriesRow, Option<i64>)], newest_ms: i64) -> Vec<(Range<i64>, IdRanges)> {
    // The node may be behind the others, or its clock.
    let newest_ms = series.iter().filter_map(|(_, last_ms)| *last_ms).max().unwrap_or(newest_ms);
    let (slow, others): (Vec<_>, Vec<_>) =
        series.iter().partition(|(_, last_ms)| last_ms.is_some_and(|last_ms| last_ms < newest_ms - SLOW_MS));
    [slow, others].iter().filter(|of| !of.is_empty()).map(|of| span_ns(of, newest_ms)).collect()
}

fn span_ns(series: &[(&SeriesRow, Option<i64>)], newest_ms: i64) -> (Range<i64>, IdRanges) {
    let begin_ms = series.iter().filter_map(|(_, last_ms)| *last_ms).min().unwrap_or(newest_ms - GAP_MS);
    let begin_ms = begin_ms.max(newest_ms - ACTIVE_MS);
    let ids = series.iter().map(|(row, _)| row.series_id).collect();
    (begin_ms.saturating_mul(MS_NS)..(newest_ms + GAP_MS).saturating_mul(MS_NS), ids)
}

/// Series of the nodes and jobs that were active since a time.
fn scopes(reader: &mut Reader, since_ms: i64) -> Result<Vec<Scope>, StoreError> {
    let since_ns = since_ms.saturating_mul(MS_NS);
    let mut scopes = Vec::new();
    for agent in (reader as &mut dyn Read).agents(since_ns)? {
        let series = reader.series(SeriesScope::Node(&agent.node))?;
        scopes.push(Scope::new(agent.node, None, series));
    }
    let mut filter = JobFilter { since_ns: Some(since_ns), limit: PAGE, ..JobFilter::default() };
    loop {
        let jobs = reader.jobs(&filter)?;
        for job in &jobs {
            let series = reader.series(SeriesScope::Job(job.job_key))?;
            scopes.push(Scope::new(String::new(), Some((job.job_key, job.job_id.clone())), series));
        }
        match jobs.last() {
            Some(last) if jobs.len() >= PAGE as usize => filter.before = Some((last.listed, last.job_key)),
            _ => return Ok(scopes),
        }
    }
}
