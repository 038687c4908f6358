//! Contents of the records of a spool: pure.
//!
//! | bytes | part |
//! | --- | --- |
//! | 1 | the kind: 1 request, 2 series |
//! | 4 | the number of samples of the request |
//! | 8 | the time of its newest sample, in milliseconds since the epoch |
//! | | the payload |
//!
//! All numbers are little-endian. The payload of a request is its body, as it is sent: protobuf of
//! remote_write 1.0 in Snappy's block format. That of the first record of each segment has the last time of
//! each series: pairs of its hash and the time.

use polymeter_service::spool::record;

pub(crate) const HEADER_BYTES: usize = 13;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Request = 1,
    Series = 2,
}

/// Part of a record before its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) samples: u32,
    /// Time of the newest sample, since the epoch.
    pub(crate) newest_ms: i64,
}

impl Header {
    /// None if the bytes are no header.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (samples, newest_ms) = rest.split_first_chunk()?;
        let kind = match kind {
            1 => Kind::Request,
            2 => Kind::Series,
            _ => return None,
        };
        Some(Self {
            kind,
            samples: u32::from_le_bytes(*samples),
            newest_ms: i64::from_le_bytes(*newest_ms.first_chunk()?),
        })
    }
}

/// Header and payload; none if the contents are no record of this spool.
pub(crate) fn decode(contents: &[u8]) -> Option<(Header, &[u8])> {
    let (header, payload) = contents.split_first_chunk()?;
    Some((Header::decode(header)?, payload))
}

pub(crate) fn put(out: &mut Vec<u8>, Header { kind, samples, newest_ms }: Header, payload: &[u8]) {
    record::put(out, &[&[kind as u8], &samples.to_le_bytes(), &newest_ms.to_le_bytes(), payload]);
}

/// Record of the last times of series, as [`encode_times`] encodes them.
pub(super) fn of_times(times: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    put(&mut record, Header { kind: Kind::Series, samples: 0, newest_ms: 0 }, times);
    record
}

/// Limited to four million series.
pub(crate) fn encode_times(times: impl Iterator<Item = (u64, i64)>) -> Vec<u8> {
    let limit = (record::CONTENTS_BYTES_MAX - HEADER_BYTES) / 16;
    times.take(limit).flat_map(|(hash, ms)| [hash.to_le_bytes(), ms.to_le_bytes()]).flatten().collect()
}

pub(crate) fn decode_times(payload: &[u8]) -> impl Iterator<Item = (u64, i64)> + '_ {
    payload.chunks_exact(16).filter_map(|pair| {
        let (hash, ms) = pair.split_first_chunk()?;
        Some((u64::from_le_bytes(*hash), i64::from_le_bytes(*ms.first_chunk()?)))
    })
}

#[cfg(test)]
mod tests {
    use polymeter_service::spool::record::Records;

    use super::*;

    #[test]
    fn records_are_read_as_written() {
        let mut file = of_times(&encode_times([(7, -1), (u64::MAX, 5)].into_iter()));
        let header = Header { kind: Kind::Request, samples: 3, newest_ms: 1_767_225_600_000 };
        put(&mut file, header, b"body");
        let records: Vec<_> = Records::of(&file).map(|contents| decode(contents.unwrap()).unwrap()).collect();
        let [(series, times), (request, b"body")] = records[..] else { panic!("{records:?}") };
        assert_eq!(decode_times(times).collect::<Vec<_>>(), [(7, -1), (u64::MAX, 5)]);
        assert_eq!((series.kind, request), (Kind::Series, header));
    }

    #[test]
    fn contents_of_others_are_refused() {
        assert_eq!((decode(&[1; 12]), decode(&[3; 13])), (None, None));
    }
}
