//! Means with 95 % intervals, and quantiles. Pure.

use std::f64::consts::FRAC_PI_2;
use std::fmt;

use polymeter_proto::units::to_f64;

/// Mean and half-width of its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    /// Infinite if there are too few values.
    pub half: f64,
}

/// The angles of Student's distribution are divided into so many parts: t has an error of at most 0.03 %.
const ANGLES: u32 = 1000;

/// Student's t at 97.5 % for any number of degrees of freedom; infinite for less than 1. The density of the
/// angle, whose tangent is t over the root of the degrees, is a power of its cosine.
fn student(degrees: f64) -> f64 {
    // Degrees are computed: a whole number may be a little too small.
    if degrees < 1.0 - 1e-9 {
        return f64::INFINITY;
    }
    let root = degrees.sqrt();
    let width = (8.0 / root).min(FRAC_PI_2) / f64::from(ANGLES);
    let density = |number: u32| ((f64::from(number) + 0.5) * width).cos().powf(degrees - 1.0);
    let mut rest = 0.95 * (0..ANGLES).map(density).sum::<f64>();
    for number in 0..ANGLES {
        let inside = density(number);
        if inside >= rest {
            return root * ((f64::from(number) + rest / inside) * width).tan();
        }
        rest -= inside;
    }
    f64::INFINITY
}

/// Value below which `percent` of the sorted values lie: one of them; none without values.
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
    /// NaN without values.
    pub fn of(values: &[f64]) -> Self {
        let count = to_f64(values.len() as u64);
        let (mean, variance) = mean_and_variance(values);
        let half =
            if values.len() < 2 { f64::INFINITY } else { student(count - 1.0) * (variance / count).sqrt() };
        Self { mean, half }
    }

    /// Difference of the means of two independent samples, with the interval of Welch's t-test.
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

    pub fn in_units_of(self, unit: f64) -> Self {
        Self { mean: self.mean / unit, half: (self.half / unit).abs() }
    }

    /// True if the value does not differ significantly from 0.
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
        // The standard errors of the means are sqrt(1/3) and sqrt(100/3), the degrees of freedom 2.04.
        let difference = Estimate::difference(&[11.0, 12.0, 13.0], &[0.0, 10.0, 20.0]);
        close(difference.mean, 2.0);
        close(difference.half, 4.222_808 * (101.0_f64 / 3.0).sqrt());
        assert_eq!(Estimate::difference(&[1.0, 1.0], &[2.0, 2.0]), Estimate { mean: -1.0, half: 0.0 });
    }

    /// Compares with `scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)`.
    #[test]
    fn intervals_are_those_of_scipy() {
        let many: Vec<f64> = (1..=10).map(f64::from).collect();
        let cases: [(&[f64], &[f64], f64, f64); 3] = [
            (&[2.0, 2.1, 1.9, 2.4], &[4.0, 4.1, 3.9, 5.2, 4.4], -2.22, 0.646_819),
            (&many, &[3.2, 3.1, 3.3], 2.3, 2.167_414),
            (&[0.1, 0.4], &[5.0, 9.0], -6.75, 24.823_521),
        ];
        for (of, from, mean, half) in cases {
            let found = Estimate::difference(of, from);
            assert!((found.mean - mean).abs() < 1e-9, "{found}");
            assert!((found.half / half - 1.0).abs() < 5e-4, "{found}, not {half}");
        }
        let quantiles =
            [(1.0, 12.706_205), (1.5, 6.016_663), (2.5, 3.574_655), (3.7, 2.867_521), (10.3, 2.219_373)];
        for (degrees, t) in quantiles.into_iter().chain([(45.2, 2.013_857), (1000.0, 1.962_339)]) {
            assert!((student(degrees) / t - 1.0).abs() < 5e-4, "{degrees}: {}", student(degrees));
        }
    }

    #[test]
    fn t_falls_with_the_degrees_and_has_no_step() {
        assert!(student(0.5).is_infinite());
        let all: Vec<f64> = (1..200).map(|degrees| student(f64::from(degrees))).collect();
        assert!(all.windows(2).all(|pair| pair[0] > pair[1]), "{all:?}");
        close(student(60.0), 2.0);
    }
}
