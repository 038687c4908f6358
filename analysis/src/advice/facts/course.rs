//! Facts about the course of a job over time. Pure.

use polymeter_proto::units::to_f64;

use super::gpus;
use super::values::{Facts, ratio};
use crate::curve::Curve;
use crate::model::{Report, SeriesReport};
use crate::resources::{CPU_TIME, first_of, of_metric, part_peaks, parts};

const PARTS: usize = 10;

/// The time is divided into at most so many parts to find those in which the job stood still.
const STANDSTILL_PARTS: usize = 600;

/// Up to so many cores in use a job stands still: while Slurm has suspended a job, its daemon runs on.
const STANDSTILL_CORES: f64 = 0.002;

/// Shortest time without CPU time that counts. Slurm's time slices are longer.
const STANDSTILL_S: f64 = 20.0;

/// The facts about the activity are unknown if a part of the time has no sample, and if what the job's GPUs
/// did is unknown.
pub(super) fn add(facts: &mut Facts, report: &Report, series: &[&SeriesReport]) {
    let complete = |series: &[&SeriesReport]| sum(report, series, parts).into_iter().collect();
    let cores: Option<Vec<f64>> = complete(&first_of(series, &CPU_TIME));
    add_standstill(facts, report, &first_of(series, &CPU_TIME));
    let has_gpus = facts.number("gpus").is_some_and(|gpus| gpus > 0.0);
    let gpus = if has_gpus { complete(&gpus::utilization(series)) } else { Some(Vec::new()) };
    if let Some((cores, gpus)) = cores.zip(gpus) {
        add_activity(facts, report, &cores, &gpus);
    }
    let anonymous: Vec<&SeriesReport> = of_metric(series, "memory.anon").collect();
    let used =
        if anonymous.is_empty() { of_metric(series, "process.memory.resident").collect() } else { anonymous };
    facts.set_number("memory_growth", memory_growth(&sum(report, &used, part_peaks)));
}

/// Adds the facts about the time in which the job stood still. A job that never used CPU time does not count
/// as one that was suspended.
fn add_standstill(facts: &mut Facts, report: &Report, cpu: &[&SeriesReport]) {
    // Each part has some points of each series.
    let points = cpu.iter().map(|series| series.curve.intervals().len()).min().unwrap_or_default();
    let count = (points / 2).clamp(1, STANDSTILL_PARTS);
    let (begin_ns, end_ns) = report.time_ns();
    let part_s = report.wall_s / to_f64(count as u64);
    let mut still = vec![!cpu.is_empty(); count];
    for series in cpu {
        for (still, cores) in still.iter_mut().zip(parts(&series.curve, begin_ns, end_ns, count)) {
            *still &= cores.is_some_and(|cores| cores <= STANDSTILL_CORES);
        }
    }
    let stretches =
        still.chunk_by(|one, other| one == other).filter(|stretch| stretch.first() == Some(&true));
    // A single part may have points of a short wait alone.
    let still_s: f64 = stretches
        .filter(|stretch| stretch.len() > 1)
        .map(|stretch| part_s * to_f64(stretch.len() as u64))
        .filter(|stretch_s| *stretch_s >= STANDSTILL_S)
        .sum();
    let share = ratio(Some(still_s), facts.number("elapsed")).filter(|share| *share < 1.0).unwrap_or(0.0);
    let active = facts.number("cores_used").map(|cores| cores / (1.0 - share));
    facts.set_number("standstill_share", Some(share));
    facts.set_number("cores_active", active);
    facts.set_number("active_efficiency", ratio(active, facts.number("cores")));
}

/// Ratio of the highest to the first memory if the peaks of the parts rise all the time. The first and the
/// last part may differ: a job reads its input at its start, and its processes end before it does.
fn memory_growth(peaks: &[Option<f64>]) -> Option<f64> {
    let inner: Vec<f64> =
        peaks.get(1..peaks.len().checked_sub(1)?)?.iter().copied().collect::<Option<_>>()?;
    let rises = inner.iter().zip(inner.iter().skip(1)).all(|(before, after)| after > before);
    let highest = inner.iter().copied().chain(peaks.last().copied().flatten()).reduce(f64::max);
    rises.then(|| ratio(highest, inner.first().copied())).flatten()
}

/// Value of a curve in each of a number of equal parts of a time.
type InParts = fn(&Curve, i64, i64, usize) -> Vec<Option<f64>>;

/// Sums a value over the series in each part of the time; none for a part without a sample.
fn sum(report: &Report, series: &[&SeriesReport], in_parts: InParts) -> Vec<Option<f64>> {
    let (begin_ns, end_ns) = report.time_ns();
    let mut sums: Vec<Option<f64>> = vec![None; PARTS];
    for series in series {
        for (sum, value) in sums.iter_mut().zip(in_parts(&series.curve, begin_ns, end_ns, PARTS)) {
            *sum = sum.zip(value).map(|(sum, value)| sum + value).or(*sum).or(value);
        }
    }
    sums
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / to_f64(values.len() as u64))
}

/// Adds the facts about the cores in use and the utilization of the GPUs in each part of the time. Of both,
/// the one that fell less counts: a job that works on GPUs needs few cores.
fn add_activity(facts: &mut Facts, report: &Report, cores: &[f64], gpus: &[f64]) {
    let fell_to = |part: usize| {
        let of = |values: &[f64]| {
            let (before, after) = values.split_at_checked(part)?;
            ratio(mean(after), mean(before))
        };
        of(cores).into_iter().chain(of(gpus)).reduce(f64::max)
    };
    facts.set_number("tail_cores", cores.last().copied());
    facts.set_number("tail_ratio", fell_to(PARTS - 1));
    let splits = (2..=8).filter_map(|part| Some((fell_to(part)?, part)));
    let Some((collapse, part)) = splits.min_by(|(one, _), (other, _)| one.total_cmp(other)) else { return };
    facts.set_number("collapse_ratio", Some(collapse));
    let share = to_f64(part as u64) / to_f64(PARTS as u64);
    facts.set_number("collapse_time", Some(report.wall_s * share));
}
