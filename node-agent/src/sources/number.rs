//! Numbers of kernel files.

use polymeter_proto::catalogue::Scale;

/// Bits of the value of `word`; `None` if it means "no limit". The scaled value must fit into 64 bits.
pub(crate) fn parse(word: &[u8], scale: Scale) -> Result<Option<u64>, NotANumber> {
    match scale {
        Scale::Times(factor) => integer(word)?.checked_mul(factor).map(Some).ok_or(NotANumber),
        Scale::Limit(_) if word == b"max" => Ok(None),
        Scale::Limit(unlimited) => integer(word).map(|limit| (limit < unlimited).then_some(limit)),
        Scale::Decimal => decimal(word).map(|value| Some(value.to_bits())),
        Scale::DecimalTimes(factor) => decimal(word).map(|value| Some((value * f64::from(factor)).to_bits())),
        Scale::Until(end) => integer_until(word, end).map(Some),
        Scale::Timed => integer_until(word, '@').map(Some),
        Scale::Per(parts) => signed(word).map(|value| Some((value / f64::from(parts)).to_bits())),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotANumber;

/// Parses an integer of at most 64 bits. Faster than `str::parse`, since nothing is checked twice.
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

fn integer_until(word: &[u8], end: char) -> Result<u64, NotANumber> {
    integer(word.split(|byte| char::from(*byte) == end).next().unwrap_or_default())
}

/// This many digits always fit into 64 bits.
const SAFE_DIGITS: usize = 19;

/// Reads the integer that is the first word of `line` in one pass; `None` if [`parse`] must examine the word.
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

#[expect(clippy::cast_precision_loss, reason = "sensors have a few digits")]
fn signed(word: &[u8]) -> Result<f64, NotANumber> {
    match word.strip_prefix(b"-") {
        Some(digits) => {
            let value = 0_i64.checked_sub_unsigned(integer(digits)?).ok_or(NotANumber)?;
            Ok(value as f64)
        }
        None => integer(word).map(|value| value as f64),
    }
}

/// Parses a decimal fraction, whose integer part has at most 64 bits.
fn decimal(word: &[u8]) -> Result<f64, NotANumber> {
    let plain = word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let text = std::str::from_utf8(word).ok().filter(|_| plain).ok_or(NotANumber)?;
    let whole = text.split('.').next().unwrap_or_default();
    if !whole.is_empty() {
        integer(whole.as_bytes())?;
    }
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
    fn doubles_are_of_numbers_with_64_bits() {
        for (scale, largest, beyond) in [
            (Scale::Per(1), "18446744073709551615", "18446744073709551616"),
            (Scale::Per(1), "-9223372036854775808", "-9223372036854775809"),
            (Scale::Decimal, "18446744073709551615.5", "18446744073709551616.5"),
            (Scale::DecimalTimes(2), "18446744073709551615", "99999999999999999999999999999999"),
        ] {
            assert!(parse(largest.as_bytes(), scale).is_ok(), "{largest}");
            assert_eq!(parse(beyond.as_bytes(), scale), Err(NotANumber), "{beyond}");
        }
    }

    #[test]
    fn finds_the_leading_number() {
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
        fn leading_numbers_round_trip(number in any::<u64>(), shift in 0_u32..64, rest in "[ \\t\\n].{0,20}", other in ".{0,20}") {
            let number = number >> shift;
            prop_assert_eq!(leading(format!("{number}{rest}").as_bytes()), Some(number).filter(|number| *number < 10_u64.pow(19)));
            let word = other.split([' ', '\t', '\n']).next().unwrap_or_default();
            if !other.starts_with([' ', '\t', '\n']) && other.len() > word.len() {
                prop_assert_eq!(leading(other.as_bytes()), parse(word.as_bytes(), Scale::Times(1)).ok().flatten());
            }
        }
    }

    #[test]
    fn parts_of_a_unit_may_be_negative() {
        let value = |word: &[u8]| parse(word, Scale::Per(1000)).map(|bits| f64::from_bits(bits.unwrap()));
        assert_eq!(value(b"45500"), Ok(45.5));
        assert_eq!(value(b"-250"), Ok(-0.25));
        assert_eq!(value(b"0"), Ok(0.0));
        for wrong in [&b""[..], b"-", b"--1", b"1.5", b"max"] {
            assert_eq!(parse(wrong, Scale::Per(1000)), Err(NotANumber), "{wrong:?}");
        }
    }

    #[test]
    fn an_integer_may_end_at_a_character() {
        for (word, scale, value) in [
            (&b"4:"[..], Scale::Until(':'), Ok(Some(4))),
            (b"4", Scale::Until(':'), Ok(Some(4))),
            (b":4", Scale::Until(':'), Err(NotANumber)),
            (b"27399@1711476022.512340", Scale::Timed, Ok(Some(27_399))),
            (b"27399", Scale::Timed, Ok(Some(27_399))),
            (b"@1711476022", Scale::Timed, Err(NotANumber)),
            (b"-1@1", Scale::Timed, Err(NotANumber)),
            (b"", Scale::Timed, Err(NotANumber)),
            (b"2.5", Scale::DecimalTimes(1000), Ok(Some(2500_f64.to_bits()))),
            (b"-1", Scale::DecimalTimes(1000), Err(NotANumber)),
        ] {
            assert_eq!(parse(word, scale), value, "{word:?}");
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
