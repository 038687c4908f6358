//! The resources that a group of series shows: those of a node, a step or a task. Pure.

use polymeter_proto::units;

use crate::curve::Curve;
use crate::model::{MemoryKind, Resources, SeriesReport};

/// The metrics of CPU time, the most accurate first.
pub const CPU_TIME: [&str; 3] = ["cpu.usage", "process.cpu.usage", "perf.task_clock"];

/// Computes the resources of the series of one node that belong to the same job, step or task.
pub fn of(series: &[&SeriesReport]) -> Resources {
    let (memory_bytes, memory_kind) = memory(series).unzip();
    Resources {
        cpu_s: first_growth(series, &CPU_TIME).map(|ns| ns / 1e9),
        cores_max: first_of(series, &CPU_TIME)
            .iter()
            .filter_map(|series| series.max)
            .reduce(|sum, max| sum + max),
        memory_bytes,
        memory_kind,
        cache_bytes: cache(series),
        cgroup_peak_bytes: highest(series, &["memory.peak", "memory.current"]),
        memory_limit_bytes: of_metric(series, "memory.limit")
            .filter_map(|series| series.min)
            .reduce(f64::min),
        read_bytes: first_growth(series, &["io.read.bytes", "process.io.read.bytes"]),
        written_bytes: first_growth(series, &["io.write.bytes", "process.io.write.bytes"]),
    }
}

/// Adds the resources of another node: peaks are summed, as they may coincide; the lower limit counts.
pub fn add(total: &mut Resources, other: &Resources) {
    let sum = |one: &mut Option<f64>, other: Option<f64>| {
        *one = one.zip(other).map(|(one, other)| one + other).or(*one).or(other);
    };
    sum(&mut total.cpu_s, other.cpu_s);
    sum(&mut total.cores_max, other.cores_max);
    sum(&mut total.memory_bytes, other.memory_bytes);
    sum(&mut total.cache_bytes, other.cache_bytes);
    sum(&mut total.cgroup_peak_bytes, other.cgroup_peak_bytes);
    sum(&mut total.read_bytes, other.read_bytes);
    sum(&mut total.written_bytes, other.written_bytes);
    total.memory_kind = total.memory_kind.or(other.memory_kind);
    let limits = total.memory_limit_bytes.into_iter().chain(other.memory_limit_bytes);
    total.memory_limit_bytes = limits.reduce(f64::min);
}

/// Returns the series of a metric.
pub(crate) fn of_metric<'a>(
    series: &'a [&'a SeriesReport],
    metric: &'a str,
) -> impl Iterator<Item = &'a SeriesReport> {
    series.iter().copied().filter(move |series| series.metric == metric)
}

/// Returns the series of the first of `metrics` that was sampled.
pub(crate) fn first_of<'a>(series: &'a [&'a SeriesReport], metrics: &'a [&'a str]) -> Vec<&'a SeriesReport> {
    let lists = metrics.iter().map(|metric| of_metric(series, metric).collect::<Vec<_>>());
    lists.into_iter().find(|list| !list.is_empty()).unwrap_or_default()
}

/// Returns the sum of the increases of the first of `metrics` that was sampled.
pub(crate) fn first_growth(series: &[&SeriesReport], metrics: &[&str]) -> Option<f64> {
    first_of(series, metrics).iter().filter_map(|series| series.growth).reduce(|sum, growth| sum + growth)
}

/// Returns the largest value of the first of `metrics` that was sampled.
pub(crate) fn highest(series: &[&SeriesReport], metrics: &[&str]) -> Option<f64> {
    first_of(series, metrics).iter().filter_map(|series| series.max).reduce(f64::max)
}

/// Returns the peak of used memory and its origin.
fn memory(series: &[&SeriesReport]) -> Option<(f64, MemoryKind)> {
    let anonymous = of_metric(series, "memory.anon").next();
    if let Some(anonymous) = anonymous {
        let shared = of_metric(series, "memory.shmem").next();
        let peak = match shared {
            Some(shared) => peak_of_sum(anonymous, shared),
            None => anonymous.max,
        };
        return peak.map(|peak| (peak, MemoryKind::AnonymousAndShared));
    }
    let resident = highest(series, &["process.memory.resident"]);
    resident.map(|peak| (peak, MemoryKind::Resident))
}

/// Returns the peak of the page cache without shared memory.
fn cache(series: &[&SeriesReport]) -> Option<f64> {
    let file = of_metric(series, "memory.file").next()?.max?;
    // The cache contains shared memory, which is counted as used.
    let shared = of_metric(series, "memory.shmem").next().and_then(|shared| shared.max);
    Some((file - shared.unwrap_or(0.0)).max(0.0))
}

/// Returns the peak of the sum of two gauges: at the same times if they were sampled together, else the sum
/// of both peaks.
fn peak_of_sum(one: &SeriesReport, other: &SeriesReport) -> Option<f64> {
    let (first, second) = (one.curve.intervals(), other.curve.intervals());
    let is_aligned = first.len() == second.len()
        && !first.is_empty()
        && first.iter().zip(second).all(|(first, second)| first.time_ns == second.time_ns);
    if is_aligned {
        return first.iter().zip(second).map(|(first, second)| first.max + second.max).reduce(f64::max);
    }
    one.max.zip(other.max).map(|(one, other)| one + other)
}

/// Returns the mean of a curve in each of `count` equal parts of a time; none for a part without points.
pub fn parts(curve: &Curve, begin_ns: i64, end_ns: i64, count: usize) -> Vec<Option<f64>> {
    let length_s = units::seconds_between(begin_ns, end_ns);
    let mut sums = vec![(0.0_f64, 0_u64); count];
    for interval in curve.intervals().iter().filter(|interval| interval.sum.is_finite()) {
        let after_s = units::seconds_between(begin_ns, interval.time_ns);
        if length_s > 0.0
            && let Some((sum, weight_ns)) = sums.get_mut(units::part(after_s / length_s, count))
        {
            *sum += interval.sum;
            *weight_ns += interval.weight_ns;
        }
    }
    sums.into_iter().map(|(sum, weight_ns)| (weight_ns > 0).then(|| sum / units::to_f64(weight_ns))).collect()
}

/// Returns the largest value of a curve in each of `count` equal parts of a time; none for a part without
/// points.
pub fn part_peaks(curve: &Curve, begin_ns: i64, end_ns: i64, count: usize) -> Vec<Option<f64>> {
    let length_s = units::seconds_between(begin_ns, end_ns);
    let mut peaks: Vec<Option<f64>> = vec![None; count];
    for interval in curve.intervals().iter().filter(|interval| interval.max.is_finite()) {
        let after_s = units::seconds_between(begin_ns, interval.time_ns);
        if length_s > 0.0
            && let Some(peak) = peaks.get_mut(units::part(after_s / length_s, count))
        {
            *peak = Some(peak.map_or(interval.max, |peak| peak.max(interval.max)));
        }
    }
    peaks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{counter, gauge};

    #[test]
    fn used_memory_excludes_the_cache() {
        let series = [
            gauge("memory.anon", &[5.0, 1.0]),
            gauge("memory.shmem", &[0.0, 2.0]),
            gauge("memory.file", &[90.0, 9.0]),
            gauge("memory.peak", &[95.0, 95.0]),
            gauge("memory.limit", &[100.0, 100.0]),
        ];
        let series: Vec<&SeriesReport> = series.iter().collect();
        let resources = of(&series);
        assert_eq!(
            (resources.memory_bytes, resources.memory_kind),
            (Some(5.0), Some(MemoryKind::AnonymousAndShared))
        );
        assert_eq!((resources.cache_bytes, resources.cgroup_peak_bytes), (Some(88.0), Some(95.0)));
        assert_eq!(resources.memory_limit_bytes, Some(100.0));
        let resident = gauge("process.memory.resident", &[3.0]);
        let resources = of(&[&resident]);
        assert_eq!((resources.memory_bytes, resources.memory_kind), (Some(3.0), Some(MemoryKind::Resident)));
        assert_eq!(of(&[]), Resources::default());
    }

    #[test]
    fn resources_of_nodes_are_added() {
        let one = counter("cpu.usage", &[1.0, 3.0]);
        let mut sum = of(&[&one]);
        add(&mut sum, &of(&[&one]));
        add(&mut sum, &Resources::default());
        assert_eq!((sum.cpu_s, sum.cores_max, sum.memory_bytes), (Some(8.0), Some(6.0), None));
    }

    #[test]
    fn the_parts_of_a_curve_have_their_means() {
        let points: Vec<(i64, f64)> = (0..10_i32).map(|at| (i64::from(at), f64::from(at))).collect();
        let curve = Curve::of(&points);
        assert_eq!(parts(&curve, 0, 10, 2), [Some(2.0), Some(7.0)]);
        assert_eq!(parts(&curve, 0, 20, 4), [Some(2.0), Some(7.0), None, None]);
        assert_eq!(parts(&curve, 5, 5, 2), [None, None]);
        assert_eq!(part_peaks(&curve, 0, 20, 4), [Some(4.0), Some(9.0), None, None]);
        assert_eq!(part_peaks(&curve, 5, 5, 2), [None, None]);
    }
}
