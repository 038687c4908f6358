//! The built-in command, for which nothing need be installed: like NPB's EP it draws pairs of normal
//! deviates, uses the CPU only, and prints the result at the end.

use polymeter_benches::statistics::Random;
use polymeter_benches::table::to_f64;

/// Number of pairs in each square ring of width 1 around the origin, and the sums of their coordinates.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Drawn {
    /// Numbers of pairs, by the larger of their absolute coordinates.
    pub(crate) rings: [u64; 10],
    pub(crate) sums: (f64, f64),
}

/// Draws `pairs` pairs of uniform deviates and applies Marsaglia's polar method, which accepts those within
/// the unit circle.
pub(crate) fn draw(pairs: u64, seed: u64) -> Drawn {
    let mut random = Random::new(seed);
    let mut drawn = Drawn::default();
    for _ in 0..pairs {
        let (x, y) = (uniform(random.bits()), uniform(random.bits()));
        let square = x.mul_add(x, y * y);
        if square > 1.0 || square <= 0.0 {
            continue;
        }
        let factor = (-2.0 * square.ln() / square).sqrt();
        let (x, y) = (x * factor, y * factor);
        let ring = polymeter_benches::table::to_u64(x.abs().max(y.abs()).floor());
        if let Some(count) = usize::try_from(ring).ok().and_then(|ring| drawn.rings.get_mut(ring)) {
            *count += 1;
        }
        drawn.sums.0 += x;
        drawn.sums.1 += y;
    }
    drawn
}

/// Converts random bits to a number from -1 to 1.
fn uniform(bits: u64) -> f64 {
    // A double holds 53 bits.
    to_f64(bits >> 11) / to_f64(1 << 52) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_draws_normal_deviates() {
        let drawn = draw(1_000_000, 3);
        let kept = to_f64(drawn.rings.iter().sum());
        assert!((kept / 1e6 - std::f64::consts::FRAC_PI_4).abs() < 2e-3, "{kept}");
        // Probability of both coordinates within one standard deviation: 0.6827 squared.
        let inner = to_f64(drawn.rings[0]) / kept;
        assert!((inner - 0.466).abs() < 3e-3, "{inner}");
        assert!(drawn.sums.0.abs() / kept < 5e-3 && drawn.sums.1.abs() / kept < 5e-3, "{drawn:?}");
        assert_eq!(draw(1_000_000, 3), drawn);
    }
}
