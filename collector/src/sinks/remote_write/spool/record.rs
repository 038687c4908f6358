//! The records of a spool file: pure.
//!
//! A file is a sequence of records: a head of 28 bytes and a payload. All numbers are little-endian.
//!
//! | bytes | contents |
//! | --- | --- |
//! | 4 | `PMRW` |
//! | 4 | the kind: 1 request, 2 series |
//! | 4 | the length of the payload |
//! | 4 | the number of samples of the request |
//! | 8 | the time of its newest sample, in milliseconds since the epoch |
//! | 4 | CRC-32 of the 24 bytes before, and of the payload |
//!
//! The payload of a request is its body, as it is sent: protobuf of remote_write 1.0 in Snappy's block
//! format. That of the first record of each file has the last time of each series: pairs of its hash and the
//! time.

/// The length of a head, in bytes.
pub(crate) const HEAD_BYTES: usize = 28;

/// The maximum length of a payload, in bytes: of a file's first record, with the times of four million
/// series. A request has less.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 64 * 1024 * 1024;

const MAGIC: [u8; 4] = *b"PMRW";

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    /// The last times of series.
    Series,
}

/// The head of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    /// The length of the payload, in bytes.
    pub(crate) len: usize,
    /// The number of samples.
    pub(crate) samples: u32,
    /// The time of the newest sample, in milliseconds since the epoch.
    pub(crate) newest_ms: i64,
    crc: u32,
}

impl Head {
    /// Decodes a head; none if the bytes are no head.
    pub(crate) fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let mut rest = &bytes[..];
        let mut word = || {
            let (word, behind) = rest.split_first_chunk::<4>()?;
            rest = behind;
            Some(*word)
        };
        let (magic, kind, len, samples) = (word()?, word()?, word()?, word()?);
        let (low, high, crc) = (word()?, word()?, word()?);
        let kind = match u32::from_le_bytes(kind) {
            1 => Kind::Request,
            2 => Kind::Series,
            _ => return None,
        };
        let len = usize::try_from(u32::from_le_bytes(len)).ok().filter(|len| *len <= PAYLOAD_BYTES_MAX)?;
        let newest = u64::from(u32::from_le_bytes(low)) | u64::from(u32::from_le_bytes(high)) << 32;
        let samples = u32::from_le_bytes(samples);
        (magic == MAGIC).then(|| Self {
            kind,
            len,
            samples,
            newest_ms: newest.cast_signed(),
            crc: u32::from_le_bytes(crc),
        })
    }

    /// Returns true if the head and its payload are those that were written.
    pub(crate) fn is_of(&self, head: &[u8; HEAD_BYTES], payload: &[u8]) -> bool {
        self.len == payload.len() && crc(head, payload) == self.crc
    }

    /// Returns the length of the record, in bytes.
    pub(crate) const fn record_bytes(&self) -> u64 {
        (HEAD_BYTES + self.len) as u64
    }
}

fn crc(head: &[u8; HEAD_BYTES], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head.first_chunk::<24>().map_or(&[][..], |first| first));
    hasher.update(payload);
    hasher.finalize()
}

/// Writes a record into `out`, whose contents it replaces.
pub(crate) fn encode(out: &mut Vec<u8>, kind: Kind, payload: &[u8], samples: u32, newest_ms: i64) {
    out.clear();
    out.extend_from_slice(&MAGIC);
    let kind: u32 = match kind {
        Kind::Request => 1,
        Kind::Series => 2,
    };
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&samples.to_le_bytes());
    out.extend_from_slice(&newest_ms.to_le_bytes());
    let mut head = [0; HEAD_BYTES];
    head.iter_mut().zip(out.iter()).for_each(|(to, from)| *to = *from);
    out.extend_from_slice(&crc(&head, payload).to_le_bytes());
    out.extend_from_slice(payload);
}

/// The valid beginning of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents<'a> {
    pub(crate) records: Vec<(u64, Head, &'a [u8])>,
    /// The length of the records, in bytes.
    pub(crate) valid_bytes: u64,
    /// True if a damaged record follows; the bytes behind the records of another file are an incomplete one.
    pub(crate) is_damaged: bool,
}

/// Reads the records of a file until its end, or the first one that is incomplete or damaged.
pub(crate) fn read(file: &[u8]) -> Contents<'_> {
    let mut contents = Contents::default();
    let mut rest = file;
    while let Some((head_bytes, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let Some(head) = Head::decode(head_bytes) else {
            contents.is_damaged = true;
            break;
        };
        let Some((payload, next)) = behind.split_at_checked(head.len) else { break };
        if !head.is_of(head_bytes, payload) {
            contents.is_damaged = true;
            break;
        }
        contents.records.push((contents.valid_bytes, head, payload));
        contents.valid_bytes += head.record_bytes();
        rest = next;
    }
    contents
}

/// Encodes the last times of series.
pub(crate) fn encode_times(times: impl Iterator<Item = (u64, i64)>) -> Vec<u8> {
    let limit = PAYLOAD_BYTES_MAX / 16;
    times.take(limit).flat_map(|(hash, ms)| [hash.to_le_bytes(), ms.to_le_bytes()]).flatten().collect()
}

/// Decodes the last times of series.
pub(crate) fn decode_times(payload: &[u8]) -> impl Iterator<Item = (u64, i64)> + '_ {
    payload.chunks_exact(16).filter_map(|pair| {
        let (hash, ms) = pair.split_first_chunk()?;
        Some((u64::from_le_bytes(*hash), i64::from_le_bytes(*ms.first_chunk()?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let (mut file, mut record) = (Vec::new(), Vec::new());
        encode(&mut record, Kind::Series, &encode_times([(7, -1), (u64::MAX, 5)].into_iter()), 0, 0);
        file.extend_from_slice(&record);
        encode(&mut record, Kind::Request, b"body", 3, 1_767_225_600_000);
        file.extend_from_slice(&record);
        file
    }

    #[test]
    fn records_are_read_as_written() {
        let file = file();
        let contents = read(&file);
        assert_eq!(contents.valid_bytes, file.len() as u64);
        let [(0, series, times), (offset, request, b"body")] = contents.records[..] else {
            panic!("{contents:?}")
        };
        assert_eq!(decode_times(times).collect::<Vec<_>>(), [(7, -1), (u64::MAX, 5)]);
        assert_eq!((series.kind, offset), (Kind::Series, 60));
        assert_eq!((request.kind, request.samples, request.newest_ms), (Kind::Request, 3, 1_767_225_600_000));
    }

    #[test]
    fn incomplete_and_damaged_records_end_the_file() {
        let file = file();
        for end in 0..file.len() {
            let contents = read(&file[..end]);
            assert_eq!(contents.valid_bytes, if end < 60 { 0 } else { 60 }, "{end}");
            assert!(!contents.is_damaged, "{end}");
        }
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert_eq!(read(&damaged).records.len(), usize::from(at >= 60), "{at}");
        }
    }
}
