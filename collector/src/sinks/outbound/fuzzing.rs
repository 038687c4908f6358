//! Access to the reader of spool files for `e2e/fuzz/`.

use bytes::Bytes;
use polymeter_service::spool::record::Records;
use prost::Message;

use super::request::{self, WriteRequest};
use super::spool::record::{self, Header, Kind};

/// Number of intact records, and their length in bytes. Reads the requests, and passes them to `examine`.
pub fn read(file: &[u8], examine: fn(&[u8])) -> (usize, u64) {
    let mut records = Records::of(file);
    let mut count = 0;
    for (header, payload) in records.by_ref().flatten().filter_map(record::decode) {
        count += 1;
        match header.kind {
            Kind::Series => assert!(record::decode_times(payload).count() <= payload.len()),
            Kind::Request => request::decompress(payload).iter().for_each(|body| {
                halve(body);
                examine(body);
            }),
        }
    }
    (count, (file.len() - records.rest().len()) as u64)
}

pub fn halve(body: &[u8]) {
    let Ok(request) = WriteRequest::decode(Bytes::copy_from_slice(body)) else { return };
    let count = request.sample_count();
    if let Some(halves) = request.halves() {
        assert_eq!(halves.iter().map(WriteRequest::sample_count).sum::<u64>(), count);
    }
}

pub fn file_of(payloads: &[&[u8]]) -> Vec<u8> {
    let mut file = Vec::new();
    for payload in payloads {
        record::put(&mut file, Header { kind: Kind::Request, samples: 1, newest_ms: 0 }, payload);
    }
    file
}
