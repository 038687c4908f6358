//! Accepted times of samples, and the treatment of others: a node's clock may be skewed.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use polymeter_store::accepted::{Accepted, LossReason, LossRecord, OutOfRange, SampleBlock, WindowColumns};

use crate::limits;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutOfRangePolicy {
    /// Counts the samples as lost.
    #[default]
    Reject,
    /// Stored in a separate table.
    Quarantine,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy `{0}`: expected `reject` or `quarantine`")]
pub struct UnknownPolicy(String);

impl FromStr for OutOfRangePolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        match text {
            "reject" => Ok(Self::Reject),
            "quarantine" => Ok(Self::Quarantine),
            _ => Err(UnknownPolicy(text.to_owned())),
        }
    }
}

/// Relative to the arrival of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    pub max_age: Duration,
    /// Greatest lead over the collector's clock.
    pub max_skew: Duration,
    pub out_of_range: OutOfRangePolicy,
}

impl Default for TimeRange {
    fn default() -> Self {
        Self {
            max_age: limits::SAMPLE_AGE_MAX,
            max_skew: limits::SAMPLE_SKEW_MAX,
            out_of_range: OutOfRangePolicy::default(),
        }
    }
}

impl TimeRange {
    /// Quarantines samples whose times are out of range at `now_us`, or counts them as lost. Call stacks are
    /// never quarantined.
    pub(super) fn enforce(self, accepted: &mut Accepted, now_us: i64) {
        let possible =
            now_us.saturating_sub(micros(self.max_age))..=now_us.saturating_add(micros(self.max_skew));
        let is_possible = |time_us: &i64| possible.contains(time_us);
        let mut others = Vec::new();
        for samples in accepted.samples.iter_mut().chain(&mut accepted.kept) {
            if samples.times_us.iter().all(is_possible) {
                continue;
            }
            let kept: Vec<bool> = samples.times_us.iter().map(is_possible).collect();
            let not_kept: Vec<bool> = kept.iter().map(|kept| !kept).collect();
            others.push(keep(samples, &not_kept));
            *samples = keep(samples, &kept);
        }
        let stacks = std::mem::take(&mut accepted.stacks);
        for block in stacks {
            if is_possible(&block.middle_us()) {
                accepted.stacks.push(block);
            } else {
                accepted.add_loss(LossRecord::of_stacks(&block, LossReason::Clock));
            }
        }
        accepted.histograms.retain(|histogram| is_possible(&histogram.time_us));
        accepted.out_of_range = out_of_range(&others);
        match self.out_of_range {
            OutOfRangePolicy::Reject => {
                others.iter().for_each(|samples| accepted.add_loss(loss(samples, LossReason::Clock)))
            }
            OutOfRangePolicy::Quarantine => accepted.quarantined = others,
        }
    }
}

pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn out_of_range(others: &[SampleBlock]) -> Option<OutOfRange> {
    let samples = others.iter().map(SampleBlock::samples).sum();
    let times = || others.iter().flat_map(|samples| samples.times_us.iter().copied());
    Some(OutOfRange { samples, span_us: times().min().zip(times().max())? })
}

pub(super) fn loss(samples: &SampleBlock, reason: LossReason) -> LossRecord {
    LossRecord {
        line: Some(Arc::clone(&samples.line)),
        samples: samples.samples(),
        reason,
        span_us: samples.span_us().unwrap_or_default(),
    }
}

fn keep(samples: &SampleBlock, kept: &[bool]) -> SampleBlock {
    let values = keep_rows(&samples.values, kept);
    let windows = samples.windows.as_ref().map(|windows| WindowColumns {
        counts: keep_rows(&windows.counts, kept),
        min: keep_rows(&windows.min, kept),
        max: keep_rows(&windows.max, kept),
        sum: keep_rows(&windows.sum, kept),
    });
    let times_us =
        samples.times_us.iter().zip(kept).filter(|(_, kept)| **kept).map(|(time_us, _)| *time_us).collect();
    let (line, series) = (Arc::clone(&samples.line), samples.series.clone());
    SampleBlock { line, series, times_us, values, windows }
}

/// Returns the values of the kept rows, column by column.
fn keep_rows<T: Copy>(values: &[T], kept: &[bool]) -> Vec<T> {
    let columns = values.chunks_exact(kept.len().max(1));
    let cells = columns.flat_map(|column| column.iter().zip(kept));
    cells.filter(|(_, kept)| **kept).map(|(value, _)| *value).collect()
}
