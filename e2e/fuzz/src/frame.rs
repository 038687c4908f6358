//! Frames with their dictionary, tallies and events: any bytes are a frame or an error.

use polymeter_proto::limits;
use polymeter_proto::series::{Identifier, Labels};
use polymeter_proto::stacks::FunctionName;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::Frame;

pub fn body(data: &[u8]) {
    look(data);
    // The same bytes with a valid checksum, which no fuzzer can guess.
    let Some(body) = data.len().checked_sub(4).and_then(|end| data.get(..end)) else { return };
    look(&[body, &crc32fast::hash(body).to_le_bytes()].concat());
}

fn look(bytes: &[u8]) {
    let Ok(frame) = Frame::decode(bytes) else { return };
    assert!(bytes.len() <= limits::FRAME_BYTES);
    let values: usize = frame.blocks.iter().map(|block| block.values.len()).sum();
    assert!(values <= limits::FRAME_VALUES);
    assert!(frame.samples() <= limits::FRAME_VALUES as u64 * limits::WINDOW_SAMPLES);
    for block in &frame.blocks {
        assert_eq!(block.values.len(), block.columns.len() * block.times_us.len());
        assert!(block.columns.iter().all(|column| *column < block.shape_columns));
        assert_eq!(block.iter().count(), block.columns.len());
        if let Some(windows) = &block.windows {
            assert!(windows.counts.iter().all(|count| *count <= limits::WINDOW_SAMPLES));
            for part in [&windows.counts, &windows.min, &windows.max, &windows.sum] {
                assert_eq!(part.len(), block.values.len());
            }
        }
    }
    frame.dictionary.iter().for_each(look_at_names);
    let counts: usize = frame.stacks.iter().map(|interval| interval.counts.len()).sum();
    assert!(counts <= limits::FRAME_STACK_COUNTS);
    let tallies = [frame.ledger.len(), frame.shape_tallies.len()];
    for list in [frame.dictionary.len(), frame.events.len(), frame.stacks.len()].into_iter().chain(tallies) {
        assert!(list <= limits::SECTION_ENTRIES);
    }
}

/// Checks that every decoded name is valid, whatever the agent sent.
fn look_at_names(entry: &Entry) {
    let is_valid = |name: &Identifier| assert!(Identifier::try_from(name.as_str()).is_ok(), "{name:?}");
    match entry {
        Entry::Session(session) => [&session.node, &session.agent_version].into_iter().for_each(is_valid),
        Entry::Job(_, job) => {
            [Some(&job.job_id), job.cluster.as_ref(), job.owner.as_ref()]
                .into_iter()
                .flatten()
                .for_each(is_valid);
        }
        Entry::Series(_, series) => {
            let pairs = series.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
            assert!(Labels::new(pairs.collect()).is_ok(), "{:?}", series.labels);
        }
        Entry::Shape(_, shape) => is_valid(&shape.source),
        Entry::Function(_, function) => {
            function.module.iter().for_each(is_valid);
            let name = function.name.as_ref().map_or("f", FunctionName::as_str);
            assert!(
                !name.is_empty()
                    && name.len() <= limits::FUNCTION_NAME_BYTES
                    && !name.chars().any(char::is_control)
            );
        }
        Entry::Metric(..) | Entry::Stack(..) => {}
    }
}
