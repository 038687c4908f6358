//! Numbers as kernel files write them.

use polymeter_proto::catalogue::Scale;

/// The bits of the value that `word` stands for: `Ok(None)` where it says that there is no limit.
///
/// # Errors
/// When the word is no number of that kind, or the scaled value does not fit into 64 bits.
pub(crate) fn parse(word: &[u8], scale: Scale) -> Result<Option<u64>, NotANumber> {
    match scale {
        Scale::Times(factor) => integer(word)?.checked_mul(factor).map(Some).ok_or(NotANumber),
        Scale::Limit(_) if word == b"max" => Ok(None),
        Scale::Limit(unlimited) => integer(word).map(|limit| (limit < unlimited).then_some(limit)),
        Scale::Decimal => decimal(word).map(|value| Some(value.to_bits())),
    }
}

/// A word is no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotANumber;

/// A whole number of at most 64 bits. Faster than `str::parse`, since nothing is checked twice.
fn integer(word: &[u8]) -> Result<u64, NotANumber> {
    let mut value = 0_u64;
    for &byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(NotANumber);
        }
        value =
            value.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit))).ok_or(NotANumber)?;
    }
    if word.is_empty() { Err(NotANumber) } else { Ok(value) }
}

/// Digits of a whole number that cannot be too large for 64 bits.
const SAFE_DIGITS: usize = 19;

/// The whole number that is the first word of `line`, found and read in one walk; none where [`parse`] must say what there is
/// instead.
pub(crate) fn leading(line: &[u8]) -> Option<u64> {
    let begin = line.iter().position(|byte| *byte != b' ')?;
    let mut value = 0_u64;
    for (position, &byte) in line.get(begin..)?.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (position > 0 && matches!(byte, b' ' | b'\t' | b'\n')).then_some(value);
        }
        if position == SAFE_DIGITS {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    None
}

fn decimal(word: &[u8]) -> Result<f64, NotANumber> {
    let plain = word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let text = std::str::from_utf8(word).ok().filter(|_| plain).ok_or(NotANumber)?;
    text.parse().ok().ok_or(NotANumber)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_are_scaled_and_never_overflow() {
        assert_eq!(parse(b"123", Scale::Times(1000)), Ok(Some(123_000)));
        assert_eq!(parse(b"18446744073709551615", Scale::Times(1)), Ok(Some(u64::MAX)));
        assert_eq!(parse(b"18446744073709551616", Scale::Times(1)), Err(NotANumber));
        assert_eq!(parse(b"18446744073709551615", Scale::Times(2)), Err(NotANumber));
        for wrong in [&b""[..], b"-1", b"1.5", b"0x10", b"max", b" 1", b"\xff"] {
            assert_eq!(parse(wrong, Scale::Times(1)), Err(NotANumber), "{wrong:?}");
        }
    }

    #[test]
    fn a_leading_number_is_what_the_first_word_is() {
        for line in ["0\n", "123 4\n", "9999999999999999999\n", "7\tx", "   12 kB\n"] {
            let word = line.split_ascii_whitespace().next().unwrap();
            assert_eq!(leading(line.as_bytes()), word.parse().ok(), "{line:?}");
        }
        for other in ["", "12", " \n12\n", "-1\n", "1.5\n", "max\n", "\n", "18446744073709551615\n", "12kB\n"]
        {
            assert_eq!(leading(other.as_bytes()), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn a_leading_number_is_what_is_written_there(number in any::<u64>(), shift in 0_u32..64, rest in "[ \\t\\n].{0,20}", other in ".{0,20}") {
            let number = number >> shift;
            prop_assert_eq!(leading(format!("{number}{rest}").as_bytes()), Some(number).filter(|number| *number < 10_u64.pow(19)));
            let word = other.split([' ', '\t', '\n']).next().unwrap_or_default();
            if !other.starts_with([' ', '\t', '\n']) && other.len() > word.len() {
                prop_assert_eq!(leading(other.as_bytes()), parse(word.as_bytes(), Scale::Times(1)).ok().flatten());
            }
        }
    }

    #[test]
    fn no_limit_is_no_value() {
        assert_eq!(parse(b"max", Scale::Limit(u64::MAX)), Ok(None));
        assert_eq!(parse(b"9223372036854771712", Scale::Limit(0x7fff_ffff_ffff_f000)), Ok(None));
        assert_eq!(parse(b"4096", Scale::Limit(0x7fff_ffff_ffff_f000)), Ok(Some(4096)));
    }

    #[test]
    fn decimals_have_digits_and_a_dot() {
        assert_eq!(parse(b"0.25", Scale::Decimal), Ok(Some(0.25_f64.to_bits())));
        for wrong in [&b""[..], b"nan", b"inf", b"1e5", b"-1", b"1..2", b"."] {
            assert_eq!(parse(wrong, Scale::Decimal), Err(NotANumber), "{wrong:?}");
        }
    }
}
