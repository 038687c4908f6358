//! Access to the reader of spool files for `e2e/fuzz/`.

use super::request;
use super::spool::record::{self, Kind};

/// Returns the number of records of a file, and the length of its valid beginning in bytes. Reads the series
/// of its requests.
pub fn read(file: &[u8]) -> (usize, u64) {
    let contents = record::read(file);
    for (_, head, payload) in &contents.records {
        match head.kind {
            Kind::Series => assert!(record::decode_times(payload).count() <= payload.len()),
            Kind::Request => request::decompress(payload).iter().for_each(|body| examine(body)),
        }
    }
    (contents.records.len(), contents.valid_bytes)
}

/// Reads a body, as 1.0 and as 2.0, and halves it until single samples.
pub fn examine(body: &[u8]) {
    let count = request::count(body);
    let is_valid = request::series(body).all(|series| {
        series.is_ok_and(|series| {
            series.labels().all(|label| label.is_ok()) && series.samples().all(|sample| sample.is_ok())
        })
    });
    let v2 = request::to_v2(body);
    if is_valid {
        let decoded = v2.ok().and_then(|v2| request::decode_v2(&v2).ok());
        let samples = decoded.map(|series| series.iter().map(|(_, samples, _)| samples.len() as u64).sum());
        assert_eq!(samples, Some(count), "2.0 has the same samples");
        let halves = request::halves(body);
        let sum = halves.map(|halves| halves.iter().map(|half| request::count(half)).sum());
        assert_eq!(sum.unwrap_or(count), count, "halves have all samples");
    }
}

/// Returns a file with requests of the given payloads.
pub fn file_of(payloads: &[&[u8]]) -> Vec<u8> {
    let (mut file, mut encoded) = (Vec::new(), Vec::new());
    for payload in payloads {
        record::encode(&mut encoded, Kind::Request, payload, 1, 0);
        file.extend_from_slice(&encoded);
    }
    file
}
