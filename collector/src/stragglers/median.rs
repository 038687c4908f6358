//! Robust statistics of the values of nodes.

/// Standard deviations of normally distributed values in one median absolute deviation.
const DEVIATIONS: f64 = 1.4826;

/// Returns the upper median; none without values. The order of the values changes.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// Returns the spread of values around `center`, as a standard deviation; none without values. The values
/// become distances.
pub(super) fn spread(values: &mut [f64], center: f64) -> Option<f64> {
    values.iter_mut().for_each(|value| *value = (*value - center).abs());
    median(values).map(|deviation| deviation * DEVIATIONS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_few_far_values_change_little() {
        let mut values = [10.0, 11.0, 9.0, 10.0, 1e9];
        assert_eq!(median(&mut values), Some(10.0));
        assert_eq!(spread(&mut values, 10.0), Some(DEVIATIONS));
        assert_eq!(median(&mut []), None);
        assert_eq!(spread(&mut [5.0; 7], 5.0), Some(0.0));
    }

    proptest! {
        #[test]
        fn the_median_is_that_of_the_sorted_values(
            mut values in prop::collection::vec(-1e12..1e12_f64, 1..50),
        ) {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            prop_assert_eq!(median(&mut values), Some(sorted[sorted.len() / 2]));
        }
    }
}
