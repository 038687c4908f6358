//! Numbers of 16 bits: IEEE 754 binary16.

/// Represents the largest value of a list: less than the largest number of 16 bits, 65504.
const LARGEST: f64 = 32_768.0;

/// Stands for an absent value.
const NAN: u16 = 0x7e00;

/// Converts values to multiples of a scale, which is returned as well, with an error of at most 1/2048 of
/// each value, or of 2e-9 of the largest one. Values that are not finite are NaN.
pub(super) fn scaled(values: &[f64]) -> (f64, Vec<u16>) {
    let finite = values.iter().filter(|value| value.is_finite());
    let largest = finite.fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let scale = if largest > 0.0 { largest / LARGEST } else { 1.0 };
    // A tiny largest value has no scale that can be represented.
    let scale = if scale.is_normal() { scale } else { 1.0 };
    (scale, values.iter().map(|value| half(value / scale)).collect())
}

/// Converts a number to the nearest of 16 bits; NaN if it has none.
#[expect(
    clippy::cast_possible_truncation,
    reason = "narrowing is the purpose; each part is masked to its width"
)]
fn half(value: f64) -> u16 {
    if !value.is_finite() {
        return NAN;
    }
    let bits = (value as f32).to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    // The exponents of 32 and 16 bits have the biases 127 and 15.
    let exponent = (bits >> 23) & 0xff;
    let fraction = bits & 0x7f_ffff;
    let magnitude = match exponent {
        0..=101 => 0,
        102..=112 => rounded(fraction | 0x80_0000, 126 - exponent),
        113..=142 => ((exponent - 112) << 10) + rounded(fraction, 13),
        _ => 0x7bff,
    };
    sign | (magnitude.min(0x7bff) as u16)
}

const fn rounded(value: u32, bits: u32) -> u32 {
    (value + (1 << (bits - 1))) >> bits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Converts back, as the page does.
    fn value(half: u16) -> f64 {
        let (exponent, fraction) = (i32::from((half >> 10) & 0x1f), f64::from(half & 0x3ff));
        let magnitude = match exponent {
            0 => fraction * 2_f64.powi(-24),
            31 => return f64::NAN,
            _ => (1.0 + fraction / 1024.0) * 2_f64.powi(exponent - 15),
        };
        if half & 0x8000 == 0 { magnitude } else { -magnitude }
    }

    #[test]
    fn known_numbers_have_their_bits() {
        for (number, bits) in [
            (0.0, 0),
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (0.5, 0x3800),
            (32_768.0, 0x7800),
            (65_504.0, 0x7bff),
            (1e9, 0x7bff),
            (2_f64.powi(-14), 0x0400),
            (2_f64.powi(-24), 0x0001),
            (2_f64.powi(-26), 0),
            (f64::NAN, NAN),
            (f64::INFINITY, NAN),
        ] {
            assert_eq!(half(number), bits, "{number}");
        }
        assert_eq!(scaled(&[]), (1.0, vec![]));
        assert_eq!(scaled(&[0.0, f64::NAN]), (1.0, vec![0, NAN]));
        assert_eq!(scaled(&[f64::MIN_POSITIVE]), (1.0, vec![0]));
    }

    proptest! {
        #[test]
        fn values_keep_three_digits(values in proptest::collection::vec(-1e15_f64..1e15, 1..40)) {
            let (scale, halves) = scaled(&values);
            let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
            for (wanted, half) in values.iter().zip(halves) {
                let error = (value(half) * scale - wanted).abs();
                prop_assert!(error <= wanted.abs() / 2048.0 * 1.0001 + largest * 2e-9, "{wanted}: {error}");
            }
        }
    }
}
