//! Points at which the values of repeated runs change their level. Pure.
//!
//! The stretch of a series whose ranks differ most from all others is cut out, if that is rarely so by
//! chance, and each part is cut in the same way: circular binary segmentation, on ranks, so that outliers are
//! harmless and the chance depends on nothing but the number of values. The stretches of a length begin at
//! multiples of an eighth of it, and the lengths grow by an eighth, so that the time is linear in the number
//! of values.

use std::ops::Range;

use polymeter_proto::units::to_f64;

use crate::statistics::quantile;

pub(crate) const PART_MIN: usize = 4;

/// A series with more points has no levels.
const POINTS_MAX: usize = 100;

/// Contrast that the best stretch of a number of values exceeds by chance in one of a thousand series: a page
/// shows several series, and is looked at often. Fewer values never have as much. Between the numbers it
/// grows with the logarithm. Simulated with 10,000 permutations and more of each number.
const CONTRAST_BY_CHANCE: [(u32, f64); 11] = [
    (14, 3.10),
    (16, 3.26),
    (20, 3.55),
    (28, 3.85),
    (40, 4.05),
    (64, 4.23),
    (128, 4.43),
    (256, 4.61),
    (1000, 4.87),
    (3000, 5.03),
    (10_000, 5.23),
];

/// Two neighbouring levels exceed this contrast by chance in one of a thousand cases.
const CONTRAST_OF_NEIGHBOURS: f64 = 3.29;

/// Positions of the first values of new levels, ascending.
pub(crate) fn change_points(values: &[f64]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut parts = vec![(0, values.len())];
    while let Some((first, last)) = parts.pop() {
        if found.len() >= POINTS_MAX {
            break;
        }
        let Some(stretch) = values.get(first..last).and_then(different_stretch) else { continue };
        let edges = [first, first + stretch.start, first + stretch.end, last];
        for (begin, end) in edges.iter().zip(edges.iter().skip(1)).filter(|(begin, end)| begin < end) {
            found.push(*begin);
            parts.push((*begin, *end));
        }
        found.retain(|edge| *edge > 0);
        found.sort_unstable();
        found.dedup();
    }
    drop_points_without_a_difference(values, &mut found);
    refine(values, &mut found);
    found
}

/// Returns the values between the neighbours of a point, the first of them, and the point within them.
fn around<'a>(values: &'a [f64], points: &[usize], number: usize) -> Option<(&'a [f64], usize, usize)> {
    let point = *points.get(number)?;
    let begin = number.checked_sub(1).and_then(|before| points.get(before)).copied().unwrap_or(0);
    let end = points.get(number + 1).copied().unwrap_or(values.len());
    Some((values.get(begin..end)?, begin, point - begin))
}

/// Removes points until all levels differ from their neighbours: where a stretch is cut out, only one of its
/// ends may be a change.
fn drop_points_without_a_difference(values: &[f64], points: &mut Vec<usize>) {
    loop {
        let contrasts = (0..points.len()).filter_map(|number| {
            let (part, _, place) = around(values, points, number)?;
            Some((number, Contrasts::of(part).between(&(0..place))))
        });
        match contrasts.min_by(|one, other| one.1.total_cmp(&other.1)) {
            Some((number, least)) if least < CONTRAST_OF_NEIGHBOURS => drop(points.remove(number)),
            Some(_) | None => return,
        }
    }
}

/// Moves each point to the place between its neighbours that leaves the smallest distances from the levels
/// before and after it: ranks tell that levels differ, and only roughly where.
fn refine(values: &[f64], points: &mut [usize]) {
    for number in 0..points.len() {
        let Some((part, begin, place)) = around(values, points, number) else { continue };
        let (before, after) = (median(part.get(..place)), median(part.get(place..)));
        // What is gained if values belong to the level before the point, in place of that after it.
        let mut gain = 0.0;
        let mut best = (f64::NEG_INFINITY, place);
        for (position, value) in part.iter().enumerate() {
            if (PART_MIN..=part.len().saturating_sub(PART_MIN)).contains(&position) && gain > best.0 {
                best = (gain, position);
            }
            gain += (value - after).abs() - (value - before).abs();
        }
        if let Some(point) = points.get_mut(number) {
            *point = begin + best.1;
        }
    }
}

/// 0 without values.
pub(crate) fn median(values: Option<&[f64]>) -> f64 {
    let mut sorted = values.unwrap_or_default().to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    quantile(&sorted, 50).unwrap_or_default()
}

/// Returns the stretch that differs most from the other values; none if chance may have made it.
fn different_stretch(values: &[f64]) -> Option<Range<usize>> {
    let by_chance = contrast_by_chance(values.len())?;
    let (stretch, contrast) = Contrasts::of(values).best();
    (contrast > by_chance).then_some(stretch)
}

/// Contrast that a number of values rarely has by chance; none if that number is too small.
fn contrast_by_chance(count: usize) -> Option<f64> {
    let logarithm = to_f64(count as u64).ln();
    let mut below: Option<(f64, f64)> = None;
    for (count, contrast) in CONTRAST_BY_CHANCE {
        let next = (f64::from(count).ln(), contrast);
        if logarithm <= next.0 + 1e-9 {
            let (from, least) = below.unwrap_or(next);
            let share = if next.0 > from { (logarithm - from) / (next.0 - from) } else { 0.0 };
            return (share > -1e-9 && logarithm > from - 1e-9).then_some(least + share * (contrast - least));
        }
        below = Some(next);
    }
    below.map(|(_, most)| most)
}

/// Contrasts of the stretches of a series: the difference of the sum of their ranks from what is expected, in
/// standard deviations.
struct Contrasts {
    /// Sums of the ranks before each position, less the mean rank.
    sums: Vec<f64>,
}

impl Contrasts {
    fn of(values: &[f64]) -> Self {
        let mean = (to_f64(values.len() as u64) + 1.0) / 2.0;
        let mut sums = vec![0.0];
        let mut sum = 0.0;
        for rank in ranks(values) {
            sum += rank - mean;
            sums.push(sum);
        }
        Self { sums }
    }

    /// Too small, never too large, for a stretch with equal values.
    fn between(&self, stretch: &Range<usize>) -> f64 {
        let (count, inside) = (to_f64(self.sums.len() as u64 - 1), to_f64(stretch.len() as u64));
        let deviation = (inside * (count - inside) * (count + 1.0) / 12.0).sqrt();
        let sum = |edge: usize| self.sums.get(edge).copied().unwrap_or_default();
        if deviation > 0.0 { (sum(stretch.end) - sum(stretch.start)).abs() / deviation } else { 0.0 }
    }

    fn best(&self) -> (Range<usize>, f64) {
        let count = self.sums.len() - 1;
        let mut best = (0..0, 0.0);
        let mut try_stretch = |stretch: Range<usize>| {
            let contrast = self.between(&stretch);
            if contrast > best.1 {
                best = (stretch, contrast);
            }
        };
        let last = count.saturating_sub(PART_MIN);
        (PART_MIN..=last).for_each(|place| try_stretch(0..place));
        let mut length = PART_MIN;
        while length + PART_MIN <= last {
            let begins = (PART_MIN..=last - length).step_by((length / 8).max(1));
            begins.for_each(|begin| try_stretch(begin..begin + length));
            length += (length / 8).max(1);
        }
        best
    }
}

/// Ranks from 1 on; equal values have the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
    order.sort_unstable_by(|(_, one), (_, other)| one.total_cmp(other));
    let mut ranks = vec![0.0; values.len()];
    let mut below = 0_u64;
    for equal in order.chunk_by(|(_, one), (_, other)| one == other) {
        let rank = to_f64(below) + (to_f64(equal.len() as u64) + 1.0) / 2.0;
        for (position, _) in equal {
            if let Some(of) = ranks.get_mut(*position) {
                *of = rank;
            }
        }
        below += equal.len() as u64;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn series(random: &mut Random, levels: &[(usize, f64)], noise: f64) -> Vec<f64> {
        levels
            .iter()
            .flat_map(|(count, level)| vec![*level; *count])
            .map(|level| level + noise * random.noise())
            .collect()
    }

    #[test]
    fn changes_of_the_level_are_found_at_their_places() {
        let mut random = Random(1);
        for levels in [
            &[(16, 10.0), (16, 13.0)][..],
            &[(40, 10.0), (9, 13.0)],
            &[(30, 10.0), (15, 20.0), (40, 10.0)],
            &[(20, 1.0), (20, 4.0), (20, 7.0), (20, 0.0)],
            &[(500, 10.0), (20, 13.0), (480, 10.0)],
            &[(3_000, 10.0), (6_980, 13.0), (20, 18.0)],
        ] {
            let mut begins = Vec::new();
            for (count, _) in levels {
                begins.push(begins.last().unwrap_or(&0) + count);
            }
            begins.pop();
            let mut values = series(&mut random, levels, 1.0);
            assert_eq!(change_points(&values), begins, "{levels:?}");
            // A run that hung is no change.
            values[5] = 1e6;
            assert_eq!(change_points(&values), begins, "{levels:?} with an outlier");
        }
    }

    /// The logarithms of run times are about normal; some runs hang.
    fn run_time(random: &mut Random) -> f64 {
        let sum: f64 = (0..4).map(|_| random.noise()).sum();
        (0.1 * sum).exp() * if random.noise() > 0.96 { 10.0 } else { 1.0 }
    }

    /// One of a thousand series without a change is divided; of 1,000, 7 or more have a chance of 0.0001.
    #[test]
    fn values_without_a_change_are_rarely_divided() {
        for (count, seeds) in [(14, 1000), (25, 1000), (50, 1000), (200, 1000), (10_000, 10)] {
            let mut divided = 0;
            for seed in 0..seeds {
                let mut random = Random(seed);
                let values: Vec<f64> = (0..count).map(|_| run_time(&mut random)).collect();
                divided += usize::from(!change_points(&values).is_empty());
            }
            assert!(divided <= 6, "{divided} of {seeds} series of {count}");
        }
        let steps: Vec<f64> = (0..13).map(f64::from).collect();
        for few in [&[][..], &[1.0], &[3.0; 50], &steps] {
            assert_eq!(change_points(few), Vec::<usize>::new());
        }
    }

    /// The contrast of two samples is the Wilcoxon rank-sum statistic, by the number of pairs in which the
    /// value of one sample is larger.
    #[test]
    fn contrasts_are_those_of_the_rank_sum_test() {
        let mut random = Random(3);
        let values: Vec<f64> = (0..60).map(|_| (random.noise() * 10.0).round()).collect();
        let contrasts = Contrasts::of(&values);
        for stretch in [0..7, 5..30, 59..60, 0..59] {
            let outside = values.iter().enumerate().filter(|(place, _)| !stretch.contains(place));
            let outside: Vec<f64> = outside.map(|(_, value)| *value).collect();
            let (mut pairs, inside) = (0.0, &values[stretch.clone()]);
            for one in inside {
                for other in &outside {
                    pairs += if one > other {
                        1.0
                    } else if one == other {
                        0.5
                    } else {
                        0.0
                    };
                }
            }
            let (m, n) = (to_f64(inside.len() as u64), to_f64(outside.len() as u64));
            let expected = (pairs - m * n / 2.0).abs() / (m * n * (m + n + 1.0) / 12.0).sqrt();
            assert!((contrasts.between(&stretch) - expected).abs() < 1e-9, "{stretch:?}");
        }
    }

    #[test]
    fn the_chance_grows_with_the_number_of_values() {
        assert_eq!(contrast_by_chance(13), None);
        let all: Vec<f64> = (14..20_000).map(|count| contrast_by_chance(count).unwrap()).collect();
        assert!(all.is_sorted() && all[0] == 3.10 && all.last() == Some(&5.23));
    }

    #[test]
    fn a_series_that_changes_all_the_time_has_an_end() {
        let values: Vec<f64> = (0..10_000).map(|run| f64::from(run / 12 % 7)).collect();
        assert!(change_points(&values).len() <= POINTS_MAX + 1);
    }
}
