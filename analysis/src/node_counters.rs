//! Reading the series of a job's nodes, which belong to no job: energy, the network and file systems of nodes
//! that the job had alone, and what devices outside the nodes measured of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use polymeter_proto::units;
use polymeter_service::clock;

use polymeter_store::StoreError;
use polymeter_store::reader::{
    BucketRow, JobNodeRow, JobRow, Read, Rollup, SampleRow, SeriesRow, SeriesScope,
};

use crate::carbon::{self, Intensities};
use crate::cumulative::Cumulative;
use crate::derived;
use crate::devices;
use crate::energy::{self, NodeCounters};
use crate::energy_sources;
use crate::model::{NodeEnergy, Report, SeriesReport};
use crate::series::{Periods, Summary};
use crate::traffic;

/// Samples are read from this long before the start of the job, and until this long after its end: those of a
/// node do not begin with a job.
const MARGIN_NS: i64 = 60 * 1_000_000_000;

/// The same of intensities of carbon dioxide, which change rarely. Everybody may read those of all nodes.
const INTENSITY_MARGIN_NS: i64 = 3600 * 1_000_000_000;

/// More values are read from a coarser rollup. Samples are taken to be a second apart.
const VALUES_MAX: f64 = 1_000_000.0;

/// Adds the energy of the job to its report, the traffic with networks and file systems of nodes that it had
/// alone, and the measurements of devices.
pub(crate) fn add_to(reader: &mut dyn Read, job: &JobRow, report: &mut Report) -> Result<(), StoreError> {
    let of_energy = energy::metrics();
    let of_traffic: Vec<&str> = traffic::metrics().into_iter().chain(derived::metrics_of_nodes()).collect();
    let metrics: Vec<&str> = of_energy.iter().chain(&of_traffic).copied().collect();
    let mut rows = reader.node_series(job.job_key, &metrics)?;
    let has_energy = rows.iter().any(|row| energy::energy_metrics().any(|metric| metric == row.metric))
        || report.series.iter().any(energy::is_of_gpus);
    // CPU time of nodes is only needed to divide their energy.
    rows.retain(|row| has_energy || !of_energy.contains(&row.metric.as_str()));
    let mut of_devices = reader.device_series(job.job_key)?;
    let intensities: Vec<SeriesRow> =
        of_devices.iter().filter(|row| carbon::is_intensity(row)).cloned().collect();
    of_devices.retain(|row| devices::quantity(row).is_some());
    if rows.is_empty() && of_devices.is_empty() && !has_energy {
        return Ok(());
    }
    let nodes = reader.job_nodes(job.job_key)?;
    let alone: BTreeSet<&str> =
        nodes.iter().filter(|row| !row.is_shared).map(|row| row.node.as_str()).collect();
    rows.retain(|row| of_energy.contains(&row.metric.as_str()) || alone.contains(row.node.as_str()));
    let has_few_nodes = nodes.len() <= derived::NODES_MAX;
    let by_devices = add_devices(reader, job, report, (&nodes, &of_devices, has_few_nodes))?;
    let values = values(reader, job, &rows)?;
    // Devices whose bytes are those of others do not count.
    rows.retain(|row| values.contains_key(&row.series_id));
    let mut contained = SeriesRow::contained(&rows).into_iter();
    rows.retain(|_| !contained.next().unwrap_or_default());
    let counters = counters(&rows, &values);
    let by_best = if has_few_nodes {
        energy_sources::add_to(report, &nodes, &counters, (&of_devices, &by_devices))
    } else {
        BTreeMap::new()
    };
    let intensities = intensities_of(reader, job, &intensities)?;
    add_energy(report, (&nodes, &intensities), &counters, by_best);
    traffic::add_to(report, &nodes, &counters);
    if has_few_nodes {
        rows.retain(|row| of_traffic.contains(&row.metric.as_str()));
        add_series(report, &nodes, &rows, values);
    }
    Ok(())
}

/// Adds the measurements of devices, and their series on nodes that the job had alone. Returns their
/// counters, and the integrals of their powers, by series.
fn add_devices(
    reader: &mut dyn Read,
    job: &JobRow,
    report: &mut Report,
    (nodes, rows, has_series): (&[JobNodeRow], &[SeriesRow], bool),
) -> Result<BTreeMap<i64, Cumulative>, StoreError> {
    if rows.is_empty() {
        return Ok(BTreeMap::new());
    }
    let values = values(reader, job, rows)?;
    let counters =
        rows.iter().filter_map(|row| Some((row.series_id, counter(row, values.get(&row.series_id)?))));
    let counters = counters.collect();
    devices::add_to(report, nodes, rows, &counters);
    if has_series {
        let is_alone = |row: &&SeriesRow| nodes.iter().any(|node| node.node == row.node && !node.is_shared);
        let alone: Vec<SeriesRow> = rows.iter().filter(is_alone).cloned().collect();
        add_series(report, nodes, &alone, values);
    }
    Ok(counters)
}

/// Reads intensities. One that began to hold before the job counts.
fn intensities_of(
    reader: &mut dyn Read,
    job: &JobRow,
    rows: &[SeriesRow],
) -> Result<Intensities, StoreError> {
    let mut intensities = Intensities::default();
    if rows.is_empty() {
        return Ok(intensities);
    }
    let values = values_since(reader, job, rows, INTENSITY_MARGIN_NS)?;
    for row in rows {
        match values.get(&row.series_id) {
            None => {}
            Some(Values::Samples(samples)) => {
                intensities.add(row, samples.iter().map(|sample| (sample.time_ns, sample.mean())));
            }
            Some(Values::Buckets(buckets, _)) => {
                intensities.add(row, buckets.iter().map(|bucket| (bucket.time_ns, bucket.mean)));
            }
        }
    }
    Ok(intensities)
}

enum Values {
    Samples(Vec<SampleRow>),
    Buckets(Vec<BucketRow>, i64),
}

/// Reads the values of `rows` around the time of the job.
fn values(
    reader: &mut dyn Read,
    job: &JobRow,
    rows: &[SeriesRow],
) -> Result<BTreeMap<i64, Values>, StoreError> {
    values_since(reader, job, rows, MARGIN_NS)
}

/// Reads the values of `rows` from so long before the job on.
fn values_since(
    reader: &mut dyn Read,
    job: &JobRow,
    rows: &[SeriesRow],
    before_ns: i64,
) -> Result<BTreeMap<i64, Values>, StoreError> {
    let end_ns = job.ended_ns.unwrap_or_else(|| clock::realtime_us().saturating_mul(1000));
    let span_ns = job.started_ns.saturating_sub(before_ns)..end_ns.saturating_add(MARGIN_NS);
    let left = reader.finest_rollup(job)?;
    let rollup = left.into_iter().chain(rollup(&span_ns, rows.len())).max_by_key(|rollup| rollup.length_ns());
    let of = SeriesScope::NodesOf(job.job_key);
    let ids: Vec<i64> = rows.iter().map(|row| row.series_id).collect();
    let Some(rollup) = rollup else {
        let mut samples: BTreeMap<i64, Vec<SampleRow>> = BTreeMap::new();
        reader.samples(of, &ids, &span_ns, |sample| {
            samples.entry(sample.series_id).or_default().push(sample);
            Ok::<_, StoreError>(())
        })?;
        return Ok(samples.into_iter().map(|(id, samples)| (id, Values::Samples(samples))).collect());
    };
    let mut buckets: BTreeMap<i64, Vec<BucketRow>> = BTreeMap::new();
    reader.buckets(rollup, of, &ids, &span_ns, |bucket| {
        buckets.entry(bucket.series_id).or_default().push(bucket);
        Ok::<_, StoreError>(())
    })?;
    Ok(buckets.into_iter().map(|(id, buckets)| (id, Values::Buckets(buckets, rollup.length_ns()))).collect())
}

/// Finest rollup of `series` series over a time that has few enough values; none if the samples have.
fn rollup(span_ns: &Range<i64>, series: usize) -> Option<Rollup> {
    let seconds = units::seconds_between(span_ns.start, span_ns.end) * units::to_f64(series as u64);
    if seconds <= VALUES_MAX {
        return None;
    }
    Some(
        Rollup::ALL
            .into_iter()
            .find(|rollup| seconds / units::seconds_between(0, rollup.length_ns()) <= VALUES_MAX)
            .unwrap_or(Rollup::Hour),
    )
}

/// Adds the series of networks and file systems to the report, in the time of the job on their node.
fn add_series(
    report: &mut Report,
    nodes: &[JobNodeRow],
    rows: &[SeriesRow],
    mut values: BTreeMap<i64, Values>,
) {
    let (start_ns, end_ns) = report.time_ns();
    for row in rows {
        let (Some(node), Some(values)) =
            (nodes.iter().find(|node| node.node == row.node), values.remove(&row.series_id))
        else {
            continue;
        };
        let span_ns = node.started_ns.max(start_ns)..node.ended_ns.unwrap_or(end_ns).min(end_ns);
        let summary = match values {
            Values::Samples(mut samples) => {
                samples.retain(|sample| span_ns.contains(&sample.time_ns));
                Summary::of_rows(row, &samples, None)
            }
            Values::Buckets(mut buckets, length_ns) => {
                buckets.retain(|bucket| span_ns.contains(&bucket.time_ns));
                Summary::of_buckets(row, &buckets, length_ns, &span_ns, None)
            }
        };
        report.series.extend(summary.map(|summary| summary.report(row, Periods::default(), None)));
    }
}

/// Counters of `rows` and integrals of gauges, by node and metric.
fn counters(rows: &[SeriesRow], values: &BTreeMap<i64, Values>) -> BTreeMap<String, NodeCounters> {
    let mut counters: BTreeMap<String, NodeCounters> = BTreeMap::new();
    for row in rows {
        let Some(values) = values.get(&row.series_id) else { continue };
        let counter = counter(row, values);
        counters.entry(row.node.clone()).or_default().entry(row.metric.clone()).or_default().push(counter);
    }
    counters
}

fn counter(row: &SeriesRow, values: &Values) -> Cumulative {
    match (values, row.kind == "gauge") {
        (Values::Samples(samples), true) => {
            Cumulative::of_rate(samples.iter().map(|sample| (sample.time_ns, sample.mean())))
        }
        (Values::Samples(samples), false) => {
            let values: Vec<_> = samples.iter().map(|sample| (sample.time_ns, sample.value)).collect();
            Cumulative::of_samples(&values)
        }
        (Values::Buckets(buckets, length_ns), true) => Cumulative::of_rate_buckets(buckets, *length_ns),
        (Values::Buckets(buckets, length_ns), false) => Cumulative::of_buckets(buckets, *length_ns),
    }
}

/// Adds the energy of each node by its best source, if it is known, else by its counters.
fn add_energy(
    report: &mut Report,
    (nodes, intensities): (&[JobNodeRow], &Intensities),
    counters: &BTreeMap<String, NodeCounters>,
    mut by_best: BTreeMap<String, NodeEnergy>,
) {
    let mut series: BTreeMap<&str, Vec<&SeriesReport>> = BTreeMap::new();
    for of_job in report.series.iter().filter(|series| !series.is_of_step) {
        series.entry(&of_job.node).or_default().push(of_job);
    }
    let none = NodeCounters::new();
    let energies = nodes.iter().filter_map(|row| {
        let of_job = series.get(row.node.as_str()).map(Vec::as_slice).unwrap_or_default();
        let by_counters = || energy::of_node(row, counters.get(&row.node).unwrap_or(&none), of_job);
        let energy = by_best.remove(&row.node).or_else(by_counters)?;
        Some((row.node.clone(), energy))
    });
    let energies = energies.collect();
    energy::add_to(report, nodes, energies, intensities);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_values_are_read_from_rollups() {
        let hour_ns = 3600 * 1_000_000_000;
        assert_eq!(rollup(&(0..hour_ns), 200), None);
        assert_eq!(rollup(&(0..24 * hour_ns), 40), Some(Rollup::TenSeconds));
        assert_eq!(rollup(&(0..24 * hour_ns), 400), Some(Rollup::Minute));
        assert_eq!(rollup(&(0..24 * hour_ns), 40_000), Some(Rollup::Hour));
    }
}
