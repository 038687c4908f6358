//! Scales of events: the unit of an event that the kernel lists, and the amount of it for each count.
//!
//! Source: `Documentation/ABI/testing/sysfs-bus-event_source-devices-events`, the files `NAME.scale` and
//! `NAME.unit`.

use polymeter_proto::series::{Number, Unit};

/// Length of a scale; RAPL's has 31.
const SCALE_BYTES: usize = 64;

/// Length that `perf` reads.
const UNIT_BYTES: usize = 31;

/// Scales whose product with any count is finite.
const SCALES: std::ops::RangeInclusive<f64> = 1e-30..=1e30;

const KIB: f64 = 1024.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct EventScale {
    pub(crate) unit: Unit,
    pub(crate) per_count: f64,
}

impl EventScale {
    /// None if the values are counts.
    pub(super) fn of(scale: f64, (unit, factor): (Unit, f64)) -> Option<Self> {
        let per_count = scale * factor;
        let is_count = unit == Unit::Count && per_count == 1.0;
        (!is_count).then_some(Self { unit, per_count })
    }

    /// Bits of the double for a count.
    pub(super) fn bits(self, count: u64) -> u64 {
        (Number::Unsigned.to_f64(count) * self.per_count).to_bits()
    }
}

/// Parses the text of `NAME.scale`: `2.3283064365386962890625e-10`.
pub(super) fn scale(text: &str) -> Option<f64> {
    let is_decimal = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    if text.len() > SCALE_BYTES || !text.bytes().all(is_decimal) {
        return None;
    }
    text.parse().ok().filter(|scale| SCALES.contains(scale))
}

/// Parses the text of `NAME.unit`: the unit in which the values are stored, and its amount in one of the
/// kernel's. A unit that the catalogue lacks is a count.
pub(super) fn unit(text: &str) -> Option<(Unit, f64)> {
    let is_name = (1..=UNIT_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_name {
        return None;
    }
    Some(match text {
        "Joules" => (Unit::Joules, 1.0),
        "Bytes" => (Unit::Bytes, 1.0),
        "KiB" => (Unit::Bytes, KIB),
        "MiB" => (Unit::Bytes, KIB * KIB),
        "GiB" => (Unit::Bytes, KIB * KIB * KIB),
        "ns" => (Unit::Nanoseconds, 1.0),
        _ => (Unit::Count, 1.0),
    })
}

pub(super) fn check(text: &str) {
    let (scale_text, unit_text) = text.split_once('\n').unwrap_or((text, "MiB"));
    let (Some(scale), Some(unit)) = (scale(scale_text), unit(unit_text)) else { return };
    if let Some(scale) = EventScale::of(scale, unit) {
        let most = f64::from_bits(scale.bits(u64::MAX));
        assert!(most.is_finite() && most > 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_become_amounts_of_the_unit() {
        // 2^32 counts of RAPL are a joule.
        let rapl = EventScale::of(scale("2.3283064365386962890625e-10").unwrap(), unit("Joules").unwrap());
        assert_eq!(rapl.map(|scale| scale.unit), Some(Unit::Joules));
        assert_eq!(f64::from_bits(rapl.unwrap().bits(3 << 32)), 3.0);
        // A count of a memory controller is a line of 64 bytes.
        let lines = EventScale::of(scale("6.103515625e-5").unwrap(), unit("MiB").unwrap());
        assert_eq!(lines, Some(EventScale { unit: Unit::Bytes, per_count: 64.0 }));
        assert_eq!(EventScale::of(1.0, unit("M").unwrap()), None, "no unit of the catalogue");
        assert_eq!(EventScale::of(2.0, (Unit::Count, 1.0)).map(|scale| scale.per_count), Some(2.0));
    }

    #[test]
    fn only_decimal_numbers_are_scales() {
        for text in
            ["", "x", "1 2", "0x10", "inf", "NaN", "infinity", "-1", "0", "1e31", "1e-31", "1e", "1.2.3", "+"]
        {
            assert_eq!(scale(text), None, "{text}");
        }
        assert_eq!(scale(&"1".repeat(65)), None);
        assert_eq!((scale("2"), scale("0.25"), scale("1e30")), (Some(2.0), Some(0.25), Some(1e30)));
    }

    #[test]
    fn only_short_words_are_units() {
        for text in ["", "Mi B", "M\u{e9}", &"x".repeat(32)] {
            assert_eq!(unit(text), None, "{text}");
        }
        assert_eq!(unit(&"x".repeat(31)), Some((Unit::Count, 1.0)));
    }
}
