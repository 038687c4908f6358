//! Periods through which the keys step. Pure.

use polymeter_proto::period::{Period, Sampling};

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

pub(super) fn shorter(sampling: Sampling) -> Option<Sampling> {
    let step = STEPS_US.into_iter().rev().find(|step| *step < sampling.period.as_micros())?;
    at(step, sampling)
}

pub(super) fn longer(sampling: Sampling) -> Option<Sampling> {
    let step = STEPS_US.into_iter().find(|step| *step > sampling.period.as_micros())?;
    at(step, sampling)
}

/// Keeps the windows if they are multiples of the period.
fn at(period_us: u64, sampling: Sampling) -> Option<Sampling> {
    let period = Period::from_micros(period_us).ok()?;
    let windowed = sampling.window.and_then(|window| Sampling::windowed(period, window).ok());
    Some(windowed.unwrap_or(Sampling::raw(period)).with_histogram(sampling.has_histogram))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_lead_from_the_shortest_period_to_the_longest_and_back() {
        let mut sampling = Sampling::raw(Period::MIN);
        let mut count = 1;
        while let Some(next) = longer(sampling) {
            assert_eq!(shorter(next), Some(sampling));
            sampling = next;
            count += 1;
        }
        assert_eq!((sampling.period, count), (Period::MAX, STEPS_US.len()));
        assert_eq!(shorter(Sampling::raw(Period::MIN)), None);
        let odd = "70ms".parse().unwrap();
        assert_eq!((shorter(odd), longer(odd)), ("50ms".parse().ok(), "100ms".parse().ok()));
        let windowed = "100ms/1s".parse().unwrap();
        assert_eq!((shorter(windowed), longer(windowed)), ("50ms/1s".parse().ok(), "200ms/1s".parse().ok()));
        assert_eq!(shorter("10ms/1s/histogram".parse().unwrap()), "5ms/1s/histogram".parse().ok());
        assert_eq!(longer("500ms/1s".parse().unwrap()), "1s".parse().ok());
    }
}
