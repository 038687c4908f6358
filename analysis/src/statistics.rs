//! Means with 95 % intervals, and quantiles. Pure.

use std::fmt;

use polymeter_proto::units::to_f64;

/// A mean and the half-width of its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// The half-width; infinite if there are too few values.
    pub half: f64,
}

/// Student's t at 97.5 % for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Returns Student's t for any number of degrees of freedom; beyond the table with an error of at most 0.003.
fn student(degrees: f64) -> f64 {
    if degrees > to_f64(STUDENT.len() as u64) {
        return 1.96 + 2.4 / degrees;
    }
    // Between two rows the lower one applies, which gives the wider interval. Degrees are computed: a whole
    // number may be a little too small.
    let rows = (1..).zip(STUDENT).take_while(|(row, _)| f64::from(*row) <= degrees + 1e-9);
    rows.last().map_or(f64::INFINITY, |(_, t)| t)
}

/// Returns the value below which `percent` of the sorted values lie: one of them; none without values.
pub fn quantile(sorted: &[f64], percent: usize) -> Option<f64> {
    sorted.get((sorted.len().saturating_sub(1) * percent + 50) / 100).copied()
}

fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    let count = to_f64(values.len() as u64);
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, squares / (count - 1.0))
}

impl Estimate {
    /// Returns the mean of `values`; NaN if there are none.
    pub fn of(values: &[f64]) -> Self {
        let count = to_f64(values.len() as u64);
        let (mean, variance) = mean_and_variance(values);
        let half =
            if values.len() < 2 { f64::INFINITY } else { student(count - 1.0) * (variance / count).sqrt() };
        Self { mean, half }
    }

    /// Returns the difference of the means of two independent samples, with the interval of Welch's t-test.
    pub fn difference(of: &[f64], from: &[f64]) -> Self {
        let (mean_a, variance_a) = mean_and_variance(of);
        let (mean_b, variance_b) = mean_and_variance(from);
        let (count_a, count_b) = (to_f64(of.len() as u64), to_f64(from.len() as u64));
        let mean = mean_a - mean_b;
        if of.len() < 2 || from.len() < 2 {
            return Self { mean, half: f64::INFINITY };
        }
        let (error_a, error_b) = (variance_a / count_a, variance_b / count_b);
        let both = error_a + error_b;
        if both <= 0.0 {
            return Self { mean, half: 0.0 };
        }
        let degrees = both.powi(2) / (error_a.powi(2) / (count_a - 1.0) + error_b.powi(2) / (count_b - 1.0));
        Self { mean, half: student(degrees) * both.sqrt() }
    }

    /// Divides the mean and the half-width by `unit`.
    pub fn in_units_of(self, unit: f64) -> Self {
        Self { mean: self.mean / unit, half: (self.half / unit).abs() }
    }

    /// Returns true if the interval contains 0: the value does not differ significantly from 0.
    pub fn contains_zero(self) -> bool {
        self.mean.abs() <= self.half
    }
}

/// Formats as `1.50 ± 0.02`, with the precision of the formatter.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        write!(f, "{:.digits$}", self.mean)?;
        if self.half.is_finite() { write!(f, " ± {:.digits$}", self.half) } else { f.write_str(" ± ?") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-3 * wanted.abs().max(1.0), "{found}, not {wanted}");
    }

    #[test]
    fn intervals_are_those_of_the_textbook() {
        let estimate = Estimate::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        close(estimate.mean, 5.0);
        close(estimate.half, 2.365 * 2.138 / 8_f64.sqrt());
        assert_eq!(format!("{estimate:.1}"), "5.0 ± 1.8");
        assert_eq!(format!("{:.1}", Estimate::of(&[1.0])), "1.0 ± ?");
        assert!(Estimate::of(&[1.0, -1.0]).contains_zero());
        assert!(!Estimate::of(&[5.0, 5.1, 4.9]).contains_zero());
    }

    #[test]
    fn welch_does_not_ask_for_equal_variances() {
        // The standard errors of the means are sqrt(1/3) and sqrt(100/3); the degrees of freedom are near
        // those of the second, 2.04.
        let difference = Estimate::difference(&[11.0, 12.0, 13.0], &[0.0, 10.0, 20.0]);
        close(difference.mean, 2.0);
        close(difference.half, 4.303 * (101.0_f64 / 3.0).sqrt());
        assert_eq!(Estimate::difference(&[1.0, 1.0], &[2.0, 2.0]), Estimate { mean: -1.0, half: 0.0 });
    }

    #[test]
    fn t_falls_with_the_degrees_and_has_no_step() {
        assert!(student(0.5).is_infinite());
        let all: Vec<f64> = (1..200).map(|degrees| student(f64::from(degrees))).collect();
        assert!(all.windows(2).all(|pair| pair[0] > pair[1]), "{all:?}");
        close(student(60.0), 2.0);
    }
}
