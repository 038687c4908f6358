//! Slowdown of a job by sampling: a metric of its own in blocks of time with and without a lease. Pure.
//!
//! Two neighbouring blocks, of which chance samples one, make a pair. The job's progress changes slowly, so
//! that both blocks of a pair see nearly the same of it, and what is left changes sign by chance.

use std::collections::BTreeMap;
use std::ops::Range;

use polymeter_proto::read::SampleRow;
use polymeter_proto::units::to_f64;
use serde::Serialize;

use crate::statistics::Estimate;

/// Pairs without which no interval is stated.
pub const PAIRS_MIN: usize = 5;

/// Part of a block at its begin that is left out: caches and buffers adapt to the change.
const SETTLING_PART: i64 = 10;

/// What the metric tells about the job's speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// It counts work, such as iterations: its rate is the speed.
    Work,
    /// It is the time of a piece of work, such as a phase: the speed is its inverse.
    Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Block {
    pub is_sampled: bool,
    /// Microseconds since the epoch.
    pub begin_us: i64,
    /// Microseconds since the epoch.
    pub end_us: i64,
}

impl Block {
    fn settled_ns(&self) -> Range<i64> {
        let settling_us = (self.end_us - self.begin_us) / SETTLING_PART;
        (self.begin_us + settling_us).saturating_mul(1000)..self.end_us.saturating_mul(1000)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Receipt {
    pub measure: Measure,
    pub pairs: usize,
    /// Pairs in one of whose blocks the metric has too few values.
    pub left_out: usize,
    /// By how much longer the job takes while it is sampled.
    pub slowdown_percent: f64,
    /// Bounds of the 95 % interval.
    pub low_percent: f64,
    pub high_percent: f64,
}

/// Error of blocks in which the metric has too few values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "only {pairs} of {all} pairs of blocks have values of the metric in both, and {PAIRS_MIN} are needed"
)]
pub struct TooFewPairs {
    pub pairs: usize,
    pub all: usize,
}

/// Lengths of blocks in microseconds, two by two, and whether each is sampled. A random length keeps the
/// blocks out of step with what the job does periodically.
#[derive(Debug)]
pub struct BlockPlan {
    state: u64,
    length_us: u64,
    second: Option<(bool, u64)>,
}

impl BlockPlan {
    pub const fn new(seed: u64, length_us: u64) -> Self {
        Self { state: seed, length_us, second: None }
    }

    /// Splitmix64.
    const fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Iterator for BlockPlan {
    type Item = (bool, u64);

    /// Both blocks of a pair are equally long: three to five quarters of the mean length.
    fn next(&mut self) -> Option<(bool, u64)> {
        if let Some(second) = self.second.take() {
            return Some(second);
        }
        let is_sampled = self.random() & 1 == 1;
        let half = (self.length_us / 2).max(1);
        let length_us = self.length_us - self.length_us / 4 + self.random() % half;
        self.second = Some((!is_sampled, length_us));
        Some((is_sampled, length_us))
    }
}

/// Work if the values never decrease and grow, else time.
pub fn guess(samples: &[SampleRow]) -> Measure {
    let mut has_grown = false;
    for pair in samples.windows(2) {
        let [one, other] = pair else { continue };
        if one.series_id == other.series_id {
            if other.value < one.value {
                return Measure::Time;
            }
            has_grown |= other.value > one.value;
        }
    }
    if has_grown { Measure::Work } else { Measure::Time }
}

/// Computes the slowdown from samples that are sorted by series, then by time. The blocks are in the order of
/// time, two by two.
///
/// # Errors
/// Returns an error if fewer than [`PAIRS_MIN`] pairs have values.
pub fn receipt(measure: Measure, blocks: &[Block], samples: &[SampleRow]) -> Result<Receipt, TooFewPairs> {
    let mut changes = Vec::new();
    let (pairs, _unpaired) = blocks.as_chunks::<2>();
    for pair in pairs {
        let [sampled, plain] = match pair {
            [first, second] if first.is_sampled => [first, second],
            [first, second] => [second, first],
        };
        changes.extend(change(measure, samples, sampled, plain));
    }
    if changes.len() < PAIRS_MIN {
        return Err(TooFewPairs { pairs: changes.len(), all: pairs.len() });
    }
    let Estimate { mean, half } = Estimate::of(&changes);
    let percent = |logarithm: f64| logarithm.exp_m1() * 100.0;
    Ok(Receipt {
        measure,
        pairs: changes.len(),
        left_out: pairs.len() - changes.len(),
        slowdown_percent: percent(mean),
        low_percent: percent(mean - half),
        high_percent: percent(mean + half),
    })
}

/// Logarithm of the time for the same work in the sampled block over that in the other, of the series that
/// have values in both.
fn change(measure: Measure, samples: &[SampleRow], sampled: &Block, plain: &Block) -> Option<f64> {
    let [of_sampled, of_plain] = [sampled, plain].map(|block| by_series(measure, samples, block));
    let (mut with, mut without) = (0.0, 0.0);
    for (series, value) in &of_sampled {
        let Some(other) = of_plain.get(series) else { continue };
        with += value;
        without += other;
    }
    let logarithm = match measure {
        Measure::Work => (without / with).ln(),
        Measure::Time => (with / without).ln(),
    };
    logarithm.is_finite().then_some(logarithm)
}

/// Rate of each series in a block per second, or the mean of its values.
fn by_series(measure: Measure, samples: &[SampleRow], block: &Block) -> BTreeMap<i64, f64> {
    let span_ns = block.settled_ns();
    let mut values = BTreeMap::new();
    for of_series in samples.chunk_by(|one, other| one.series_id == other.series_id) {
        let begin = of_series.partition_point(|sample| sample.time_ns < span_ns.start);
        let end = of_series.partition_point(|sample| sample.time_ns < span_ns.end);
        let inside = of_series.get(begin..end).unwrap_or_default();
        let (Some(first), Some(last)) = (inside.first(), inside.last()) else { continue };
        let value = match measure {
            Measure::Work => {
                let length_s = to_f64(last.time_ns.abs_diff(first.time_ns)) / 1e9;
                (last.value - first.value) / length_s
            }
            Measure::Time => {
                inside.iter().map(|sample| sample.value).sum::<f64>() / to_f64(inside.len() as u64)
            }
        };
        if value.is_finite() {
            values.insert(first.series_id, value);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: i64 = 1_000_000;

    /// Uniform in -1 to 1.
    fn noise(plan: &mut BlockPlan) -> f64 {
        to_f64(plan.random() >> 11) / to_f64(1 << 52) - 1.0
    }

    fn blocks(seed: u64, seconds: i64, length_us: u64) -> Vec<Block> {
        let mut begin_us = 1_790_000_000 * SECOND_US;
        let end_us = begin_us + seconds * SECOND_US;
        let mut blocks = Vec::new();
        for (is_sampled, length_us) in BlockPlan::new(seed, length_us) {
            let block = Block { is_sampled, begin_us, end_us: begin_us + i64::try_from(length_us).unwrap() };
            begin_us = block.end_us;
            blocks.push(block);
            if begin_us >= end_us {
                break;
            }
        }
        blocks
    }

    /// A program whose speed drifts by a fifth, oscillates with a period of 7 s, and has noise with a memory;
    /// while it is sampled it is slower by `slowdown`. Its counter is read ten times a second.
    fn program(seed: u64, blocks: &[Block], slowdown: f64) -> Vec<SampleRow> {
        let mut chance = BlockPlan::new(seed.wrapping_mul(77) + 5, 1);
        let (begin_us, end_us) = (blocks[0].begin_us, blocks[blocks.len() - 1].end_us);
        let (mut value, mut remembered, mut samples) = (0.0, 0.0, Vec::new());
        let mut time_us = begin_us;
        while time_us < end_us {
            let block = blocks.iter().find(|block| time_us < block.end_us).unwrap();
            remembered = 0.7 * remembered + 0.02 * noise(&mut chance);
            let elapsed_s = to_f64((time_us - begin_us).unsigned_abs()) / 1e6;
            let drift = 1.0 + 0.2 * elapsed_s / to_f64((end_us - begin_us).unsigned_abs()) * 1e6;
            let wave = 1.0 + 0.03 * (elapsed_s * std::f64::consts::TAU / 7.0).sin();
            let speed = 1000.0 * drift * wave * (1.0 + remembered);
            value += 0.1 * if block.is_sampled { speed / (1.0 + slowdown) } else { speed };
            samples.push(SampleRow { series_id: 1, time_ns: time_us * 1000, value, window: None });
            time_us += SECOND_US / 10;
        }
        samples
    }

    #[test]
    fn injected_slowdowns_are_within_their_intervals() {
        const RUNS: u64 = 300;
        for slowdown in [0.0, 1.0, 3.0] {
            let (mut covered, mut widths) = (0, 0.0);
            for seed in 0..RUNS {
                let blocks = blocks(seed, 300, 5_000_000);
                let samples = program(seed, &blocks, slowdown / 100.0);
                let found = receipt(Measure::Work, &blocks, &samples).unwrap();
                covered += u64::from((found.low_percent..=found.high_percent).contains(&slowdown));
                widths += found.high_percent - found.low_percent;
            }
            // 95 % of 300 are 285; fewer than 274 by chance once in a thousand times.
            assert!(covered >= 274, "{slowdown} %: {covered} of {RUNS}");
            assert!(widths / to_f64(RUNS) < 3.0, "{slowdown} %: {}", widths / to_f64(RUNS));
        }
    }

    #[test]
    fn an_interval_is_not_wide_without_need() {
        // Coverage far above 95 % would mean intervals that tell less than the data.
        let covered = (0..300_u64).filter(|seed| {
            let blocks = blocks(*seed, 300, 5_000_000);
            let found = receipt(Measure::Work, &blocks, &program(*seed, &blocks, 0.01)).unwrap();
            (found.low_percent..=found.high_percent).contains(&1.0)
        });
        assert!(covered.count() < 300);
    }

    #[test]
    fn times_of_phases_give_the_same_sign_as_work() {
        let blocks = blocks(3, 120, 4_000_000);
        let times = blocks.iter().flat_map(|block| {
            let value = if block.is_sampled { 1.02 } else { 1.0 };
            (1..8).map(move |number| SampleRow {
                series_id: 1,
                time_ns: (block.begin_us + (block.end_us - block.begin_us) / 8 * number) * 1000,
                value,
                window: None,
            })
        });
        let found = receipt(Measure::Time, &blocks, &times.collect::<Vec<_>>()).unwrap();
        assert!((found.slowdown_percent - 2.0).abs() < 1e-9, "{found:?}");
        assert!(found.high_percent - found.low_percent < 1e-9, "{found:?}");
    }

    #[test]
    fn pairs_without_values_are_left_out_and_too_few_are_an_error() {
        let blocks = blocks(1, 60, 3_000_000);
        let all = program(1, &blocks, 0.0);
        let middle_ns = (blocks[0].begin_us + 30 * SECOND_US) * 1000;
        let half: Vec<SampleRow> = all.iter().filter(|row| row.time_ns > middle_ns).copied().collect();
        let found = receipt(Measure::Work, &blocks, &half).unwrap();
        assert!(found.left_out >= 4 && found.pairs >= PAIRS_MIN, "{found:?}");
        assert!(receipt(Measure::Work, &blocks, &all[..40]).is_err());
        assert_eq!(
            receipt(Measure::Work, &blocks, &[]),
            Err(TooFewPairs { pairs: 0, all: blocks.len() / 2 })
        );
        // A stopped program has no speed.
        let stopped: Vec<SampleRow> = all.iter().map(|row| SampleRow { value: 7.0, ..*row }).collect();
        assert!(receipt(Measure::Work, &blocks, &stopped).is_err());
    }

    #[test]
    fn half_of_the_blocks_are_sampled_in_random_order() {
        let plan: Vec<(bool, u64)> = BlockPlan::new(9, 8_000_000).take(2_000).collect();
        let first = plan.iter().step_by(2).filter(|(is_sampled, _)| *is_sampled).count();
        assert!((400..600).contains(&first), "{first} of 1000 pairs begin sampled");
        assert!(plan.chunks(2).all(|pair| pair[0].0 != pair[1].0 && pair[0].1 == pair[1].1));
        assert!(plan.iter().all(|(_, length_us)| (6_000_000..10_000_000).contains(length_us)));
    }

    #[test]
    fn a_metric_that_only_grows_counts_work() {
        let rows = |values: &[f64]| -> Vec<SampleRow> {
            (0..)
                .zip(values)
                .map(|(at, value)| SampleRow { series_id: 1, time_ns: at, value: *value, window: None })
                .collect()
        };
        assert_eq!(guess(&rows(&[1.0, 1.0, 2.0])), Measure::Work);
        assert_eq!(guess(&rows(&[1.0, 0.9, 2.0])), Measure::Time);
        assert_eq!(guess(&rows(&[1.0, 1.0])), Measure::Time);
        assert_eq!(guess(&[]), Measure::Time);
    }
}
