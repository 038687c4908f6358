//! Values of series in equal parts of a time, from samples or from a rollup.

use std::collections::BTreeMap;
use std::ops::Range;

use polymeter_analysis::downsample::{Downsampler, Part};
use polymeter_analysis::rates::window_ns;
use polymeter_proto::catalogue::is_stacks_source;
use polymeter_store::reader::{JobRow, Read, Rollup, SampleSet, SeriesRow, SeriesScope};

use super::parameters::{FROM_US, UNTIL_US, now_ns, time_ns};
use crate::answer::{Failure, Problem, rate};
use crate::limits;
use crate::request::{Arguments, Kind, Parameter};

pub(super) const POINTS: Parameter = Parameter::query(
    "points",
    Kind::Integer(1, limits::POINTS),
    "The number of parts of the time; without it, all samples.",
);

/// Samples are read in place of a rollup for a job with at most so many on any node, since the means of a
/// rollup do not know for how long each sample held. At most so many intervals are read of a finer rollup
/// than the length of the parts needs.
const FEW_SAMPLES: u64 = 100_000;
const FEW_NODES: usize = 64;

/// Default time of a request about a node.
pub(super) const HOUR_NS: i64 = 3_600_000_000_000;

/// Default: the time of the job, or the last hour of a node.
pub(super) fn span_ns(arguments: &Arguments, job: Option<&JobRow>) -> Result<Range<i64>, Failure> {
    let now_ns = now_ns();
    let ended_ns = job.and_then(|job| job.ended_ns);
    let end_ns = ended_ns.map_or(now_ns, |ended_ns| ended_ns.saturating_add(1000));
    let begin_ns = job.map_or(now_ns.saturating_sub(HOUR_NS), |job| job.started_ns);
    let from_ns = time_ns(arguments, FROM_US.name).unwrap_or(begin_ns);
    let until_ns = time_ns(arguments, UNTIL_US.name).unwrap_or(end_ns.max(from_ns.saturating_add(1000)));
    if from_ns >= until_ns {
        return Err(Problem::invalid(UNTIL_US.name, "the end is not after the begin").into());
    }
    Ok(from_ns..until_ns)
}

pub(super) fn width_ns(span_ns: &Range<i64>, points: i64) -> i64 {
    (span_ns.end.saturating_sub(span_ns.start).saturating_add(points - 1) / points.max(1)).max(1000)
}

/// Tells whether a job has so few samples that they are read at once.
pub(super) fn has_few_samples(reader: &mut dyn Read, job: &JobRow) -> Result<bool, Failure> {
    if job.nodes.len() > FEW_NODES {
        return Ok(false);
    }
    let ledger = reader.ledger(job.job_key)?;
    // Those that rings kept are read as well.
    let of_series = ledger.iter().filter(|row| !is_stacks_source(&row.source));
    Ok(of_series.map(|row| row.stored).sum::<u64>() <= FEW_SAMPLES)
}

/// Returns the coarsest rollup that suffices for parts of a length; none for samples, as of a job that
/// `has_few`. `left` is the finest that has all of the job.
pub(super) fn rollup(width_ns: i64, left: Option<Rollup>, has_few: bool) -> Option<Rollup> {
    if has_few {
        return left;
    }
    let coarsest = Rollup::ALL.into_iter().rev().find(|rollup| rollup.length_ns() <= width_ns);
    coarser(coarsest, left)
}

/// Returns the finest rollup that has few intervals of `series` in a time, if it is finer than [`rollup`]:
/// an interval counts evenly in the parts that it overlaps.
pub(super) fn finest(
    rollup: Option<Rollup>,
    left: Option<Rollup>,
    span_ns: &Range<i64>,
    series: usize,
) -> Option<Rollup> {
    let length_ns = span_ns.end.saturating_sub(span_ns.start);
    let finest = Rollup::ALL
        .into_iter()
        .find(|finer| {
            let intervals =
                u64::try_from(length_ns / finer.length_ns()).unwrap_or_default().saturating_add(1);
            intervals.saturating_mul(series as u64) <= FEW_SAMPLES
        })
        .filter(|finest| rollup.is_some_and(|rollup| finest.length_ns() < rollup.length_ns()));
    finest.map_or(rollup, |finest| coarser(Some(finest), left))
}

fn coarser(one: Option<Rollup>, other: Option<Rollup>) -> Option<Rollup> {
    one.into_iter().chain(other).max_by_key(|rollup| rollup.length_ns())
}

/// Series by id, and the parts of a time in which they are read.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) of: SeriesScope<'a>,
    pub(super) rows: &'a BTreeMap<i64, SeriesRow>,
    pub(super) span_ns: Range<i64>,
    pub(super) width_ns: i64,
    /// None for samples.
    pub(super) rollup: Option<Rollup>,
}

impl Wanted<'_> {
    /// Passes the parts of each series that has some to `each`.
    pub(super) fn read(
        &self,
        reader: &mut dyn Read,
        mut each: impl FnMut(&SeriesRow, &[Part]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Range { start, end } = self.span_ns;
        // A counter has a rate in the first part if it has a value before. An interval that begins before the
        // time has one before it, unless the series begins with it.
        let margin_ns = self.width_ns.max(self.rollup.map_or(0, |rollup| 2 * rollup.length_ns()));
        let span_ns = start.saturating_sub(margin_ns).max(0)..end;
        let ids: Vec<i64> = self.rows.keys().copied().collect();
        let mut current: Option<(&SeriesRow, Downsampler)> = None;
        let mut switch = |current: &mut Option<(_, Downsampler)>, id: i64| -> Result<(), Failure> {
            if current.as_ref().is_some_and(|(row, _): &(&SeriesRow, _)| row.series_id == id) {
                return Ok(());
            }
            if let Some((row, mut parts)) = current.take() {
                each(row, &parts.finish())?;
            }
            *current = self.rows.get(&id).map(|row| {
                let factor = rate(row).map(|(_, factor)| factor);
                (row, Downsampler::new(start..end, self.width_ns, factor, window_ns(&row.metric)))
            });
            Ok(())
        };
        match self.rollup {
            None => reader.samples_of_set(SampleSet::All, self.of, &ids, &span_ns, |sample| {
                switch(&mut current, sample.series_id)?;
                if let Some((_, parts)) = &mut current {
                    parts.sample(&sample);
                }
                Ok::<_, Failure>(())
            })?,
            Some(rollup) => reader.buckets(rollup, self.of, &ids, &span_ns, |row| {
                switch(&mut current, row.series_id)?;
                if let Some((_, parts)) = &mut current {
                    parts.interval(&row, rollup.length_ns());
                }
                Ok::<_, Failure>(())
            })?,
        }
        if let Some((row, mut parts)) = current {
            each(row, &parts.finish())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_of_jobs_that_have_few_and_else_the_coarsest_rollup() {
        let hour_ns = Rollup::Hour.length_ns();
        assert_eq!(rollup(hour_ns, None, false), Some(Rollup::Hour));
        assert_eq!(rollup(hour_ns - 1, None, false), Some(Rollup::Minute));
        assert_eq!(rollup(1, None, false), None);
        assert_eq!(rollup(hour_ns, None, true), None);
        assert_eq!(rollup(1, Some(Rollup::Minute), true), Some(Rollup::Minute), "what retention has left");
    }

    #[test]
    fn a_finer_rollup_is_read_where_it_has_few_intervals() {
        let hour_ns = Rollup::Hour.length_ns();
        let of = |rollup, left, hours, series| finest(rollup, left, &(0..hours * hour_ns), series);
        let [ten_seconds, minute, hour] = [Rollup::TenSeconds, Rollup::Minute, Rollup::Hour].map(Some);
        assert_eq!(of(hour, None, 24, 11), ten_seconds);
        assert_eq!(of(hour, None, 24, 12), minute, "8641 intervals of each series");
        assert_eq!(of(hour, None, 24, 70), hour);
        assert_eq!(of(minute, None, 24, 70), minute);
        assert_eq!(of(None, None, 24, 1), None, "samples");
        assert_eq!(of(hour, minute, 24, 11), minute, "what retention has left");
    }
}
