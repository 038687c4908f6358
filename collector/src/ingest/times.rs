//! When samples may be dated, and what becomes of others: a node's clock may be far off.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::limits;
use polymeter_store::accepted::{Accepted, Loss, LossReason, Outside, Samples};

/// What becomes of samples that are dated outside of what is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Beyond {
    /// They are not stored, and count as lost.
    #[default]
    Refuse,
    /// They are stored in a table of their own.
    Apart,
}

impl FromStr for Beyond {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "refuse" => Ok(Self::Refuse),
            "apart" => Ok(Self::Apart),
            _ => Err(format!("`{}` is none of refuse, apart", crate::log::printable(text))),
        }
    }
}

/// When samples may be dated, as seen from when they arrive, and what becomes of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// How far in the past.
    pub behind: Duration,
    /// How far in the future.
    pub ahead: Duration,
    /// What becomes of others.
    pub beyond: Beyond,
}

impl Default for TimeRange {
    fn default() -> Self {
        Self { behind: limits::SAMPLE_AGE_MAX, ahead: limits::SAMPLE_AHEAD_MAX, beyond: Beyond::default() }
    }
}

impl TimeRange {
    /// Takes out of the samples what cannot be of its time at `now_us`, and puts it apart or counts it as lost.
    pub(super) fn enforce(self, accepted: &mut Accepted, now_us: i64) {
        let possible = now_us.saturating_sub(micros(self.behind))..=now_us.saturating_add(micros(self.ahead));
        let is_possible = |time_us: &i64| possible.contains(time_us);
        let mut others = Vec::new();
        for samples in &mut accepted.samples {
            if samples.times_us.iter().all(is_possible) {
                continue;
            }
            let kept: Vec<bool> = samples.times_us.iter().map(is_possible).collect();
            let not_kept: Vec<bool> = kept.iter().map(|kept| !kept).collect();
            others.push(keep(samples, &not_kept));
            *samples = keep(samples, &kept);
        }
        accepted.outside = outside(&others);
        match self.beyond {
            Beyond::Refuse => others.iter().for_each(|samples| accepted.lose(loss(samples))),
            Beyond::Apart => accepted.apart = others,
        }
    }
}

/// Whole microseconds, of at most [`limits::SAMPLE_REACH_MAX`].
pub(crate) fn micros(reach: Duration) -> i64 {
    i64::try_from(reach.as_micros()).unwrap_or(i64::MAX)
}

fn outside(others: &[Samples]) -> Option<Outside> {
    let samples = others.iter().map(|samples| samples.values.len() as u64).sum();
    let times = || others.iter().flat_map(|samples| samples.times_us.iter().copied());
    Some(Outside { samples, span_us: times().min().zip(times().max())? })
}

fn loss(samples: &Samples) -> Loss {
    let times = || samples.times_us.iter().copied();
    Loss {
        account: Some(Arc::clone(&samples.account)),
        samples: samples.values.len() as u64,
        reason: LossReason::Clock,
        span_us: times().min().zip(times().max()).unwrap_or_default(),
    }
}

fn keep(samples: &Samples, kept: &[bool]) -> Samples {
    let keep = |value: (&u64, &bool)| value.1.then_some(*value.0);
    let columns = samples.values.chunks_exact(kept.len().max(1));
    let values = columns.flat_map(|column| column.iter().zip(kept).filter_map(keep)).collect();
    let times_us =
        samples.times_us.iter().zip(kept).filter(|(_, kept)| **kept).map(|(time_us, _)| *time_us).collect();
    let (account, series) = (Arc::clone(&samples.account), samples.series.clone());
    Samples { account, series, times_us, values }
}
