//! Varints, zigzag, and a cursor with bounds checks.

use super::VERSION;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the bytes end too early")]
    Truncated,
    /// Not the first bytes of a frame or message.
    #[error("not a frame or message of this protocol")]
    Magic,
    /// Unsupported version of the protocol.
    #[error("protocol version {found} is not supported: this program supports version {VERSION}")]
    Version { found: u8 },
    /// The bytes were damaged in transit.
    #[error("the checksum does not match")]
    Checksum,
    /// More than 64 bits.
    #[error("a varint has more than 64 bits")]
    Varint,
    #[error("{what}: {found} exceeds the limit of {limit}")]
    Limit { what: &'static str, found: u64, limit: u64 },
    #[error("{found} is not a valid {what}")]
    Tag { what: &'static str, found: u8 },
    /// Parts of the bytes contradict each other.
    #[error("{0}")]
    Contradiction(&'static str),
    #[error("bytes follow the end")]
    Trailing,
    /// A serialised part (dictionary, ledger, events, message) is malformed.
    #[error("a serialised part is malformed")]
    Serialised,
}

/// Encodes a signed number as an unsigned one, so that numbers near zero stay small: 0, -1, 1, -2 become 0,
/// 1, 2, 3.
pub(crate) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// Decodes a number that [`zigzag`] encoded.
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

pub(crate) const fn varint_len(value: u64) -> usize {
    // 7 bits per byte; `| 1` because zero takes a byte, too.
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Appends `value` as a little-endian base-128 varint, as in Protocol Buffers.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

pub(crate) trait Sink {
    fn byte(&mut self, byte: u8);

    /// Appends `value` as [`put_varint`] does.
    fn varint(&mut self, value: u64);
}

impl Sink for Vec<u8> {
    fn byte(&mut self, byte: u8) {
        self.push(byte);
    }

    fn varint(&mut self, value: u64) {
        put_varint(self, value);
    }
}

/// Appends short items to a vector whose space is reserved for all of them at once. Each item is written by
/// one store, whatever its length.
#[derive(Debug)]
pub(crate) struct Appender<'a> {
    out: &'a mut Vec<u8>,
    at: usize,
}

impl<'a> Appender<'a> {
    /// Reserves `room` more bytes. Unused bytes are released at the end; if more are needed, the vector
    /// grows.
    pub(crate) fn new(out: &'a mut Vec<u8>, room: usize) -> Self {
        let at = out.len();
        // The last item is also stored as a whole word, of which only its own bytes remain.
        out.resize(at + room + size_of::<u64>(), 0);
        Self { out, at }
    }

    /// Appends the first `len` bytes of a little-endian word.
    pub(crate) fn word(&mut self, word: u64, len: usize) {
        if self.out.len() < self.at + size_of::<u64>() {
            self.grow();
        }
        if let Some(place) = self.out.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut) {
            *place = word.to_le_bytes();
            self.at += len;
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.out.resize(self.out.len() * 2 + size_of::<u64>(), 0);
    }

    #[cold]
    fn long_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(low_byte(value) | 0x80);
            value >>= 7;
        }
        self.byte(low_byte(value));
    }
}

impl Sink for Appender<'_> {
    fn byte(&mut self, byte: u8) {
        self.word(u64::from(byte), 1);
    }

    /// Encodes up to 56 bits without a branch, since the lengths of successive varints cannot be predicted.
    fn varint(&mut self, value: u64) {
        const CONTINUED: u64 = 0x8080_8080_8080_8080;
        let len = varint_len(value);
        if len > size_of::<u64>() {
            return self.long_varint(value);
        }
        // Each step shifts the upper half of every group up, until each byte has seven bits.
        let groups = ((value & 0x00ff_ffff_f000_0000) << 4) | (value & 0x0fff_ffff);
        let groups = ((groups & 0x0fff_c000_0fff_c000) << 2) | (groups & 0x0000_3fff_0000_3fff);
        let groups = ((groups & 0x3f80_3f80_3f80_3f80) << 1) | (groups & 0x007f_007f_007f_007f);
        let continued = CONTINUED & !(u64::MAX << (8 * (len - 1)));
        self.word(groups | continued, len);
    }
}

impl Drop for Appender<'_> {
    fn drop(&mut self) {
        self.out.truncate(self.at);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "taking the low bits is what it is for")]
pub(crate) const fn low_byte(value: u64) -> u8 {
    value as u8
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Varint);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Varint)
    }

    /// Reads a varint that is a number of 32 bits.
    pub(crate) fn number(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        let found = self.varint()?;
        u32::try_from(found).map_err(|_too_large| DecodeError::Limit { what, found, limit: u32::MAX.into() })
    }

    /// Reads a varint that counts `what`, and is at most `limit`.
    pub(crate) fn count(&mut self, what: &'static str, limit: usize) -> Result<usize, DecodeError> {
        let found = self.varint()?;
        match usize::try_from(found) {
            Ok(count) if count <= limit => Ok(count),
            _ => Err(DecodeError::Limit { what, found, limit: limit as u64 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_have_the_stated_length() {
        for shift in 0..64 {
            for value in [(1_u64 << shift) - 1, 1 << shift, (1 << shift) | 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                assert_eq!(bytes.len(), varint_len(value), "{value}");
                let mut appended = Vec::new();
                Appender::new(&mut appended, 0).varint(value);
                assert_eq!(appended, bytes, "{value}");
                assert_eq!(Cursor::new(&bytes).varint(), Ok(value));
            }
        }
    }

    #[test]
    fn a_varint_of_more_than_64_bits_is_refused() {
        assert_eq!(Cursor::new(&[0xff; 11]).varint(), Err(DecodeError::Varint));
        assert_eq!(
            Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varint(),
            Err(DecodeError::Varint)
        );
        assert_eq!(Cursor::new(&[0x80]).varint(), Err(DecodeError::Truncated));
    }

    #[test]
    fn zigzag_keeps_every_extreme() {
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }
}
