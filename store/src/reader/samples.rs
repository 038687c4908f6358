//! Samples.

use std::ops::Range;

use polymeter_proto::read::{BucketRow, Rollup, SampleRow};

use super::connection::Reader;
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
        series: &[i64],
        span_ns: &Range<i64>,
        mut each: impl FnMut(SampleRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(condition) = self.condition(series, span_ns) else { return Ok(()) };
        let select =
            format!("SELECT series_id, time, value FROM samples WHERE {condition} ORDER BY series_id, time");
        self.stream(&select, &[ColumnType::Integer, ColumnType::Time, ColumnType::Real], |row| {
            each(SampleRow { series_id: row.integer(0), time_ns: row.integer(1), value: row.real(2) })
        })
    }

    /// Passes the intervals of a rollup that contain samples of `series` within `span_ns` to `each`: sorted by the ids of the
    /// series, then by time. They are not held in memory. After an error of `each` the reader must be dropped.
    ///
    /// # Errors
    /// Returns an error if the store or `each` fails.
    pub fn buckets<E: From<StoreError>>(
        &mut self,
        rollup: Rollup,
        series: &[i64],
        span_ns: &Range<i64>,
        mut each: impl FnMut(BucketRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let begin_ns = span_ns.start.max(0);
        let span_ns = begin_ns - begin_ns % rollup.length_ns()..span_ns.end;
        let Some(condition) = self.condition(series, &span_ns) else { return Ok(()) };
        let source =
            (self.dialect().buckets)(relation(rollup), &self.bound(span_ns.start), &self.bound(span_ns.end));
        let select = format!(
            "SELECT series_id, time, CAST(count AS bigint), min, max, sum, first, last, increase FROM {source}
             WHERE {condition} ORDER BY series_id, time"
        );
        let mut columns = vec![ColumnType::Integer, ColumnType::Time, ColumnType::Integer];
        columns.resize(9, ColumnType::Real);
        self.stream(&select, &columns, |row| {
            each(BucketRow {
                series_id: row.integer(0),
                time_ns: row.integer(1),
                count: row.count(2),
                min: row.real(3),
                max: row.real(4),
                sum: row.real(5),
                first: row.real(6),
                last: row.real(7),
                increase: row.real(8),
            })
        })
    }

    /// Returns the samples of one series within `span_ns`, whose end is excluded, in the order of their times: nanoseconds
    /// since the epoch, and values.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn points(&mut self, series_id: i64, span_ns: Range<i64>) -> Result<Vec<(i64, f64)>, StoreError> {
        let mut points = Vec::new();
        self.samples(&[series_id], &span_ns, |sample| {
            points.push((sample.time_ns, sample.value));
            Ok::<_, StoreError>(())
        })?;
        Ok(points)
    }

    /// Returns the condition for rows of `series` within `span_ns`; none if there are no such rows.
    fn condition(&self, series: &[i64], span_ns: &Range<i64>) -> Option<String> {
        let (first, last) = (series.iter().min()?, series.iter().max()?);
        // TimescaleDB skips compressed batches by the range of the ids, but not by the list.
        Some(format!(
            "series_id {} AND series_id BETWEEN {first} AND {last} AND time >= {} AND time < {}",
            (self.dialect().is_one_of)(series),
            self.bound(span_ns.start),
            self.bound(span_ns.end)
        ))
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
