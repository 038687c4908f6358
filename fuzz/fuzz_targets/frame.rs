//! Frames, with the dictionary, tallies and events in them: any bytes are a frame or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use polymeter_proto::limits;
use polymeter_proto::wire::frame::Frame;

fuzz_target!(|data: &[u8]| {
    look(data);
    // Behind a right checksum, which no fuzzer guesses.
    let Some(body) = data.len().checked_sub(4).and_then(|end| data.get(..end)) else { return };
    look(&[body, &crc32fast::hash(body).to_le_bytes()].concat());
});

fn look(bytes: &[u8]) {
    let Ok(frame) = Frame::decode(bytes) else { return };
    assert!(bytes.len() <= limits::FRAME_BYTES);
    assert!(frame.samples() <= limits::FRAME_VALUES);
    for block in &frame.blocks {
        assert_eq!(block.values.len(), block.columns.len() * block.times_us.len());
        assert!(block.columns.iter().all(|column| *column < block.shape_columns));
        assert_eq!(block.iter().count(), block.columns.len());
    }
    for list in [frame.dictionary.len(), frame.ledger.len(), frame.events.len()] {
        assert!(list <= limits::SECTION_ENTRIES);
    }
}
