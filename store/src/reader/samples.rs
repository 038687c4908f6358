//! Samples.

use std::ops::Range;

use polymeter_proto::read::{BucketRow, IdRanges, Rollup, SampleRow, SampleSet, SampleWindow};
use polymeter_proto::units;

use super::clocks::Corrected;
use super::cover::{Ascending, cover};
use super::read::SeriesScope;
use super::recorded_statements::{READING, Reader};
use crate::StoreError;
use crate::bounds::{LATEST_US, stored_us};
use crate::error::Context;
use crate::row::unexpected;
use crate::value::{Column, ColumnType};

/// The count of a window is null for a sample, which only a floating-point number may be.
const SAMPLE: [Column; 7] = [
    ("series_id", ColumnType::Integer),
    ("time", ColumnType::Time),
    ("value", ColumnType::Real),
    ("count", ColumnType::Real),
    ("min", ColumnType::Real),
    ("max", ColumnType::Real),
    ("sum", ColumnType::Real),
];

const PLANNED: &str =
    "SELECT series_id, time, value, CAST(count AS double precision) AS count, min, max, sum FROM samples";

/// The columns of a sample without those of windows.
const WITHOUT_WINDOWS: [Column; 3] =
    [("series_id", ColumnType::Integer), ("time", ColumnType::Time), ("value", ColumnType::Real)];

/// A ring holds no windows.
const KEPT: &str = "SELECT series_id, time, value, CAST(NULL AS double precision) AS count,
         CAST(NULL AS double precision) AS min, CAST(NULL AS double precision) AS max,
         CAST(NULL AS double precision) AS sum FROM kept_sample";

/// The columns of an interval of a rollup.
const BUCKET: [Column; 11] = [
    ("series_id", ColumnType::Integer),
    ("time", ColumnType::Time),
    ("count", ColumnType::Integer),
    ("min", ColumnType::Real),
    ("max", ColumnType::Real),
    ("mean", ColumnType::Real),
    ("first", ColumnType::Real),
    ("last", ColumnType::Real),
    ("increase", ColumnType::Real),
    ("rate_min", ColumnType::Real),
    ("rate_max", ColumnType::Real),
];

impl Reader {
    /// Passes the samples of `series` within `span_ns`, whose end is excluded, to `each`: sorted by the ids
    /// of the series, then by time. They are not held in memory. After an error of `each` the reader must be
    /// dropped.
    ///
    /// # Errors
    /// Returns an error if the store or `each` fails.
    pub fn samples<E: From<StoreError>>(
        &mut self,
        of: SeriesScope<'_>,
        series: &IdRanges,
        span_ns: &Range<i64>,
        each: impl FnMut(SampleRow) -> Result<(), E>,
    ) -> Result<(), E> {
        self.samples_of_set(SampleSet::Plan, of, series, span_ns, each)
    }

    /// Passes the samples of a set on, as [`Self::samples`] does with those of the sampling plan. With those
    /// that rings kept, a series has one sample for each time.
    ///
    /// # Errors
    /// Returns an error if the store or `each` fails.
    pub fn samples_of_set<E: From<StoreError>>(
        &mut self,
        set: SampleSet,
        of: SeriesScope<'_>,
        series: &IdRanges,
        span_ns: &Range<i64>,
        mut each: impl FnMut(SampleRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let (job_key, clocks) = self.clocks_of(of)?;
        let set = if set == SampleSet::All && !self.has_kept(of)? { SampleSet::Plan } else { set };
        let mut last = None;
        let mut each = |row: SampleRow| {
            let is_again = set != SampleSet::Plan && last == Some((row.series_id, row.time_ns));
            last = Some((row.series_id, row.time_ns));
            if is_again { Ok(()) } else { each(row) }
        };
        for part in self.by_clock(of, series, (job_key, &clocks))? {
            let Some(clock) = part.clock else {
                self.stored_samples(set, of, &part.series, span_ns, &mut each)?;
                continue;
            };
            let mut corrected = Corrected::new(clock, span_ns, 0, &mut each);
            let raw_ns = clock.raw_ns(span_ns);
            self.stored_samples(set, of, &part.series, &raw_ns, |row| corrected.add(row))?;
            corrected.finish()?;
        }
        Ok(())
    }

    /// Returns true if rings kept samples of a job.
    fn has_kept(&mut self, of: SeriesScope<'_>) -> Result<bool, StoreError> {
        let SeriesScope::Job(job_key) = of else { return Ok(false) };
        let select = "SELECT CAST(1 AS bigint) FROM kept_interval WHERE job_key = $1 LIMIT 1";
        Ok(!self.rows::<i64>(select, &[job_key.into()])?.is_empty())
    }

    /// Passes samples on, with their times by the clocks of their nodes.
    fn stored_samples<E: From<StoreError>>(
        &mut self,
        set: SampleSet,
        of: SeriesScope<'_>,
        series: &IdRanges,
        span_ns: &Range<i64>,
        mut each: impl FnMut(SampleRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut wanted = Ascending::new(series);
        for condition in self.conditions(of, series, span_ns) {
            if set == SampleSet::Plan && self.dialect().skips_nulls && !self.has_windows(&condition)? {
                // Windows that are stored meanwhile are not among them.
                let select = format!(
                    "SELECT series_id, time, value FROM samples WHERE {condition} AND count IS NULL ORDER BY series_id, time"
                );
                self.stream(&select, &WITHOUT_WINDOWS, |[series_id, time_ns, value]| {
                    let (series_id, time_ns, value) = (series_id.integer(), time_ns.integer(), value.real());
                    if !wanted.contains(series_id) {
                        return Ok(());
                    }
                    each(SampleRow { series_id, time_ns, value, window: None })
                })?;
                continue;
            }
            let select = match set {
                SampleSet::Plan => format!("{PLANNED} WHERE {condition}"),
                SampleSet::Kept => format!("{KEPT} WHERE {condition}"),
                SampleSet::All => {
                    format!("{PLANNED} WHERE {condition} UNION ALL {KEPT} WHERE {condition}")
                }
            };
            let select = format!("{select} ORDER BY series_id, time");
            self.stream(&select, &SAMPLE, |[series_id, time_ns, value, count, min, max, sum]| {
                let series_id = series_id.integer();
                if !wanted.contains(series_id) {
                    return Ok(());
                }
                let window = (!count.real().is_nan()).then(|| SampleWindow {
                    count: units::whole(count.real()),
                    min: min.real(),
                    max: max.real(),
                    sum: sum.real(),
                });
                each(SampleRow { series_id, time_ns: time_ns.integer(), value: value.real(), window })
            })?;
        }
        Ok(())
    }

    /// Returns true if windows are among the samples of a condition.
    fn has_windows(&mut self, condition: &str) -> Result<bool, StoreError> {
        let select =
            format!("SELECT CAST(1 AS bigint) FROM samples WHERE {condition} AND count IS NOT NULL LIMIT 1");
        Ok(!self.rows::<i64>(&select, &[])?.is_empty())
    }

    /// Passes the intervals of a rollup that contain samples of `series` within `span_ns` to `each`: sorted
    /// by the ids of the series, then by time. They are not held in memory. After an error of `each` the
    /// reader must be dropped.
    ///
    /// # Errors
    /// Returns an error if the store or `each` fails.
    pub fn buckets<E: From<StoreError>>(
        &mut self,
        rollup: Rollup,
        of: SeriesScope<'_>,
        series: &IdRanges,
        span_ns: &Range<i64>,
        mut each: impl FnMut(BucketRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let (job_key, clocks) = self.clocks_of(of)?;
        for part in self.by_clock(of, series, (job_key, &clocks))? {
            let Some(clock) = part.clock else {
                self.stored_buckets(rollup, of, &part.series, span_ns, &mut each)?;
                continue;
            };
            let mut corrected = Corrected::new(clock, span_ns, rollup.length_ns(), &mut each);
            self.stored_buckets(rollup, of, &part.series, &clock.raw_ns(span_ns), |row| corrected.add(row))?;
            corrected.finish()?;
        }
        Ok(())
    }

    /// Passes intervals of a rollup on, with their times by the clocks of their nodes.
    fn stored_buckets<E: From<StoreError>>(
        &mut self,
        rollup: Rollup,
        of: SeriesScope<'_>,
        series: &IdRanges,
        span_ns: &Range<i64>,
        mut each: impl FnMut(BucketRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let begin_ns = span_ns.start.max(0);
        let span_ns = begin_ns - begin_ns % rollup.length_ns()..span_ns.end;
        let (begin, end) = (self.bound(span_ns.start), self.bound(span_ns.end));
        let source = (self.dialect().buckets)(relation(rollup), &begin, &end, series);
        let mut wanted = Ascending::new(series);
        for condition in self.conditions(of, series, &span_ns) {
            let select = format!(
                "SELECT series_id, time, CAST(count AS bigint), min, max, sum / parts, first, last, increase, rate_min,
                     rate_max
                 FROM {source}
                 WHERE {condition} ORDER BY series_id, time"
            );
            self.stream(&select, &BUCKET, |row| {
                let [series_id, time_ns, count, min, max, mean, first, last, increase, rate_min, rate_max] =
                    row;
                let series_id = series_id.integer();
                if !wanted.contains(series_id) {
                    return Ok(());
                }
                each(BucketRow {
                    series_id,
                    time_ns: time_ns.integer(),
                    count: to_count(count.integer())?,
                    min: min.real(),
                    max: max.real(),
                    mean: mean.real(),
                    first: first.real(),
                    last: last.real(),
                    increase: increase.real(),
                    rate_min: rate_min.real(),
                    rate_max: rate_max.real(),
                })
            })?;
        }
        Ok(())
    }

    /// Returns the samples of one series within `span_ns`, whose end is excluded, in the order of their
    /// times: nanoseconds since the epoch, and values.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn points(&mut self, series_id: i64, span_ns: Range<i64>) -> Result<Vec<(i64, f64)>, StoreError> {
        let mut points = Vec::new();
        // Whichever the scope is, one id is one range.
        let series = [series_id].into_iter().collect();
        self.samples(SeriesScope::Job(0), &series, &span_ns, |sample| {
            points.push((sample.time_ns, sample.value));
            Ok::<_, StoreError>(())
        })?;
        Ok(points)
    }

    /// Returns the conditions for rows of `series` within `span_ns`, for a statement each. They are in the
    /// order of the ids, and may select other series as well.
    fn conditions(&self, of: SeriesScope<'_>, series: &IdRanges, span_ns: &Range<i64>) -> Vec<String> {
        let (begin, end) = (self.bound(span_ns.start), self.bound(span_ns.end));
        let within = |(first, last): (i64, i64)| {
            let is_in =
                if first == last { format!("= {first}") } else { format!("BETWEEN {first} AND {last}") };
            format!("series_id {is_in} AND time >= {begin} AND time < {end}")
        };
        // All samples of a job's series lie in its time. Those of a node are found by each id and the time.
        let is_of_job = matches!(of, SeriesScope::Job(_));
        if let Some(ranges) = cover(series).filter(|_| is_of_job && self.dialect().has_ordered_ranges) {
            return ranges.into_iter().map(within).collect();
        }
        let ids: Vec<i64> = series.ids().collect();
        let Some((first, last)) = ids.first().zip(ids.last()) else { return Vec::new() };
        // TimescaleDB skips compressed batches by the range of the ids, but not by the list.
        let list = (self.dialect().is_one_of)(&ids);
        vec![format!("series_id {list} AND {}", within((*first, *last)))]
    }

    /// Writes a bound of times as a constant. Times have a resolution of microseconds, so that both bounds
    /// are rounded up.
    fn bound(&self, time_ns: i64) -> String {
        let time_us = time_ns.div_euclid(1000) + i64::from(time_ns.rem_euclid(1000) > 0);
        (self.dialect().time)(if time_us > LATEST_US { LATEST_US + 1 } else { stored_us(time_us) })
    }
}

/// Returns the number of samples of an interval.
fn to_count(count: i64) -> Result<u64, StoreError> {
    u64::try_from(count)
        .ok()
        .ok_or_else(|| unexpected(3, Some("count"), "is negative", "a count"))
        .context(READING)
}

/// Returns the name of the relation of a rollup.
const fn relation(rollup: Rollup) -> &'static str {
    match rollup {
        Rollup::TenSeconds => "samples_10s",
        Rollup::Minute => "samples_1min",
        Rollup::Hour => "samples_1h",
    }
}
