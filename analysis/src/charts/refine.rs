//! A second read of the important quantities of a large job, whose report is computed from long intervals.

use std::collections::HashMap;

use polymeter_store::StoreError;
use polymeter_store::reader::{JobRow, Read, Rollup, SeriesRow, SeriesScope};

use super::quantities::main_metrics;
use crate::gather;
use crate::hardware::Hardware;
use crate::model::Report;

/// Intervals in the time of a job that show its course.
const INTERVALS_SUFFICIENT: u64 = 150;

const INTERVALS_MAX: u64 = 2_000_000;

/// Reads the important quantities of a job in shorter intervals, if its report was computed from intervals
/// that are too long for charts. The most important quantities are read if all of them are too many.
pub fn refine(reader: &mut dyn Read, job: &JobRow, report: &mut Report) -> Result<(), StoreError> {
    let (begin_ns, end_ns) = report.time_ns();
    let length_ns = end_ns.saturating_sub(begin_ns);
    let Some(present_s) = report.rollup_s else { return Ok(()) };
    let left = reader.finest_rollup(job)?;
    let Some(rollup) = sufficient(present_s, left, length_ns) else { return Ok(()) };
    let each = intervals(rollup, length_ns).max(1);
    let room = usize::try_from(INTERVALS_MAX / each).unwrap_or(usize::MAX);
    let all = reader.series(SeriesScope::Job(job.job_key))?;
    let rows = chosen(all, room);
    let hardware = Hardware::gather(reader, job, &rows, None)?;
    let summaries =
        gather::summaries_of_buckets(reader, job, &rows.iter().collect::<Vec<_>>(), &hardware, rollup)?;
    let mut positions = HashMap::new();
    for (position, series) in report.series.iter().enumerate() {
        positions.insert((series.node.clone(), series.metric.clone(), series.labels.clone()), position);
    }
    for (row, summary) in rows.iter().zip(summaries) {
        let key = (row.node.clone(), row.metric.clone(), row.labels.to_string());
        let series = positions.get(&key).and_then(|position| report.series.get_mut(*position));
        if let (Some(series), Some(summary)) = (series, summary) {
            series.curve = summary.into_curve();
        }
    }
    Ok(())
}

fn intervals(rollup: Rollup, length_ns: i64) -> u64 {
    u64::try_from(length_ns / rollup.length_ns()).unwrap_or_default()
}

/// Coarsest rollup with enough intervals, if the present one has too few: a finer one that retention left.
fn sufficient(present_s: f64, left: Option<Rollup>, length_ns: i64) -> Option<Rollup> {
    let seconds = |rollup: &Rollup| polymeter_proto::units::seconds_between(0, rollup.length_ns());
    let mut rollups = Rollup::ALL;
    rollups.sort_by_key(|rollup| std::cmp::Reverse(rollup.length_ns()));
    let present = rollups.iter().find(|rollup| seconds(rollup) <= present_s)?;
    if intervals(*present, length_ns) >= INTERVALS_SUFFICIENT {
        return None;
    }
    let finer = rollups
        .into_iter()
        .filter(|rollup| seconds(rollup) < present_s)
        .filter(|rollup| left.is_none_or(|left| rollup.length_ns() >= left.length_ns()));
    // Without a sufficient one, the finest is better than none.
    let mut finest = None;
    for rollup in finer {
        finest = Some(rollup);
        if intervals(rollup, length_ns) >= INTERVALS_SUFFICIENT {
            break;
        }
    }
    finest
}

/// Series of as many important quantities as fit `room`, in the order of the store.
fn chosen(all: Vec<SeriesRow>, room: usize) -> Vec<SeriesRow> {
    let is_of_job = |row: &SeriesRow| row.labels.get("step").is_none() && row.labels.get("task").is_none();
    let mut ranks: HashMap<&str, usize> = HashMap::new();
    for (rank, metric) in main_metrics().enumerate() {
        ranks.entry(metric).or_insert(rank);
    }
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for row in all.iter().filter(|row| is_of_job(row)) {
        if let Some((metric, _)) = ranks.get_key_value(row.metric.as_str()) {
            *counts.entry(metric).or_default() += 1;
        }
    }
    let mut sampled: Vec<(&str, usize)> = counts.into_iter().collect();
    sampled.sort_by_key(|(metric, _)| ranks.get(metric).copied());
    let mut used = 0;
    let metrics: Vec<&str> = sampled
        .into_iter()
        .take_while(|(_, count): &(&str, usize)| {
            used += count;
            used <= room
        })
        .map(|(metric, _)| metric)
        .collect();
    all.into_iter().filter(|row| is_of_job(row) && metrics.contains(&row.metric.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use polymeter_proto::series::Labels;
    use polymeter_store::reader::{BucketRow, Query, RowBlock};

    use super::*;
    use crate::model::SeriesReport;
    use crate::testing::job_row;

    const HOUR_NS: i64 = 3_600_000_000_000;

    #[test]
    fn long_intervals_are_replaced_by_the_coarsest_sufficient_ones() {
        assert_eq!(sufficient(3600.0, None, 24 * HOUR_NS), Some(Rollup::Minute));
        assert_eq!(sufficient(3600.0, None, 200 * HOUR_NS), None, "hours are enough");
        assert_eq!(sufficient(60.0, None, 24 * HOUR_NS), None);
        assert_eq!(sufficient(60.0, None, HOUR_NS), Some(Rollup::TenSeconds));
        assert_eq!(sufficient(10.0, None, HOUR_NS / 10), None, "nothing is finer");
        assert_eq!(
            sufficient(3600.0, Some(Rollup::Minute), HOUR_NS),
            Some(Rollup::Minute),
            "better than none"
        );
        assert_eq!(
            sufficient(3600.0, Some(Rollup::Hour), 24 * HOUR_NS),
            None,
            "retention removed the others"
        );
    }

    fn all() -> Vec<SeriesRow> {
        vec![
            row("io.read.bytes", &[]),
            row("memory.limit", &[]),
            row("cpu.usage", &[]),
            row("cpu.usage", &[("step", "0")]),
        ]
    }

    fn row(metric: &str, labels: &[(&str, &str)]) -> SeriesRow {
        SeriesRow {
            series_id: 1,
            node: "n1".to_owned(),
            metric: metric.to_owned(),
            unit: "bytes".to_owned(),
            kind: "counter".to_owned(),
            labels: Labels::new(
                labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            )
            .unwrap(),
        }
    }

    #[test]
    fn the_most_important_quantities_are_read() {
        let names = |room| -> Vec<String> { chosen(all(), room).into_iter().map(|row| row.metric).collect() };
        assert_eq!(names(9), ["io.read.bytes", "cpu.usage"]);
        assert_eq!(names(1), ["cpu.usage"]);
        assert!(names(0).is_empty());
    }

    #[test]
    fn the_important_metrics_are_those_of_the_catalogue() {
        for name in main_metrics() {
            assert!(polymeter_proto::catalogue::find(name).is_some(), "no metric {name}");
        }
    }

    /// Has a job of a day.
    struct Store {
        rows: Vec<SeriesRow>,
        left: Option<Rollup>,
        read: Vec<Rollup>,
    }

    impl Read for Store {
        fn read(
            &mut self,
            query: &Query,
            each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
        ) -> Result<(), StoreError> {
            let block = if matches!(query, Query::Series { .. }) {
                RowBlock::Series(self.rows.clone())
            } else if matches!(query, Query::FinestRollup { .. }) {
                RowBlock::Rollups(self.left.into_iter().collect())
            } else if let Query::Buckets { rollup, series, .. } = query {
                self.read.push(*rollup);
                let count = 24 * HOUR_NS / rollup.length_ns();
                RowBlock::Buckets(
                    series
                        .ids()
                        .flat_map(|series_id| {
                            (0..count).map(move |number| BucketRow {
                                series_id,
                                time_ns: number * rollup.length_ns(),
                                count: 2,
                                min: 1.0,
                                max: 3.0,
                                mean: 2.0,
                                first: 1.0,
                                last: 3.0,
                                increase: 2.0,
                                rate_min: f64::NAN,
                                rate_max: f64::NAN,
                            })
                        })
                        .collect(),
                )
            } else {
                RowBlock::Cpus(Vec::new())
            };
            // The receiver wants all rows.
            let _wanted = each(block);
            Ok(())
        }
    }

    fn stored_row(series_id: i64, metric: &str) -> SeriesRow {
        SeriesRow {
            series_id,
            node: "n1".to_owned(),
            metric: metric.to_owned(),
            unit: "bytes".to_owned(),
            kind: "gauge".to_owned(),
            labels: Labels::default(),
        }
    }

    #[test]
    fn the_report_of_a_large_job_gets_finer_curves() {
        let series = |metric: &str| SeriesReport {
            node: "n1".to_owned(),
            metric: metric.to_owned(),
            ..SeriesReport::default()
        };
        let mut report = Report {
            series: vec![series("memory.anon"), series("memory.limit")],
            ended_us: Some(24 * HOUR_NS / 1000),
            rollup_s: Some(3600.0),
            ..Report::default()
        };
        let rows = vec![stored_row(4, "memory.anon"), stored_row(5, "memory.limit")];
        let mut store = Store { rows, left: None, read: Vec::new() };
        refine(&mut store, &job_row("7"), &mut report).unwrap();
        assert_eq!(store.read, [Rollup::Minute]);
        let intervals: Vec<usize> =
            report.series.iter().map(|series| series.curve.intervals().len()).collect();
        assert_eq!(intervals, [1200, 0], "those of the important quantity only");
        store.left = Some(Rollup::Hour);
        refine(&mut store, &job_row("7"), &mut report).unwrap();
        report.rollup_s = None;
        refine(&mut store, &job_row("7"), &mut report).unwrap();
        assert_eq!(store.read, [Rollup::Minute], "there is nothing finer, or the samples were read");
    }
}
