//! Periods through which the keys step. Pure.

use polymeter_proto::period::Period;

const STEPS_US: [u64; 21] = [
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    3_600_000_000,
    86_400_000_000,
];

pub(super) fn shorter(period: Period) -> Option<Period> {
    let step = STEPS_US.into_iter().rev().find(|step| *step < period.as_micros());
    step.and_then(|step| Period::from_micros(step).ok())
}

pub(super) fn longer(period: Period) -> Option<Period> {
    let step = STEPS_US.into_iter().find(|step| *step > period.as_micros());
    step.and_then(|step| Period::from_micros(step).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_lead_from_the_shortest_period_to_the_longest_and_back() {
        let mut period = Period::MIN;
        let mut count = 1;
        while let Some(next) = longer(period) {
            assert_eq!(shorter(next), Some(period));
            period = next;
            count += 1;
        }
        assert_eq!((period, count, shorter(Period::MIN)), (Period::MAX, STEPS_US.len(), None));
        let odd = "70ms".parse().unwrap();
        assert_eq!((shorter(odd), longer(odd)), ("50ms".parse().ok(), "100ms".parse().ok()));
    }
}
