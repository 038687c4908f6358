//! Numbers of bytes in configurations.

use std::ops::RangeInclusive;

const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid size `{text}`: expected a whole number of KiB, MiB or GiB, from {} to {}",
    format(*bounds.start()),
    format(*bounds.end())
)]
pub struct InvalidSize {
    text: String,
    bounds: RangeInclusive<u64>,
}

/// Parses a number of bytes within `bounds`: `64MiB`.
pub fn parse(text: &str, bounds: RangeInclusive<u64>) -> Result<u64, InvalidSize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let bytes = text.split_at_checked(digits).and_then(|(number, unit)| {
        let (_, shift) = UNITS.iter().find(|(name, _)| *name == unit)?;
        number.parse::<u64>().ok()?.checked_mul(1 << shift)
    });
    let within = bytes.filter(|bytes| bounds.contains(bytes));
    within.ok_or_else(|| InvalidSize { text: text.to_owned(), bounds })
}

/// Uses the largest unit of which `bytes` is a multiple.
fn format(bytes: u64) -> String {
    let unit = UNITS.iter().find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| format!("{bytes}"), |(name, shift)| format!("{}{name}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_and_bounds() {
        let bytes = |text: &str| parse(text, 64 << 10..=64 << 30);
        assert_eq!((bytes("64KiB"), bytes("64GiB")), (Ok(64 << 10), Ok(64 << 30)));
        for wrong in ["", "64", "64kB", "63KiB", "65GiB", "-1MiB", "1.5GiB", "99999999999999999999GiB"] {
            assert!(bytes(wrong).unwrap_err().to_string().contains("64KiB to 64GiB"), "{wrong}");
        }
    }
}
