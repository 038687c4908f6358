//! Distributions of samples, from the histograms of windows.

use std::collections::{BTreeMap, HashMap};

use polymeter_proto::histogram;
use polymeter_proto::units;
use polymeter_store::StoreError;
use polymeter_store::reader::{HistogramRow, JobRow, Read, SeriesRow, SeriesScope};

use crate::model::{DistributionReport, Report};
use crate::series::is_of_step;

/// Adds the distributions of the job's series: steps and tasks are left out, whose values are in the job's.
pub(crate) fn add_to(
    reader: &mut dyn Read,
    (job, rows): (&JobRow, &[SeriesRow]),
    report: &mut Report,
) -> Result<(), StoreError> {
    let histograms = reader.histograms(SeriesScope::Job(job.job_key), None)?;
    report.distributions = distributions(rows, &histograms);
    Ok(())
}

/// Returns the distribution of each series that has histograms, in the order of the series.
pub fn of_series(rows: Vec<SeriesRow>, histograms: &[HistogramRow]) -> Vec<(SeriesRow, DistributionReport)> {
    let mut by_series: HashMap<i64, BTreeMap<u64, u64>> = HashMap::new();
    for HistogramRow { series_id, least, count } in histograms {
        *by_series.entry(*series_id).or_default().entry(least.to_bits()).or_default() += count;
    }
    let found = rows.into_iter().filter_map(|row| {
        let distribution = distribution(&row, by_series.get(&row.series_id)?)?;
        Some((row, distribution))
    });
    found.collect()
}

fn distributions(rows: &[SeriesRow], histograms: &[HistogramRow]) -> Vec<DistributionReport> {
    let of_job = rows.iter().filter(|row| !is_of_step(row));
    let series: HashMap<i64, &SeriesRow> = of_job.map(|row| (row.series_id, row)).collect();
    // Numbers that are not negative have the order of their bits.
    let mut metrics: BTreeMap<&str, (&SeriesRow, BTreeMap<u64, u64>)> = BTreeMap::new();
    for bucket in histograms {
        let Some(row) = series.get(&bucket.series_id) else { continue };
        let (_, counts) = metrics.entry(&row.metric).or_insert_with(|| (row, BTreeMap::new()));
        *counts.entry(bucket.least.to_bits()).or_default() += bucket.count;
    }
    let metrics = metrics.into_values();
    metrics.filter_map(|(row, counts)| distribution(row, &counts)).collect()
}

fn distribution(row: &SeriesRow, counts: &BTreeMap<u64, u64>) -> Option<DistributionReport> {
    let (unit, factor) = match row.kind.as_str() {
        "counter" => units::rate_unit(&row.metric, &row.unit),
        _ => (row.unit.as_str(), 1.0),
    };
    let buckets: Vec<_> = counts.iter().map(|(bits, count)| (f64::from_bits(*bits), *count)).collect();
    let quantile = |part: f64| histogram::quantile(&buckets, part).map(|value| value * factor);
    Some(DistributionReport {
        metric: row.metric.clone(),
        unit: unit.to_owned(),
        samples: counts.values().sum(),
        p50: quantile(0.5)?,
        p90: quantile(0.9)?,
        p99: quantile(0.99)?,
        max: quantile(1.0)?,
    })
}

#[cfg(test)]
mod tests {
    use polymeter_proto::series::Labels;

    use super::*;

    fn row(series_id: i64, node: &str, labels: &[(&str, &str)]) -> SeriesRow {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        SeriesRow {
            series_id,
            node: node.to_owned(),
            metric: "cpu.usage".to_owned(),
            unit: "nanoseconds".to_owned(),
            kind: "counter".to_owned(),
            labels: Labels::new(labels).unwrap(),
        }
    }

    #[test]
    fn nodes_are_one_distribution_without_their_steps() {
        let rows = [row(1, "n1", &[]), row(2, "n2", &[]), row(3, "n1", &[("step", "0")])];
        let bucket = |series_id, least, count| HistogramRow { series_id, least, count };
        let one_core = 15.0 * 2_f64.powi(26);
        let found = distributions(
            &rows,
            &[
                bucket(1, 0.0, 50),
                bucket(1, one_core, 30),
                bucket(2, one_core, 19),
                bucket(2, 2.0 * one_core, 1),
                bucket(3, 0.0, 1000),
                bucket(4, 0.0, 1000),
            ],
        );
        let [of] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((of.samples, of.unit.as_str(), of.p50), (100, "cores", 0.0));
        for (found, expected) in [(of.p90, 1.007), (of.p99, 1.007), (of.max, 2.013)] {
            assert!((found / expected - 1.0).abs() <= 1.1 * histogram::ERROR, "{found} is not {expected}");
        }
        assert_eq!(distributions(&rows, &[]), []);
        let found =
            of_series(rows.to_vec(), &[bucket(2, one_core, 19), bucket(1, 7.0, 1), bucket(2, one_core, 2)]);
        let samples: Vec<(i64, u64)> = found.iter().map(|(row, of)| (row.series_id, of.samples)).collect();
        assert_eq!(samples, [(1, 1), (2, 21)]);
    }
}
