//! The part of the protobuf encoding that remote_write needs. Decoding is total.

/// The wire types.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const FIXED32: u8 = 5;

/// Returns the tag of a field with a length, `number` below 16.
pub(super) const fn bytes_tag(number: u8) -> u8 {
    number << 3 | BYTES
}

/// Returns the tag of a field with a varint, `number` below 16.
pub(super) const fn varint_tag(number: u8) -> u8 {
    number << 3 | VARINT
}

/// Returns the tag of a field with eight bytes, `number` below 16.
pub(super) const fn fixed64_tag(number: u8) -> u8 {
    number << 3 | FIXED64
}

/// Appends a varint.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// Returns the length of a varint, in bytes.
pub(super) const fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends a field with a length.
pub(super) fn put_bytes(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(bytes_tag(number));
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are no protobuf message")]
pub(super) struct Malformed;

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// A text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32(u32),
}

/// Takes a varint from the front of `bytes`.
pub(super) fn take_varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(Malformed)?;
        *bytes = rest;
        // The tenth byte has one bit.
        if shift == 63 && byte > 1 {
            return Err(Malformed);
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

/// The fields of a message, in order.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self) -> Result<(u64, Value<'a>), Malformed> {
        let tag = take_varint(&mut self.0)?;
        let value = match (tag & 7) as u8 {
            VARINT => Value::Varint(take_varint(&mut self.0)?),
            FIXED64 => {
                let (value, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
                self.0 = rest;
                Value::Fixed64(u64::from_le_bytes(*value))
            }
            BYTES => {
                let len = usize::try_from(take_varint(&mut self.0)?).map_err(|_too_long| Malformed)?;
                let (value, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
                self.0 = rest;
                Value::Bytes(value)
            }
            FIXED32 => {
                let (value, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
                self.0 = rest;
                Value::Fixed32(u32::from_le_bytes(*value))
            }
            _ => return Err(Malformed),
        };
        Ok((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.take();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_those_of_protobuf() {
        for (value, bytes) in [
            (0, &[0][..]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!((out.as_slice(), out.len()), (bytes, varint_len(value)), "{value}");
            assert_eq!(take_varint(&mut &out[..]), Ok(value));
        }
        assert_eq!(take_varint(&mut &[0x80; 9][..]), Err(Malformed), "incomplete");
        assert_eq!(take_varint(&mut &[0xff; 11][..]), Err(Malformed), "too long");
    }

    #[test]
    fn fields_of_all_wire_types_are_read_and_others_refused() {
        let mut message = Vec::new();
        message.extend([varint_tag(2), 0xac, 2]);
        put_bytes(&mut message, 1, b"ab");
        message.extend([fixed64_tag(3), 1, 0, 0, 0, 0, 0, 0, 0]);
        message.extend([4 << 3 | FIXED32, 2, 0, 0, 0]);
        let fields: Result<Vec<_>, _> = Fields(&message).collect();
        let expected = vec![
            (2, Value::Varint(300)),
            (1, Value::Bytes(b"ab")),
            (3, Value::Fixed64(1)),
            (4, Value::Fixed32(2)),
        ];
        assert_eq!(fields, Ok(expected));
        for end in 1..message.len() {
            let fields: Vec<_> = Fields(&message[..end]).collect();
            assert!(fields.len() <= 4 && fields.iter().rev().skip(1).all(Result::is_ok), "{end}");
        }
        assert_eq!(Fields(&[3]).next(), Some(Err(Malformed)), "a group");
    }
}
