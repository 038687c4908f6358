//! Files of the spool of remote_write, possibly damaged by a disk: complete records are read, none is
//! invented, and the requests in them are series or refused.

use polymeter_collector::sinks::outbound::fuzzing::{file_of, halve, read};
use polymeter_collector::sinks::remote_write::examine;

pub fn body(data: &[u8]) {
    assert!(read(data, examine).1 <= data.len() as u64);
    halve(data);
    examine(data);
    // Valid checksums, which no fuzzer can guess.
    let payloads: Vec<&[u8]> = data.chunks(64).collect();
    let mut file = file_of(&payloads);
    assert_eq!(read(&file, examine), (payloads.len(), file.len() as u64));
    let Some((_, before)) = file.split_last() else { return };
    assert_eq!(read(before, examine).0, payloads.len() - 1, "an incomplete write");
    let sum = data.iter().fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    let at = sum % file.len();
    file.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
    assert!(read(&file, examine).0 < payloads.len(), "a flipped bit");
}
