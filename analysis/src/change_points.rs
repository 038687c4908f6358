//! The points at which the values of repeated runs change their level. Pure.
//!
//! The stretch of a series whose ranks differ most from all others is cut out, if chance rarely does as well:
//! the values are permuted to find out. Each part is then cut in the same way (circular binary segmentation,
//! on ranks, so that outliers are harmless).

use std::ops::Range;

use polymeter_proto::units::to_f64;

use crate::statistics::quantile;

/// The minimum number of values of a part.
const PART_MIN: usize = 4;

/// Permutations of the values. With as many, chances of a thousandth can be told.
const PERMUTATIONS: u32 = 999;

/// The maximum chance with which a stretch of permuted values differs as much.
const CHANCE_MAX: f64 = 0.01;

/// Returns the positions of the first values of new levels, ascending.
pub fn change_points(values: &[f64]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut parts = vec![(0, values)];
    while let Some((first, part)) = parts.pop() {
        let Some(stretch) = different_stretch(part) else { continue };
        let edges = [0, stretch.start, stretch.end, part.len()];
        found.extend(
            [stretch.start, stretch.end]
                .iter()
                .filter(|edge| (1..part.len()).contains(*edge))
                .map(|edge| first + edge),
        );
        for (begin, end) in edges.iter().zip(edges.iter().skip(1)) {
            parts.extend(part.get(*begin..*end).map(|inner| (first + begin, inner)));
        }
    }
    found.sort_unstable();
    refine(values, &mut found);
    found
}

/// Moves each point to the place between its neighbours that leaves the smallest distances from the medians
/// before and after it: ranks tell that levels differ, and only roughly where.
fn refine(values: &[f64], points: &mut [usize]) {
    for number in 0..points.len() {
        let neighbour =
            |step: fn(usize) -> Option<usize>| step(number).and_then(|other| points.get(other)).copied();
        let begin = neighbour(|number| number.checked_sub(1)).unwrap_or(0);
        let end = neighbour(|number| number.checked_add(1)).unwrap_or(values.len());
        let places = begin + PART_MIN..(end + 1).saturating_sub(PART_MIN);
        let distance = |place: &usize| {
            let part = |of: Range<usize>| values.get(of).map_or(0.0, distance_from_median);
            part(begin..*place) + part(*place..end)
        };
        let best = places.min_by(|one, other| distance(one).total_cmp(&distance(other)));
        if let (Some(best), Some(point)) = (best, points.get_mut(number)) {
            *point = best;
        }
    }
}

/// Returns the sum of the distances of values from their median.
fn distance_from_median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = quantile(&sorted, 50).unwrap_or_default();
    values.iter().map(|value| (value - median).abs()).sum()
}

/// Returns the stretch that differs most from the other values; none if chance may have made it.
fn different_stretch(values: &[f64]) -> Option<Range<usize>> {
    let mut ranks = ranks(values);
    let (stretch, contrast) = best_stretch(&ranks)?;
    let mut random = Random(0);
    let mut as_good = 0_u32;
    for _ in 0..PERMUTATIONS {
        random.shuffle(&mut ranks);
        let by_chance = best_stretch(&ranks).map_or(0.0, |(_, contrast)| contrast);
        as_good += u32::from(by_chance >= contrast - 1e-9);
    }
    let chance = f64::from(as_good + 1) / f64::from(PERMUTATIONS + 1);
    (chance <= CHANCE_MAX).then_some(stretch)
}

/// Returns the stretch whose ranks differ most from the others, and its contrast: the difference of their sum
/// from what is expected, in standard deviations.
fn best_stretch(ranks: &[f64]) -> Option<(Range<usize>, f64)> {
    let length = ranks.len();
    let count = to_f64(length as u64);
    let mut sums = vec![0.0];
    let mut sum = 0.0;
    for rank in ranks {
        sum += rank - (count + 1.0) / 2.0;
        sums.push(sum);
    }
    let deviations: Vec<f64> = (0..=length)
        .map(|inside| to_f64(inside as u64))
        .map(|inside| (inside * (count - inside) * (count + 1.0) / 12.0).sqrt())
        .collect();
    let is_edge =
        |edge: usize| edge == 0 || edge == length || (edge >= PART_MIN && edge + PART_MIN <= length);
    let mut best: Option<(Range<usize>, f64)> = None;
    for (begin, before) in sums.iter().enumerate().filter(|(begin, _)| is_edge(*begin)) {
        let ends = sums.iter().enumerate().skip(begin + PART_MIN).filter(|(end, _)| is_edge(*end));
        for (end, until) in ends {
            let deviation = deviations.get(end - begin).copied().unwrap_or_default();
            let contrast = if deviation > 0.0 { (until - before).abs() / deviation } else { 0.0 };
            if best.as_ref().is_none_or(|(_, known)| contrast > *known) {
                best = Some((begin..end, contrast));
            }
        }
    }
    best.filter(|(stretch, _)| stretch.len() < length)
}

/// Returns the ranks of values, from 1 on; equal values have the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        to_f64(below as u64) + (to_f64(equal as u64) + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

/// Pseudo-random numbers, the same ones each time (SplitMix64): a report must not change by itself.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn shuffle(&mut self, values: &mut [f64]) {
        for last in (1..values.len()).rev() {
            let other = self.next() % (last as u64 + 1);
            values.swap(last, usize::try_from(other).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns noise between -1 and 1.
    fn noise(random: &mut Random) -> f64 {
        to_f64(random.next() >> 11) / to_f64(1 << 53) * 2.0 - 1.0
    }

    fn series(random: &mut Random, levels: &[(usize, f64)]) -> Vec<f64> {
        levels
            .iter()
            .flat_map(|(count, level)| vec![*level; *count])
            .map(|level| level + noise(random))
            .collect()
    }

    #[test]
    fn changes_of_the_level_are_found_at_their_places() {
        let mut random = Random(1);
        for levels in [
            &[(12, 10.0), (12, 13.0)][..],
            &[(30, 10.0), (15, 20.0), (40, 10.0)],
            &[(20, 1.0), (20, 4.0), (20, 7.0), (20, 0.0)],
        ] {
            let mut begins = Vec::new();
            for (count, _) in levels {
                begins.push(begins.last().unwrap_or(&0) + count);
            }
            begins.pop();
            let mut values = series(&mut random, levels);
            assert_eq!(change_points(&values), begins, "{levels:?}");
            // A run that hung is no change.
            values[5] = 1e6;
            assert_eq!(change_points(&values), begins, "{levels:?} with an outlier");
        }
    }

    #[test]
    fn values_without_a_change_are_rarely_divided() {
        let mut random = Random(2);
        let divided =
            (0..300).filter(|_| !change_points(&series(&mut random, &[(25, 5.0)])).is_empty()).count();
        // 3 of 300 are expected; more than 10 have a chance of a thousandth.
        assert!(divided <= 10, "{divided}");
        for few in [&[][..], &[1.0], &[1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0], &[3.0; 50]] {
            assert_eq!(change_points(few), Vec::<usize>::new());
        }
    }

    #[test]
    fn the_chance_is_that_of_all_permutations() {
        // Of 9 values in two parts of at least 4, those without any overlap: counted by all permutations of
        // their ranks.
        fn permutations(ranks: &mut [f64], from: usize, visit: &mut dyn FnMut(&[f64])) {
            if from == ranks.len() {
                return visit(ranks);
            }
            for other in from..ranks.len() {
                ranks.swap(from, other);
                permutations(ranks, from + 1, visit);
                ranks.swap(from, other);
            }
        }
        let divided: Vec<f64> = (1..=9).map(f64::from).collect();
        let (_, contrast) = best_stretch(&divided).unwrap();
        let (mut as_good, mut all) = (0_u32, 0_u32);
        permutations(&mut divided.clone(), 0, &mut |ranks| {
            all += 1;
            as_good += u32::from(best_stretch(ranks).unwrap().1 >= contrast - 1e-9);
        });
        // Two splits, each with the low ranks before or after, have 1 of C(9, 4) = 126 arrangements each; those
        // that both splits divide are counted once.
        let exact = f64::from(as_good) / f64::from(all);
        assert!((exact - (4.0 / 126.0 - 2.0 / 630.0)).abs() < 1e-9, "{exact}");
        assert_eq!(change_points(&divided), Vec::<usize>::new(), "chance divides so in 3 % of all cases");
    }
}
