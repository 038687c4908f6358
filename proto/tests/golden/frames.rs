//! Tests of whole frames: decoding restores the encoded content, and refuses other bytes.

use polymeter_proto::batch::{Batch, Instant};
use polymeter_proto::ledger::{Cause, Event, LedgerEntry, PlanChange, Tally};
use polymeter_proto::limits;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    JobHandle, Labels, MetricId, Number, Processors, SeriesDescriptor, SeriesId, SessionDescriptor,
    SessionId, ShapeId,
};
use polymeter_proto::stacks::{
    FunctionDescriptor, FunctionName, StackCount, StackDescriptor, StackId, StackInterval,
};
use polymeter_proto::wire::DecodeError;
use polymeter_proto::wire::dictionary::{Announced, Entry};
use polymeter_proto::wire::frame::{Encoder, Extras, Frame, Oversized};
use proptest::prelude::*;

use super::common::{Wire, batch_of, frame_of, shape};

polymeter_test_harness::tests![
    a_regular_block_round_trips,
    reads_outside_of_the_grid_and_single_ticks_keep_their_times,
    dictionary_ledger_and_events_travel_along,
    damage_is_seen,
    a_small_frame_cannot_ask_for_much_memory,
    counts_of_stacks_are_bounded,
    functions_and_stacks_travel_once_and_go_with_their_job,
    long_entries_are_divided_among_sections,
    a_batch_of_single_rows_round_trips,
    any_bytes_are_a_frame_or_an_error,
    any_batch_round_trips,
];

const T0: i64 = 1_790_000_000_000_000;

fn a_regular_block_round_trips() {
    let shape = shape(1, 1_000, &[Number::Unsigned, Number::Unsigned, Number::Float]);
    let first = T0.cast_unsigned() / 1_000;
    let ticks = (0..1000).filter(|tick| tick % 97 != 5);
    let rows: Vec<_> = ticks
        .map(|tick| {
            let time_us = T0 + i64::try_from(tick).unwrap() * 1_000 + 14 + i64::try_from(tick % 7).unwrap();
            let values = vec![
                Some(tick * 4096),
                (tick % 10 != 3).then_some(7),
                Some((f64::from(u32::try_from(tick).unwrap()) / 4.0).to_bits()),
            ];
            (Instant { deadline: Some(first + tick), time_us }, values)
        })
        .collect();
    let mut wire = Wire::default();
    let frame = Frame::decode(&wire.encode(&batch_of(&shape, &rows))).unwrap();
    assert_eq!(frame.session, SessionId(0xfeed));
    let mut found = Vec::new();
    for block in &frame.blocks {
        assert_eq!((block.shape, block.shape_columns), (ShapeId(1), 3));
        for (tick, time_us) in block.times_us.iter().enumerate() {
            let mut values = vec![None; 3];
            for (column, column_values) in block.iter() {
                values[column] = Some(column_values[tick]);
            }
            found.push((*time_us, values));
        }
    }
    found.sort();
    let expected: Vec<_> = rows.into_iter().map(|(instant, values)| (instant.time_us, values)).collect();
    assert_eq!(found, expected);
}

fn reads_outside_of_the_grid_and_single_ticks_keep_their_times() {
    let shape = shape(2, 1_000_000, &[Number::Unsigned]);
    let off_grid = |time_us| Instant { deadline: None, time_us };
    let on_grid = Instant { deadline: Some(1_790_000_001), time_us: 1_790_000_001_000_003 };
    let instants = [off_grid(T0 + 5), on_grid, off_grid(T0 + 1_500_000), off_grid(T0 + 1_400_000)];
    let rows: Vec<_> = instants.iter().map(|instant| (*instant, vec![Some(9)])).collect();
    let frame = Frame::decode(&Wire::default().encode(&batch_of(&shape, &rows))).unwrap();
    let times: Vec<i64> = frame.blocks.iter().flat_map(|block| block.times_us.clone()).collect();
    assert_eq!(times, instants.map(|instant| instant.time_us));
}

fn dictionary_ledger_and_events_travel_along() {
    let mut wire = Wire::default();
    let shape = shape(1, 1_000, &[Number::Unsigned]);
    let mut dictionary = Vec::new();
    wire.announced.announce(&shape, &mut dictionary);
    assert!(
        matches!(dictionary.as_slice(), [Entry::Metric(..), Entry::Series(..), Entry::Shape(..)]),
        "{dictionary:?}"
    );
    let ledger = [LedgerEntry {
        job: None,
        source: "v1/memory.stat".try_into().unwrap(),
        tally: Tally { due: 10, taken: 9, missed: 1, ..Tally::default() },
    }];
    let metric = polymeter_proto::name::MetricName::new("memory.anon").unwrap();
    let change = PlanChange {
        at_us: T0,
        job: None,
        level: None,
        metric,
        old: None,
        new: Some("1ms".parse().unwrap()),
        cause: Cause::Baseline,
        by: None,
        until_us: None,
    };
    let events = [Event::PlanChange(change)];
    let extras =
        Extras { dictionary: &dictionary, ledger: &ledger, events: &events, stacks: &[], is_kept: false };
    let bytes = wire.encode_with(&Batch::default(), extras);
    let frame = Frame::decode(&bytes).unwrap();
    assert_eq!(
        (frame.dictionary, frame.ledger, frame.events),
        (dictionary, ledger.to_vec(), events.to_vec())
    );
    let mut again = Vec::new();
    wire.announced.announce(&shape, &mut again);
    assert!(again.is_empty(), "names travel once");
}

fn damage_is_seen() {
    let shape = shape(1, 1_000, &[Number::Unsigned; 4]);
    let rows: Vec<_> = (0..50)
        .map(|tick| {
            (Instant { deadline: Some(tick), time_us: T0 }, vec![Some(tick), None, Some(1), Some(u64::MAX)])
        })
        .collect();
    let bytes = Wire::default().encode(&batch_of(&shape, &rows));
    assert!(Frame::decode(&bytes).is_ok());
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << bit;
            assert!(Frame::decode(&damaged).is_err(), "bit {bit} of byte {position}");
        }
        assert!(Frame::decode(&bytes[..position]).is_err(), "cut at {position}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(Frame::decode(&longer).is_err());
    let mut other = bytes;
    other[3] = 2;
    assert_eq!(Frame::decode(&other), Err(DecodeError::Version { found: 2 }));
    assert_eq!(Frame::decode(b"GET / HTTP/1.1\r\n\r\n"), Err(DecodeError::Magic));
    assert!(matches!(Frame::decode(&vec![0; limits::FRAME_BYTES + 1]), Err(DecodeError::Limit { .. })));
}

fn interval(counts: usize) -> StackInterval {
    let count = StackCount { process: u32::MAX, stack: StackId(u32::MAX), count: u64::MAX };
    StackInterval {
        metric: MetricId(1),
        job: JobHandle(1),
        begin_us: T0,
        end_us: T0 + 1,
        period: Period::SECOND,
        counts: vec![count; counts],
        lost: 0,
        throttled: 0,
        cut: 0,
        unresolved: 0,
    }
}

fn encode(stacks: &[StackInterval]) -> Result<Vec<u8>, Oversized> {
    let (mut bytes, extras) = (Vec::new(), Extras { stacks, ..Extras::default() });
    let encoded = Encoder::default().encode(&mut bytes, SessionId(0xfeed), 1, &Batch::default(), extras);
    encoded.map(|()| bytes)
}

fn counts_of_stacks_are_bounded() {
    let most = vec![interval(limits::STACK_COUNTS); limits::FRAME_STACK_COUNTS / limits::STACK_COUNTS];
    assert_eq!(Frame::decode(&encode(&most).unwrap()).unwrap().stacks, most);
    assert!(encode(&[most, vec![interval(1)]].concat()).is_err());
    assert!(encode(&[interval(limits::STACK_COUNTS + 1)]).is_err());
    // A frame of short counts, as no encoder makes it: 3 bytes each.
    let mut section = vec![1, 1, 1, 0, 0, 0xfc, 0x40, 0x42, 0x0f, 0, 0xfb, 1, 0x20];
    section.extend([0; 3 * (limits::STACK_COUNTS + 1) + 4]);
    let mut body = vec![8];
    let seven_bits = |shift: u32| u8::try_from(section.len() >> shift & 0x7f).unwrap();
    body.extend([seven_bits(0) | 0x80, seven_bits(7) | 0x80, seven_bits(14)]);
    body.extend(section);
    assert!(matches!(
        Frame::decode(&frame_of(&body)),
        Err(DecodeError::Limit { what: "counts of an interval of call stacks", .. })
    ));
}

fn functions_and_stacks_travel_once_and_go_with_their_job() {
    let mut announced = Announced::default();
    let (mut entries, mut again) = (Vec::new(), Vec::new());
    let function = |job| FunctionDescriptor { job: JobHandle(job), name: None, module: None };
    for job in [1, 2] {
        for entries in [&mut entries, &mut again] {
            let function = announced.announce_function(&function(job), entries).unwrap();
            let outer = announced.announce_stack(StackDescriptor { parent: None, function }, entries);
            announced.announce_stack(StackDescriptor { parent: outer, function }, entries).unwrap();
        }
    }
    assert_eq!((entries.len(), again.len()), (6, 0));
    let session = SessionDescriptor {
        node: "n".try_into().unwrap(),
        agent_version: "1".try_into().unwrap(),
        started_us: T0,
        processors: Processors::default(),
    };
    let version = announced.version();
    announced.retire_job(JobHandle(1));
    assert_eq!(announced.all(&session)[1..], entries[3..]);
    assert_ne!(announced.version(), version);
    let announced_again = (0..2 * limits::JOB_FUNCTIONS).filter(|number| {
        let name = FunctionName::escaped(number.to_string().as_bytes());
        announced.announce_function(&FunctionDescriptor { name, ..function(2) }, &mut again).is_some()
    });
    assert_eq!(announced_again.count(), limits::JOB_FUNCTIONS - 1);
    assert!(announced.announce_function(&function(3), &mut again).is_some(), "another job has room");
}

fn a_small_frame_cannot_ask_for_much_memory() {
    // One block of 4096 columns of zeros by 65536 ticks: 256 Mi values in a few hundred bytes.
    let mut block = vec![2, 0, 0x80, 0x20, 0x80, 0x80, 0x04];
    block.extend([0; 200]);
    assert!(matches!(
        Frame::decode(&frame_of(&block)),
        Err(DecodeError::Limit { what: "values in a frame", .. })
    ));
    // A block without columns still has times.
    let empty: Vec<u8> = (0..40).flat_map(|_| [2, 0, 0, 0x80, 0x80, 0x04, 0, 1, 0xb9, 0x01, 0x00]).collect();
    assert!(Frame::decode(&frame_of(&empty)).is_err());
}

/// Series with labels of the maximum length take 5 KiB each: a few hundred of them exceed a section.
fn long_entries_are_divided_among_sections() {
    let labels = Labels::new(
        (0..16).map(|key: u8| (format!("{key:064}"), "v".repeat(limits::LABEL_VALUE_BYTES))).collect(),
    )
    .unwrap();
    let dictionary: Vec<Entry> = (0..700)
        .map(|id| {
            let series = SeriesDescriptor { metric: MetricId(id), job: None, labels: labels.clone() };
            Entry::Series(SeriesId(id), series)
        })
        .collect();
    let extras = Extras { dictionary: &dictionary, ..Extras::default() };
    let bytes = Wire::default().encode_with(&Batch::default(), extras);
    assert_eq!(Frame::decode(&bytes).unwrap().dictionary, dictionary);
}

/// A source with two lines that are present alternately makes a block of every row.
fn a_batch_of_single_rows_round_trips() {
    let shape = shape(1, 1_000, &[Number::Unsigned]);
    let mut batch = Batch::default();
    let index = batch.add_shape(&shape);
    for row in 0_u64.. {
        let instant = Instant { deadline: row.is_multiple_of(2).then_some(row), time_us: T0 };
        if batch.push(index, instant, std::iter::once(Some(row))).is_err() {
            break;
        }
    }
    let frame = Frame::decode(&Wire::default().encode(&batch)).unwrap();
    assert_eq!((frame.blocks.len(), frame.samples()), (limits::BATCH_VALUES, limits::BATCH_VALUES as u64));
}

proptest! {
    fn any_bytes_are_a_frame_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Frame::decode(&bytes).is_err());
        // With a valid head and checksum the sections are decoded.
        drop(Frame::decode(&frame_of(&bytes)));
    }

    fn any_batch_round_trips(
        rows in prop::collection::vec((prop::option::of(0..2_000_000_000_u64), any::<i64>(), prop::collection::vec(prop::option::of(any::<u64>()), 3)), 1..60),
        period_us in 100..86_400_000_000_u64,
    ) {
        let shape = shape(5, period_us, &[Number::Unsigned, Number::Signed, Number::Float]);
        let rows: Vec<_> = rows.into_iter().map(|(deadline, time_us, values)| (Instant { deadline, time_us }, values)).collect();
        let batch = batch_of(&shape, &rows);
        let frame = Frame::decode(&Wire::default().encode(&batch)).unwrap();
        prop_assert_eq!(frame.samples(), batch.samples());
        let mut found: Vec<(i64, usize, u64)> = Vec::new();
        for block in &frame.blocks {
            for (column, values) in block.iter() {
                found.extend(block.times_us.iter().zip(values).map(|(time, value)| (*time, column, *value)));
            }
        }
        let mut expected: Vec<_> = rows.iter().flat_map(|(instant, values)| {
            let time_us = instant.time_us;
            values.iter().enumerate().filter_map(move |(column, value)| Some((time_us, column, (*value)?))).collect::<Vec<_>>()
        }).collect();
        found.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(found, expected);
    }
}
