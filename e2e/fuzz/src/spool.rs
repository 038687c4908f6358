//! Segments of the agent's spool, possibly damaged by a disk: complete records are read, and none is
//! invented.

use polymeter_agent::delivery::spool::segment::{self, Segment};
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame;
use polymeter_service::spool::record;

const SESSION: SessionId = SessionId(0xfeed);

pub fn body(data: &[u8]) {
    assert!(segment::read(SESSION, data).cut_bytes <= data.len());
    let (bytes, records) = segment_of(data);
    let whole = segment::read(SESSION, &bytes);
    assert!(whole.cut_bytes == 0 && counted(&whole) <= records);
    // An incomplete write: exactly the records before it are read.
    let Some((_, before)) = bytes.split_last() else { return };
    let unfinished = segment::read(SESSION, before);
    assert!(unfinished.cut_bytes > 0 && counted(&unfinished) <= counted(&whole));
    assert!(counted(&whole) - counted(&unfinished) <= 1);
    // A flipped bit: it is detected, and no additional record is read.
    let mut turned = bytes;
    let sum = data.iter().fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    let at = sum % turned.len();
    turned.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
    let damaged = segment::read(SESSION, &turned);
    assert!(damaged.damaged > 0 || damaged.cut_bytes > 0);
    assert!(damaged.restored.len() <= whole.restored.len());
}

/// Counts frames, Skipped messages and damaged records, but not dictionaries.
fn counted(segment: &Segment) -> usize {
    segment.restored.len() + usize::try_from(segment.damaged).expect("it is small")
}

/// Builds a segment with valid checksums, which no fuzzer can guess, and counts its records. `data` has
/// messages preceded by their lengths, like the seeds of `ingest`.
fn segment_of(data: &[u8]) -> (Vec<u8>, usize) {
    let (mut bytes, mut records, mut rest) = (Vec::new(), 0, data);
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let (message, next) = behind.split_at(usize::from(u16::from_le_bytes(*length)).min(behind.len()));
        rest = next;
        records += 1;
        let mut content = message.to_vec();
        if message.starts_with(&frame::MAGIC) {
            content.extend(crc32fast::hash(message).to_le_bytes());
        }
        record::put(&mut bytes, &[&content]);
    }
    (bytes, records)
}
