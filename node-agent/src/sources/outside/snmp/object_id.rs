//! Object identifiers. Pure.

use std::fmt;
use std::str::FromStr;

/// Numbers of one identifier, as SNMP bounds them.
const NUMBERS_MAX: usize = 128;

/// Identifier of an object of a device, or of a table: `1.3.6.1.2.1.1.3.0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectId(Vec<u32>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is no object identifier")]
pub(super) struct InvalidObjectId;

impl ObjectId {
    /// # Errors
    ///
    /// Fails unless the first two numbers can be encoded together.
    fn new(numbers: Vec<u32>) -> Result<Self, InvalidObjectId> {
        let is_valid = match *numbers.as_slice() {
            [0 | 1, second, ..] => second < 40,
            [2, second, ..] => second <= u32::MAX - 80,
            _ => false,
        };
        if is_valid && numbers.len() <= NUMBERS_MAX { Ok(Self(numbers)) } else { Err(InvalidObjectId) }
    }

    /// Decodes the content of an encoded identifier.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidObjectId> {
        let mut encoded = Vec::new();
        let mut number = 0_u32;
        let mut is_whole = false;
        for byte in bytes {
            number = number.checked_mul(128).ok_or(InvalidObjectId)? | u32::from(byte & 0x7f);
            is_whole = byte & 0x80 == 0;
            if is_whole {
                encoded.push(number);
                number = 0;
            }
            if encoded.len() > NUMBERS_MAX {
                return Err(InvalidObjectId);
            }
        }
        let (Some(first), true) = (encoded.first().copied(), is_whole) else { return Err(InvalidObjectId) };
        let root = (first / 40).min(2);
        let mut numbers = vec![root, first - 40 * root];
        numbers.extend(encoded.iter().skip(1));
        Self::new(numbers)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let [root, second, rest @ ..] = self.0.as_slice() else { return bytes };
        for number in [&(40 * root + second)].into_iter().chain(rest) {
            let groups = (32 - number.leading_zeros()).div_ceil(7).max(1);
            for group in (0..groups).rev() {
                let [low, ..] = (number >> (7 * group) & 0x7f).to_le_bytes();
                bytes.push(low | if group > 0 { 0x80 } else { 0 });
            }
        }
        bytes
    }

    /// Numbers behind `base`; none if it is not below it.
    pub(super) fn below(&self, base: &Self) -> Option<&[u32]> {
        self.0.strip_prefix(base.0.as_slice()).filter(|rest| !rest.is_empty())
    }
}

impl FromStr for ObjectId {
    type Err = InvalidObjectId;

    fn from_str(text: &str) -> Result<Self, InvalidObjectId> {
        let numbers = text.trim_start_matches('.').split('.').take(NUMBERS_MAX + 1);
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let parse = |text: &str| text.parse().ok().filter(|_| is_number(text)).ok_or(InvalidObjectId);
        Self::new(numbers.map(parse).collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&index_text(&self.0))
    }
}

/// Numbers behind a column, as text: `17`, or `1.4`.
pub(super) fn index_text(index: &[u32]) -> String {
    index.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

pub(super) fn check(data: &[u8]) {
    if let Ok(id) = ObjectId::from_bytes(data) {
        assert_eq!(ObjectId::from_bytes(&id.to_bytes()).as_ref(), Ok(&id));
        assert_eq!(id.to_string().parse().as_ref(), Ok(&id));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn encodes_and_decodes() {
        let id: ObjectId = ".1.3.6.1.4.1.318.1.1.26.9.4.3.1.7".parse().unwrap();
        let bytes = [0x2b, 6, 1, 4, 1, 0x82, 0x3e, 1, 1, 26, 9, 4, 3, 1, 7];
        assert_eq!((id.to_bytes().as_slice(), ObjectId::from_bytes(&bytes).as_ref()), (&bytes[..], Ok(&id)));
        let base: ObjectId = "1.3.6.1.4.1.318".parse().unwrap();
        assert_eq!(id.below(&base), Some(&[1, 1, 26, 9, 4, 3, 1, 7][..]));
        assert_eq!((base.below(&base), base.below(&id)), (None, None));
        for wrong in ["", "1", "3.1", "1.40", "1.3.x", "1.3.-1", "1.3.+1", "1.3.4294967296", "1..3"] {
            assert!(wrong.parse::<ObjectId>().is_err(), "{wrong}");
        }
        assert!("1.3".repeat(200).parse::<ObjectId>().is_err());
        for wrong in [&[][..], &[0x80], &[0x2b, 0x86], &[0x2b, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]] {
            assert!(ObjectId::from_bytes(wrong).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_identifier_returns(
            (root, second) in (0..3_u32, 0..40_u32), rest in prop::collection::vec(any::<u32>(), 0..126)
        ) {
            let id = ObjectId::new([root, second].into_iter().chain(rest).collect()).unwrap();
            prop_assert_eq!(ObjectId::from_bytes(&id.to_bytes()), Ok(id.clone()));
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }
    }
}
