//! Records of a segment: pure, and total for any bytes.
//!
//! A segment is a sequence of records. All numbers are little-endian, and checksums CRC-32.
//!
//! | bytes | part of a record |
//! | --- | --- |
//! | 4 | `PMS`, and the version of the format: 1 |
//! | 4 | the length of the contents |
//! | 4 | the checksum of the contents |
//! | 4 | the checksum of the 12 bytes before |
//! | | the contents |
//!
//! The head has a checksum of its own, so that damaged contents cost one record and not those behind it.

pub const HEAD_BYTES: usize = 16;

/// Keeps a damaged file from claiming any amount of memory.
pub const CONTENTS_BYTES_MAX: usize = 64 * 1024 * 1024;

const MAGIC: [u8; 4] = *b"PMS\x01";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Length of the contents, in bytes.
    pub len: usize,
    checksum: u32,
}

impl Head {
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let (head, checksum) = bytes.split_last_chunk::<4>()?;
        let (magic, rest) = head.split_first_chunk::<4>()?;
        let (len, contents_checksum) = rest.split_first_chunk::<4>()?;
        if *magic != MAGIC || crc32fast::hash(head) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let len = usize::try_from(u32::from_le_bytes(*len)).ok().filter(|len| *len <= CONTENTS_BYTES_MAX)?;
        Some(Self { len, checksum: u32::from_le_bytes(*contents_checksum.first_chunk()?) })
    }

    /// Tells whether `contents` were written with this head.
    pub fn is_of(&self, contents: &[u8]) -> bool {
        self.len == contents.len() && crc32fast::hash(contents) == self.checksum
    }

    /// Length of head and contents.
    pub const fn record_bytes(&self) -> u64 {
        (HEAD_BYTES + self.len) as u64
    }
}

/// Appends a record. Its contents are `parts` in a row, at most [`CONTENTS_BYTES_MAX`] bytes.
pub fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut checksum = crc32fast::Hasher::new();
    parts.iter().for_each(|part| checksum.update(part));
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
    head.extend_from_slice(&checksum.finalize().to_le_bytes());
    head.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
    out.reserve(head.len() + len);
    out.extend_from_slice(&head);
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Tells whether a file that ends with `bytes` may end within a record: a write was not completed.
pub(super) fn is_beginning(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_none_or(|head| Head::decode(head).is_some())
}

/// Contents of the records of a segment, each none if it is damaged, up to the first bytes that are no
/// record.
#[derive(Debug, Clone)]
pub struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    /// `segment` may be damaged in any way.
    pub const fn of(segment: &'a [u8]) -> Self {
        Self(segment)
    }

    /// Bytes that were not read yet; at the end, those that are no record.
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.0.split_first_chunk()?;
        let head = Head::decode(head)?;
        let (contents, behind) = rest.split_at_checked(head.len)?;
        self.0 = behind;
        Some(head.is_of(contents).then_some(contents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Vec<u8> {
        let mut segment = Vec::new();
        put(&mut segment, &[b"the ", b"first"]);
        put(&mut segment, &[]);
        put(&mut segment, &[b"last"]);
        segment
    }

    #[test]
    fn records_are_read_as_written() {
        let segment = segment();
        let mut records = Records::of(&segment);
        let contents: Vec<_> = records.by_ref().collect();
        assert_eq!(contents, [Some(&b"the first"[..]), Some(b""), Some(b"last")]);
        assert!(records.rest().is_empty());
    }

    #[test]
    fn an_incomplete_record_ends_the_segment() {
        let segment = segment();
        for end in 0..segment.len() {
            let mut records = Records::of(&segment[..end]);
            let contents: Vec<_> = records.by_ref().collect();
            let complete = [25, 41].iter().filter(|complete| **complete <= end).count();
            assert!(contents.len() == complete && contents.iter().all(Option::is_some), "{end}");
            assert!(is_beginning(records.rest()), "{end}");
        }
    }

    #[test]
    fn a_flipped_bit_costs_its_record_or_in_a_head_those_behind_it() {
        let segment = segment();
        for bit in 0..segment.len() * 8 {
            let at = bit / 8;
            let mut damaged = segment.clone();
            damaged[at] ^= 1 << (bit % 8);
            let mut records = Records::of(&damaged);
            let contents: Vec<_> = records.by_ref().collect();
            let intact = [Some(&b"the first"[..]), Some(b""), Some(b"last")];
            match at {
                16..25 => assert_eq!(contents, [None, intact[1], intact[2]], "{bit}"),
                57.. => assert_eq!(contents, [intact[0], intact[1], None], "{bit}"),
                _ => {
                    assert_eq!(
                        contents,
                        intact[..[25, 41].iter().filter(|end| **end <= at).count()],
                        "{bit}"
                    );
                    assert!(!is_beginning(records.rest()), "{bit}");
                }
            }
        }
    }

    #[test]
    fn a_record_beyond_the_limit_is_none() {
        let mut head = MAGIC.to_vec();
        head.extend(u32::try_from(CONTENTS_BYTES_MAX + 1).unwrap().to_le_bytes());
        head.extend([0; 4]);
        head.extend(crc32fast::hash(&head).to_le_bytes());
        assert_eq!(Head::decode(head.first_chunk().unwrap()), None);
    }
}
