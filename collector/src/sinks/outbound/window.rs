//! Samples by the millisecond, the resolution of the protocol: one sample each, or windows of 1 ms. Pure.

use super::request::{NOT_A_NUMBER, Sample};

/// Tells whether samples at these times, in microseconds, have a period below 1 ms; none if they are too few
/// to tell. One that is read late shortens a distance, so that only a mean of several, or a clearly shorter
/// one, counts.
pub(super) fn is_below_millisecond(times_us: &[i64]) -> Option<bool> {
    let distances = i64::try_from(times_us.len()).ok()?.checked_sub(1).filter(|count| *count > 0)?;
    let mean_us = (times_us.last()? - times_us.first()?) / distances;
    match mean_us {
        ..600 => Some(true),
        10_000.. => Some(false),
        _ if distances >= 7 => Some(mean_us < 950),
        _ => None,
    }
}

/// Bits of a value that is sent: divided, and the same for all values that are not numbers.
pub(super) fn bits_of(value: f64, divisor: f64) -> u64 {
    // A division by 1 changes nothing, but takes time.
    let value = if divisor == 1.0 { value } else { value / divisor };
    if value.is_nan() { NOT_A_NUMBER } else { value.to_bits() }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Samples that are not newer than the last one of their series.
    pub(super) out_of_order: u64,
    /// Samples in the same millisecond as another one of their series, which has no windows.
    pub(super) same_millisecond: u64,
}

/// Last times of a series, in milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// Time of the last sample in a request.
    pub(super) last_ms: i64,
    /// Time up to which samples were read from the store after a restart. They may be offered again.
    pub(super) caught_up_ms: i64,
}

impl Progress {
    /// Counts a sample that is not admitted, unless it was read from the store before.
    fn admits(&self, ms: i64, left_out: &mut LeftOut) -> bool {
        if ms > self.last_ms {
            return true;
        }
        if ms > self.caught_up_ms {
            let count =
                if ms == self.last_ms { &mut left_out.same_millisecond } else { &mut left_out.out_of_order };
            *count += 1;
        }
        false
    }
}

/// Appends one sample for each millisecond to `out`: the last one. Times are in microseconds.
pub(super) fn last_values(
    samples: impl Iterator<Item = (i64, f64)>,
    divisor: f64,
    progress: &mut Progress,
    out: &mut Vec<Sample>,
    left_out: &mut LeftOut,
) {
    for (time_us, value) in samples {
        let ms = time_us.div_euclid(1000);
        match out.last_mut() {
            Some(last) if last.0 == ms => {
                last.1 = bits_of(value, divisor);
                left_out.same_millisecond += 1;
            }
            _ if progress.admits(ms, left_out) => {
                out.push((ms, bits_of(value, divisor)));
                progress.last_ms = ms;
            }
            _ => {}
        }
    }
}

/// Window of 1 ms that may get further samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    pub(super) ms: i64,
    last: f64,
    min: f64,
    max: f64,
}

#[derive(Debug, Default)]
pub(super) struct Windows {
    pub(super) last: Vec<Sample>,
    pub(super) min: Vec<Sample>,
    pub(super) max: Vec<Sample>,
}

impl Windows {
    pub(super) fn clear(&mut self) {
        self.last.clear();
        self.min.clear();
        self.max.clear();
    }

    /// Leaves the window of the last sample open in `open`.
    pub(super) fn add(
        &mut self,
        samples: impl Iterator<Item = (i64, f64)>,
        divisor: f64,
        progress: &mut Progress,
        open: &mut Option<Window>,
        left_out: &mut LeftOut,
    ) {
        for (time_us, value) in samples {
            let ms = time_us.div_euclid(1000);
            match open {
                Some(window) if window.ms == ms => {
                    window.last = value;
                    window.min = window.min.min(value);
                    window.max = window.max.max(value);
                }
                _ => {
                    if open.is_some_and(|window| window.ms > ms) {
                        left_out.out_of_order += u64::from(ms > progress.caught_up_ms);
                        continue;
                    }
                    self.close(open, divisor, progress);
                    if progress.admits(ms, left_out) {
                        *open = Some(Window { ms, last: value, min: value, max: value });
                    }
                }
            }
        }
    }

    pub(super) fn close(&mut self, open: &mut Option<Window>, divisor: f64, progress: &mut Progress) {
        let Some(window) = open.take() else { return };
        self.last.push((window.ms, bits_of(window.last, divisor)));
        self.min.push((window.ms, bits_of(window.min, divisor)));
        self.max.push((window.ms, bits_of(window.max, divisor)));
        progress.last_ms = window.ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(last_ms: i64, caught_up_ms: i64) -> Progress {
        Progress { last_ms, caught_up_ms }
    }

    fn values(samples: &[Sample]) -> Vec<(i64, f64)> {
        samples.iter().map(|(ms, bits)| (*ms, f64::from_bits(*bits))).collect()
    }

    #[test]
    fn the_period_is_recognised_in_spite_of_late_samples() {
        let grid = |period_us: i64, count: i64| (0..count).map(|at| at * period_us).collect::<Vec<_>>();
        assert_eq!(is_below_millisecond(&grid(100, 10)), Some(true));
        assert_eq!(is_below_millisecond(&grid(500, 2)), Some(true));
        assert_eq!(is_below_millisecond(&grid(900, 8)), Some(true));
        assert_eq!(is_below_millisecond(&grid(1000, 8)), Some(false));
        assert_eq!(is_below_millisecond(&grid(1_000_000, 2)), Some(false));
        assert_eq!(is_below_millisecond(&[0]), None);
        assert_eq!(is_below_millisecond(&[70, 1000]), None, "the first one was late");
        assert_eq!(is_below_millisecond(&[0, 1000, 2900, 3010, 4000, 5000, 6000, 7000]), Some(false));
    }

    #[test]
    fn the_last_value_of_a_millisecond_counts() {
        let (mut out, mut left_out) = (Vec::new(), LeftOut::default());
        let mut progress = progress(4, 2);
        let samples = [(2000, 0.0), (3000, 0.0), (4999, 0.0), (5000, 1.0), (5999, 2.0), (7000, 3.0)];
        last_values(samples.into_iter(), 1.0, &mut progress, &mut out, &mut left_out);
        assert_eq!(values(&out), [(5, 2.0), (7, 3.0)]);
        assert_eq!(
            left_out,
            LeftOut { out_of_order: 1, same_millisecond: 2 },
            "2 ms was read from the store"
        );
        assert_eq!(progress.last_ms, 7);
    }

    #[test]
    fn windows_have_the_last_the_least_and_the_greatest_value() {
        let (mut windows, mut left_out) = (Windows::default(), LeftOut::default());
        let (mut progress, mut open) = (progress(i64::MIN, i64::MIN), None);
        let samples = [(1000, 5.0), (1100, 9.0), (1200, 1.0), (1300, 4.0), (2000, 7.0)];
        windows.add(samples.into_iter(), 1.0, &mut progress, &mut open, &mut left_out);
        assert_eq!((values(&windows.last), values(&windows.min)), (vec![(1, 4.0)], vec![(1, 1.0)]));
        assert_eq!((values(&windows.max), progress.last_ms), (vec![(1, 9.0)], 1));
        // The window continues in the next frame.
        windows.clear();
        windows.add([(2100, 6.0), (1900, 0.0)].into_iter(), 1.0, &mut progress, &mut open, &mut left_out);
        assert!(windows.last.is_empty() && left_out.out_of_order == 1);
        windows.close(&mut open, 2.0, &mut progress);
        assert_eq!((values(&windows.last), values(&windows.max)), (vec![(2, 3.0)], vec![(2, 3.5)]));
        windows.close(&mut open, 2.0, &mut progress);
        assert_eq!(windows.last.len(), 1);
    }

    #[test]
    fn no_value_is_taken_for_the_mark_of_an_end() {
        assert_eq!(bits_of(f64::from_bits(super::super::request::STALE), 1.0), NOT_A_NUMBER);
        assert_eq!(f64::from_bits(bits_of(1.0, 1e9)), 1e-9);
    }
}
