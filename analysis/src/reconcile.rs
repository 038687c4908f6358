//! Energy of a node by several sources beside each other: wattmeter, outlet, management controller, counters
//! of the processors and GPUs. Pure.
//!
//! Each source has a delay, which is estimated against the source with the shortest period: powers over cells
//! of equal length are correlated at each lag, and a parabola through the three highest values gives a part
//! of a cell. Energies are those of the time of the job, later by the delay.
//!
//! The best source measures the whole node with the smallest error of its own. Its error bar is the greater
//! of two: that error, and the greatest difference to another source of the whole node.

use std::collections::BTreeSet;
use std::ops::Range;

use polymeter_proto::units::{seconds_between, to_f64, whole as whole_number};

use crate::cumulative::Cumulative;

/// Cells in each period of the slower source.
const CELLS_PER_PERIOD: i64 = 8;

/// Cells that are correlated. More take longer and tell little.
const CELLS_MAX: i64 = 2048;

/// Fewer cells have peaks by chance.
const CELLS_MIN: i64 = 64;

/// Greatest lag in cells, in both directions: 16 periods of the slower source.
const LAG_MAX: i64 = 128;

/// Places of a long job among which the one with the greatest changes of power is correlated.
const WINDOWS: i64 = 16;

/// Smallest correlation of a delay that counts.
const CORRELATION_MIN: f64 = 0.7;

/// Changes of power below this part of its mean tell nothing about a delay.
const CHANGE_MIN: f64 = 1e-3;

/// Finest step of readings that is looked for, in watts, and joules of a counter.
const RESOLUTION_MIN: f64 = 0.01;

/// Greatest step that few different readings tell.
const RESOLUTION_USUAL: f64 = 1.0;

/// Different readings that tell a step.
const DISTINCT_MIN: usize = 8;

/// Part of a node that a source measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Covered {
    Node,
    /// Processors, memory or GPUs, which no other source measures.
    Part,
    Unknown,
}

/// One source of energy on one node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EnergySource<'a> {
    pub(crate) energy: &'a Cumulative,
    pub(crate) covered: Covered,
    /// True if each value is a power that holds around its time, false for a counter of energy.
    pub(crate) is_power: bool,
}

/// Delay of a source behind the fastest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Delay {
    pub(crate) seconds: f64,
    /// It may be wrong by this much.
    pub(crate) error_s: f64,
    /// Correlation at this delay, at most 1.
    pub(crate) correlation: f64,
}

/// Energy of a node by one source over the time of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SourceEnergy {
    pub(crate) joules: f64,
    /// Error of the ends of the job, by the period and the delay, of changes between readings, and of the
    /// time without samples.
    pub(crate) error_joules: f64,
    pub(crate) period_s: f64,
    /// Its values are about a time that is so much earlier.
    pub(crate) later_ns: i64,
    /// None for the fastest source, and where the power changed too little to tell.
    pub(crate) delay: Option<Delay>,
}

/// Energy of a node by its best source.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reconciled {
    /// Energies in the order of the sources; none for one that does not cover the job.
    pub(crate) sources: Vec<Option<SourceEnergy>>,
    /// Number of the source with the shortest period.
    pub(crate) fastest: usize,
    /// Number of the best source of the whole node; none if there is none with at least what its parts take.
    pub(crate) best: Option<usize>,
    /// Half the length of the error bar of the best source.
    pub(crate) error_joules: f64,
}

/// Compares the sources of a node over the time of a job there; none if no source covers it.
pub(crate) fn reconcile(sources: &[EnergySource<'_>], span_ns: &Range<i64>) -> Option<Reconciled> {
    let periods: Vec<Option<i64>> = sources.iter().map(|source| period_ns(source.energy, span_ns)).collect();
    let fastest = (0..).zip(&periods).filter_map(|(number, period)| Some(((*period)?, number))).min()?.1;
    let reference = sources.get(fastest).zip(periods.get(fastest).copied().flatten())?;
    let measured: Vec<Option<SourceEnergy>> = (0..)
        .zip(sources.iter().zip(&periods))
        .map(|(number, (source, period))| {
            let one = (source, (*period)?);
            let delay = if number == fastest { None } else { delay(reference, one, span_ns) };
            energy(one, delay, span_ns)
        })
        .collect();
    measured.iter().flatten().next()?;
    let of = |covered: Covered| {
        let numbered = measured.iter().enumerate().filter_map(|(number, one)| Some((number, (*one)?)));
        numbered.filter(move |(number, _)| sources.get(*number).is_some_and(|one| one.covered == covered))
    };
    // A source of the node with less than its parts misses some of it, as one of two outlets does.
    let least_joules: f64 =
        of(Covered::Part).map(|(_, part)| (part.joules - part.error_joules).max(0.0)).sum();
    let wholes = || of(Covered::Node).filter(|(_, one)| one.joules + one.error_joules >= least_joules);
    let best = wholes().min_by(|(_, one), (_, other)| one.error_joules.total_cmp(&other.error_joules));
    let error_joules = best.map_or(0.0, |(_, best)| {
        let differences = wholes().map(|(_, other)| (other.joules - best.joules).abs());
        differences.fold(best.error_joules, f64::max)
    });
    Some(Reconciled { sources: measured, fastest, best: best.map(|(number, _)| number), error_joules })
}

/// Median of the times between points within a span.
fn period_ns(energy: &Cumulative, span_ns: &Range<i64>) -> Option<i64> {
    let times = energy.times_ns().filter(|time_ns| span_ns.contains(time_ns));
    let (mut gaps, mut before_ns) = (Vec::new(), None);
    for time_ns in times {
        gaps.extend(before_ns.map(|before_ns: i64| time_ns - before_ns));
        before_ns = Some(time_ns);
    }
    let middle = gaps.len() / 2;
    (!gaps.is_empty()).then(|| *gaps.select_nth_unstable(middle).1).filter(|gap_ns| *gap_ns > 0)
}

/// Time by which a curve of powers runs ahead, since each value is counted for the time before it.
fn lead_s((source, period_ns): (&EnergySource<'_>, i64)) -> f64 {
    if source.is_power { seconds_between(0, period_ns) / 2.0 } else { 0.0 }
}

fn energy(
    (source, period_ns): (&EnergySource<'_>, i64),
    delay: Option<Delay>,
    span_ns: &Range<i64>,
) -> Option<SourceEnergy> {
    let later_ns = nanoseconds(delay.map_or(0.0, |delay| delay.seconds) - lead_s((source, period_ns)));
    let shifted = span_ns.start.saturating_add(later_ns)..span_ns.end.saturating_add(later_ns);
    let joules = source.energy.increase(&shifted)?;
    let period_s = seconds_between(0, period_ns);
    // The delay of the fastest source, and of one that cannot be told, is taken to be at most its period.
    let delay_error_s = delay.map_or(period_s, |delay| delay.error_s);
    let unsure_s = period_s / 2.0 + delay_error_s;
    let change_at = |time_ns: i64| {
        let cell = |number: i64| time_ns + number * period_ns..time_ns + (number + 1) * period_ns;
        let watts = (-2..2).map(|number| source.energy.within(&cell(number)) / period_s);
        let (least, most) =
            watts.fold((f64::INFINITY, 0.0_f64), |(least, most), watts| (least.min(watts), most.max(watts)));
        most - least
    };
    // A wrong delay moves both ends: one adds its power while the other takes it away.
    let around = |time_ns: i64| {
        source.energy.within(&(time_ns - 2 * period_ns..time_ns + 2 * period_ns)) / (4.0 * period_s)
    };
    let moved = (around(shifted.end) - around(shifted.start)).abs() * delay_error_s;
    let ends = (change_at(shifted.start) + change_at(shifted.end)) * unsure_s + moved;
    let within = if source.is_power {
        sampling_error(source.energy, period_s, &shifted)
    } else {
        counting_error(source.energy, &shifted)
    };
    let covered = source.energy.span_ns()?;
    let missing_s = seconds_between(shifted.start, shifted.end)
        - seconds_between(shifted.start.max(covered.start), shifted.end.min(covered.end));
    let missing = joules / seconds_between(shifted.start, shifted.end) * missing_s.max(0.0);
    Some(SourceEnergy { joules, error_joules: ends + within + missing, period_s, later_ns, delay })
}

/// Error of 95 % of the integral of readings. A change of power between two of them was at any time between;
/// noise, and changes that are faster than the readings, differ from reading to reading; and a steady power
/// may be rounded always to the same side.
fn sampling_error(energy: &Cumulative, period_s: f64, span_ns: &Range<i64>) -> f64 {
    let watts: Vec<f64> = energy.rates(span_ns).collect();
    let steps: Vec<f64> =
        watts.iter().zip(watts.iter().skip(1)).map(|(before, after)| after - before).collect();
    let squares: f64 = steps.iter().map(|step| step * step).sum();
    // Noise takes back in the next step what it has added in one.
    let products: f64 = steps.iter().zip(steps.iter().skip(1)).map(|(one, next)| one * next).sum();
    let noise = (-products).max(0.0);
    let changes = (squares - 2.0 * noise).max(0.0) / 12.0;
    let rounding = resolution(&watts) / 2.0 * seconds_between(span_ns.start, span_ns.end);
    1.96 * period_s * (changes + noise).sqrt() + rounding
}

/// Error of a counter, which counts whole steps, at both ends.
fn counting_error(energy: &Cumulative, span_ns: &Range<i64>) -> f64 {
    let increases: Vec<f64> = energy.increases(span_ns).collect();
    resolution(&increases)
}

/// Greatest step of which all readings are multiples; 0 if there is none.
fn resolution(readings: &[f64]) -> f64 {
    let (mut step, mut distinct) = (0, BTreeSet::new());
    for reading in readings {
        let units = reading / RESOLUTION_MIN;
        // Readings are recovered from their integral, with the errors of its additions.
        if (units - units.round()).abs() > 1e-3 {
            return 0.0;
        }
        let units = whole_number(units.round());
        step = greatest_divisor(step, units);
        if distinct.len() < DISTINCT_MIN {
            distinct.insert(units);
        }
    }
    let step = to_f64(step) * RESOLUTION_MIN;
    if distinct.len() < DISTINCT_MIN { step.min(RESOLUTION_USUAL) } else { step }
}

const fn greatest_divisor(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[expect(clippy::cast_possible_truncation, reason = "delays are seconds, and the conversion saturates")]
fn nanoseconds(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

/// Delay of a source behind the reference; none if their powers have no common changes.
fn delay(
    reference: (&EnergySource<'_>, i64),
    other: (&EnergySource<'_>, i64),
    span_ns: &Range<i64>,
) -> Option<Delay> {
    let of_both = reference.0.energy.span_ns().zip(other.0.energy.span_ns())?;
    let begin_ns = span_ns.start.max(of_both.0.start).max(of_both.1.start);
    let end_ns = span_ns.end.min(of_both.0.end).min(of_both.1.end);
    let cell_ns = (reference.1.max(other.1) / CELLS_PER_PERIOD).max(1);
    let cells = ((end_ns - begin_ns) / cell_ns).min(CELLS_MAX);
    if cells < CELLS_MIN {
        return None;
    }
    let powers = |source: &EnergySource<'_>, from_ns: i64| -> Vec<f64> {
        let cell = |number: i64| from_ns + number * cell_ns..from_ns + (number + 1) * cell_ns;
        let watts = (0..cells).map(|number| source.energy.within(&cell(number)));
        watts.collect()
    };
    let room_ns = end_ns - begin_ns - cells * cell_ns;
    let starts = (0..WINDOWS).map(|number| begin_ns + room_ns / (WINDOWS - 1) * number);
    let windows = starts.map(|from_ns| (from_ns, powers(reference.0, from_ns)));
    let (from_ns, ours) = windows.max_by(|(_, one), (_, other)| change(one).total_cmp(&change(other)))?;
    let theirs = powers(other.0, from_ns);
    if change(&ours) < CHANGE_MIN || change(&theirs) < CHANGE_MIN {
        return None;
    }
    let lag_max = LAG_MAX.min(cells / 4);
    let at = |lag: i64| correlation(&ours, &theirs, lag);
    let correlations: Vec<(i64, f64)> = (-lag_max..=lag_max).map(|lag| (lag, at(lag))).collect();
    let (lag, highest) = correlations.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    // A peak at the edge may be the slope of one beyond.
    if highest < CORRELATION_MIN || lag.abs() == lag_max {
        return None;
    }
    let cell_s = seconds_between(0, cell_ns);
    let lag = whole(lag) + vertex(at(lag - 1), highest, at(lag + 1));
    let seconds = lag * cell_s + lead_s(other) - lead_s(reference);
    // A change of power was up to half a period before or behind its place in the values.
    let error_s = cell_s + seconds_between(0, reference.1.max(other.1)) / 2.0;
    Some(Delay { seconds, error_s, correlation: highest.min(1.0) })
}

/// Lags are small.
fn whole(lag: i64) -> f64 {
    to_f64(lag.unsigned_abs()) * if lag < 0 { -1.0 } else { 1.0 }
}

/// Place of the vertex of a parabola through values at -1, 0 and 1, of which that at 0 is the highest.
fn vertex(before: f64, highest: f64, after: f64) -> f64 {
    let curvature = before - 2.0 * highest + after;
    if curvature < 0.0 { (before - after) / (2.0 * curvature) } else { 0.0 }
}

/// Standard deviation as a part of the mean.
fn change(values: &[f64]) -> f64 {
    let count = to_f64(values.len() as u64);
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
}

/// Pearson's correlation of `ours` with `theirs`, of which those `lag` cells later are taken.
fn correlation(ours: &[f64], theirs: &[f64], lag: i64) -> f64 {
    let skipped = usize::try_from(lag.unsigned_abs()).unwrap_or(usize::MAX);
    let (ours, theirs) =
        if lag < 0 { (ours.get(skipped..), Some(theirs)) } else { (Some(ours), theirs.get(skipped..)) };
    let pairs = || ours.into_iter().flatten().zip(theirs.into_iter().flatten());
    let (mut count, mut sum, mut squares, mut product) = (0.0, (0.0, 0.0), (0.0, 0.0), 0.0);
    let (first, second) = pairs().next().map_or((0.0, 0.0), |(one, other)| (*one, *other));
    for (one, other) in pairs() {
        let (one, other) = (one - first, other - second);
        count += 1.0;
        sum = (sum.0 + one, sum.1 + other);
        squares = (squares.0 + one * one, squares.1 + other * other);
        product += one * other;
    }
    let deviation = |squares: f64, sum: f64| (squares - sum * sum / count).max(0.0);
    let both = (deviation(squares.0, sum.0) * deviation(squares.1, sum.1)).sqrt();
    if both > 0.0 { (product - sum.0 * sum.1 / count) / both } else { 0.0 }
}

#[cfg(test)]
mod coverage;
#[cfg(test)]
mod tests;
