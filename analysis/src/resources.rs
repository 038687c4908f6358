//! Resources that a group of series shows: those of a node, a step or a task. Pure.

use polymeter_proto::units;

use crate::curve::Curve;
use crate::model::{MemoryKind, Resources, SeriesReport};

/// Most accurate first.
pub const CPU_TIME: [&str; 3] = ["cpu.usage", "process.cpu.usage", "perf.task_clock"];

/// Resources of the series of one node that belong to the same job, step or task.
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
        memory_limit_bytes: memory_limit(series),
        read_bytes: first_growth(series, &["io.read.bytes", "process.io.read.bytes"]),
        written_bytes: first_growth(series, &["io.write.bytes", "process.io.write.bytes"]),
    }
}

fn add_known(one: &mut Option<f64>, other: Option<f64>) {
    *one = one.zip(other).map(|(one, other)| one + other).or(*one).or(other);
}

/// Adds the resources of another node: peaks are summed, as they may coincide; the lower limit counts.
pub fn add(total: &mut Resources, other: &Resources) {
    add_known(&mut total.cpu_s, other.cpu_s);
    add_known(&mut total.cores_max, other.cores_max);
    add_known(&mut total.memory_bytes, other.memory_bytes);
    add_known(&mut total.cache_bytes, other.cache_bytes);
    add_known(&mut total.cgroup_peak_bytes, other.cgroup_peak_bytes);
    add_known(&mut total.read_bytes, other.read_bytes);
    add_known(&mut total.written_bytes, other.written_bytes);
    total.memory_kind = total.memory_kind.or(other.memory_kind);
    let limits = total.memory_limit_bytes.into_iter().chain(other.memory_limit_bytes);
    total.memory_limit_bytes = limits.reduce(f64::min);
}

/// Leaves out series that are contained in others.
pub(crate) fn of_metric<'a>(
    series: &'a [&'a SeriesReport],
    metric: &'a str,
) -> impl Iterator<Item = &'a SeriesReport> {
    series.iter().copied().filter(move |series| series.metric == metric && !series.is_contained)
}

/// Series of the first of `metrics` that was sampled.
pub(crate) fn first_of<'a>(series: &'a [&'a SeriesReport], metrics: &'a [&'a str]) -> Vec<&'a SeriesReport> {
    let lists = metrics.iter().map(|metric| of_metric(series, metric).collect::<Vec<_>>());
    lists.into_iter().find(|list| !list.is_empty()).unwrap_or_default()
}

/// Sum of the increases of the first of `metrics` that was sampled.
pub(crate) fn first_growth(series: &[&SeriesReport], metrics: &[&str]) -> Option<f64> {
    first_of(series, metrics).iter().filter_map(|series| series.growth).reduce(|sum, growth| sum + growth)
}

/// Largest value of the first of `metrics` that was sampled.
pub(crate) fn highest(series: &[&SeriesReport], metrics: &[&str]) -> Option<f64> {
    first_of(series, metrics).iter().filter_map(|series| series.max).reduce(f64::max)
}

/// Processes that the OOM killer ended; none if it was not sampled.
pub(crate) fn oom_kills(series: &[&SeriesReport]) -> Option<f64> {
    first_growth(series, &["memory.events.oom_kill"])
}

fn memory(series: &[&SeriesReport]) -> Option<(f64, MemoryKind)> {
    let parts = ["memory.anon", "memory.shmem"].map(|metric| of_metric(series, metric).next());
    if let [Some(anonymous), shared] = parts {
        let huge = huge_pages(series);
        let parts: Vec<&SeriesReport> =
            [anonymous].into_iter().chain(shared).chain(huge.iter().copied()).collect();
        let kind = if huge.is_empty() { MemoryKind::AnonymousAndShared } else { MemoryKind::WithHugePages };
        return peak_of_sum(&parts).map(|peak| (peak, kind));
    }
    let resident = highest(series, &["process.memory.resident"]);
    resident.map(|peak| (peak, MemoryKind::Resident))
}

/// Hard limit: of one that was changed the one in force when the most memory was used.
fn memory_limit(series: &[&SeriesReport]) -> Option<f64> {
    let limit = of_metric(series, "memory.limit").next()?;
    let used = first_of(series, &["memory.anon", "memory.current"]);
    let highest = used.first().and_then(|used| {
        let numbers = used.curve.intervals().iter().filter(|interval| interval.max.is_finite());
        numbers.max_by(|one, other| one.max.total_cmp(&other.max))
    });
    let limits = limit.curve.intervals();
    let in_force = highest.map(|highest| limits.partition_point(|limit| limit.time_ns <= highest.time_ns));
    let in_force = in_force.and_then(|behind| limits.get(behind.saturating_sub(1)));
    in_force.map(|interval| interval.max).or(limit.min)
}

/// Huge pages that were in use: those that are accounted as memory, or those of each size, if these are more.
fn huge_pages<'a>(series: &'a [&'a SeriesReport]) -> Vec<&'a SeriesReport> {
    let peak = |series: &[&SeriesReport]| series.iter().filter_map(|series| series.max).sum::<f64>();
    let [accounted, by_size]: [Vec<&SeriesReport>; 2] = ["memory.hugetlb", "hugetlb.current"].map(|metric| {
        of_metric(series, metric).filter(|series| series.max.is_some_and(|max| max > 0.0)).collect()
    });
    if peak(&accounted) > peak(&by_size) { accounted } else { by_size }
}

/// Peak of the page cache without shared memory.
fn cache(series: &[&SeriesReport]) -> Option<f64> {
    let file = of_metric(series, "memory.file").next()?.max?;
    // The cache contains shared memory, which is counted as used.
    let shared = of_metric(series, "memory.shmem").next().and_then(|shared| shared.max);
    Some((file - shared.unwrap_or(0.0)).max(0.0))
}

/// Peak of the sum of gauges: at the same times if they were sampled together, else the sum of their peaks.
fn peak_of_sum(parts: &[&SeriesReport]) -> Option<f64> {
    let (first, others) = parts.split_first()?;
    let intervals = first.curve.intervals();
    if intervals.is_empty()
        || !others.iter().all(|other| {
            let other = other.curve.intervals();
            intervals.len() == other.len()
                && intervals.iter().zip(other).all(|(first, second)| first.time_ns == second.time_ns)
        })
    {
        return parts.iter().map(|series| series.max).sum();
    }
    let mut sums: Vec<f64> = intervals.iter().map(|interval| interval.max).collect();
    for other in others {
        for (sum, interval) in sums.iter_mut().zip(other.curve.intervals()) {
            *sum += interval.max;
        }
    }
    sums.into_iter().reduce(f64::max)
}

/// Mean of a curve in each of `count` equal parts of a time; none for a part without points.
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

/// Largest value in place of the mean of [`parts`].
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

    fn sized(size: &str, values: &[f64]) -> SeriesReport {
        SeriesReport { labels: format!("size={size}"), ..gauge("hugetlb.current", values) }
    }

    fn used(huge: Vec<SeriesReport>) -> Option<(f64, MemoryKind)> {
        let mut series = vec![gauge("memory.anon", &[1.0, 4.0]), gauge("memory.shmem", &[2.0, 1.0])];
        series.extend(huge);
        let resources = of(&series.iter().collect::<Vec<_>>());
        resources.memory_bytes.zip(resources.memory_kind)
    }

    #[test]
    fn huge_pages_are_used_memory() {
        let (plain, huge) = (MemoryKind::AnonymousAndShared, MemoryKind::WithHugePages);
        assert_eq!(used(vec![sized("2MB", &[0.0, 0.0])]), Some((5.0, plain)));
        assert_eq!(used(vec![sized("2MB", &[70.0, 0.0]), sized("1GB", &[30.0, 90.0])]), Some((103.0, huge)));
        // Both count the same pages where the kernel accounts them as memory.
        let accounted = || gauge("memory.hugetlb", &[60.0, 60.0]);
        assert_eq!(used(vec![accounted(), sized("2MB", &[60.0, 60.0])]), Some((65.0, huge)));
        assert_eq!(used(vec![accounted()]), Some((65.0, huge)));
        assert_eq!(used(vec![gauge("memory.hugetlb", &[7.0])]), Some((13.0, huge)), "not sampled together");
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
