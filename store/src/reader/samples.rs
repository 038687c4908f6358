//! Samples.

use std::ops::Range;

use polymeter_proto::read::{BucketRow, IdRanges, Rollup, SampleRow};

use super::connection::Reader;
use super::cover::{Ascending, cover};
use super::read::SeriesScope;
use crate::StoreError;
use crate::bounds::{LATEST_US, stored_us};
use crate::value::ColumnType;

impl Reader {
    /// Passes the samples of `series` within `span_ns`, whose end is excluded, to `each`: sorted by the ids of the series,
    /// then by time. They are not held in memory. After an error of `each` the reader must be dropped.
    ///
    /// # Errors
    /// Returns an error if the store or `each` fails.
    pub fn samples<E: From<StoreError>>(
        &mut self,
        of: SeriesScope<'_>,
        series: &IdRanges,
        span_ns: &Range<i64>,
        mut each: impl FnMut(SampleRow) -> Result<(), E>,
    ) -> Result<(), E> {
        const COLUMNS: [ColumnType; 3] = [ColumnType::Integer, ColumnType::Time, ColumnType::Real];
        let mut wanted = Ascending::new(series);
        for condition in self.conditions(of, series, span_ns) {
            let select = format!(
                "SELECT series_id, time, value FROM samples WHERE {condition} ORDER BY series_id, time"
            );
            self.stream(&select, &COLUMNS, |row| {
                let series_id = row.integer(0);
                if !wanted.contains(series_id) {
                    return Ok(());
                }
                each(SampleRow { series_id, time_ns: row.integer(1), value: row.real(2) })
            })?;
        }
        Ok(())
    }

    /// Passes the intervals of a rollup that contain samples of `series` within `span_ns` to `each`: sorted by the ids of the
    /// series, then by time. They are not held in memory. After an error of `each` the reader must be dropped.
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
        let begin_ns = span_ns.start.max(0);
        let span_ns = begin_ns - begin_ns % rollup.length_ns()..span_ns.end;
        let (begin, end) = (self.bound(span_ns.start), self.bound(span_ns.end));
        let source = (self.dialect().buckets)(relation(rollup), &begin, &end, series);
        let mut columns = vec![ColumnType::Integer, ColumnType::Time, ColumnType::Integer];
        columns.resize(9, ColumnType::Real);
        let mut wanted = Ascending::new(series);
        for condition in self.conditions(of, series, &span_ns) {
            let select = format!(
                "SELECT series_id, time, CAST(count AS bigint), min, max, sum, first, last, increase FROM {source}
                 WHERE {condition} ORDER BY series_id, time"
            );
            self.stream(&select, &columns, |row| {
                let series_id = row.integer(0);
                if !wanted.contains(series_id) {
                    return Ok(());
                }
                each(BucketRow {
                    series_id,
                    time_ns: row.integer(1),
                    count: row.count(2),
                    min: row.real(3),
                    max: row.real(4),
                    sum: row.real(5),
                    first: row.real(6),
                    last: row.real(7),
                    increase: row.real(8),
                })
            })?;
        }
        Ok(())
    }

    /// Returns the samples of one series within `span_ns`, whose end is excluded, in the order of their times: nanoseconds
    /// since the epoch, and values.
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

    /// Returns the conditions for rows of `series` within `span_ns`, for a statement each. They are in the order of the ids, and may
    /// select other series as well.
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

    /// Writes a bound of times as a constant. Times have a resolution of microseconds, so that both bounds are rounded up.
    fn bound(&self, time_ns: i64) -> String {
        let time_us = time_ns.div_euclid(1000) + i64::from(time_ns.rem_euclid(1000) > 0);
        (self.dialect().time)(if time_us > LATEST_US { LATEST_US + 1 } else { stored_us(time_us) })
    }
}

/// Returns the name of the relation of a rollup.
const fn relation(rollup: Rollup) -> &'static str {
    match rollup {
        Rollup::TenSeconds => "samples_10s",
        Rollup::Minute => "samples_1min",
        Rollup::Hour => "samples_1h",
    }
}
