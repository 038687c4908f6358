//! Tests of blocks of windows.

use std::sync::Arc;

use polymeter_proto::batch::{Batch, Column, Instant, Shape};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{Kind, Labels, MetricDescriptor, MetricId, SeriesId};
use polymeter_proto::window::{PARTS, Summary};
use polymeter_proto::wire::dictionary::{Announced, Entry};
use polymeter_proto::wire::frame::{Encoder, Extras, Frame};
use polymeter_store::accepted::{LossReason, WindowColumns};

use super::super::{Ingest, OutOfRangePolicy, TimeRange};
use super::{NOW_US, SESSION, accepted, at, descriptor, metric, peer, rejected, shape};

/// Shape of a counter and a gauge in windows of a second.
fn windowed() -> Arc<Shape> {
    let mut shape = (*shape(1, None)).clone();
    let gauge =
        MetricDescriptor { kind: Kind::Gauge, name: MetricName::new("memory.current").unwrap(), ..metric() };
    let column = Column { series: SeriesId(2), metric: (MetricId(2), gauge), labels: Labels::default() };
    shape.columns.push(column);
    (shape.period, shape.window) = (Period::MILLISECOND, Some(Period::SECOND));
    Arc::new(shape)
}

/// Frame of the session with windows of a counter and a gauge, one pair a second.
fn frame_of(sequence: u64, rows: &[[Summary; 2]], announced: &mut Announced) -> Frame {
    let shape = windowed();
    let mut dictionary = if sequence == 1 { vec![Entry::Session(descriptor())] } else { Vec::new() };
    announced.announce(&shape, &mut dictionary);
    let mut batch = Batch::default();
    let index = batch.add_shape(&shape);
    for (number, row) in (0..).zip(rows) {
        let packed = [row[0].pack(&shape.columns[0].metric.1), row[1].pack(&shape.columns[1].metric.1)];
        let parts: Vec<u64> = (0..PARTS).flat_map(|part| packed.map(|of| of[part])).collect();
        let instant = Instant { deadline: None, time_us: NOW_US + 1_000_000 * number };
        batch.push_windows(index, instant, &parts, &[]).unwrap();
    }
    let mut bytes = Vec::new();
    let extras = Extras { dictionary: &dictionary, ..Extras::default() };
    Encoder::default().encode(&mut bytes, SESSION, sequence, &batch, extras).unwrap();
    Frame::decode(&bytes).unwrap()
}

fn counter(last: u64, count: u64, rates: [f64; 2]) -> Summary {
    let [min, max] = rates.map(f64::to_bits);
    Summary { last, count, min, max, sum: 0 }
}

const fn gauge(last: u64, count: u64, min: u64, max: u64, sum: u64) -> Summary {
    Summary { last, count, min, max, sum }
}

fn opened() -> (Ingest, Announced) {
    let mut ingest = Ingest::default();
    assert!(ingest.open(SESSION, &peer(), 0, at(0)));
    (ingest, Announced::default())
}

const NAN: [f64; 2] = [f64::NAN; 2];

#[test]
fn windows_become_columns_beside_the_last_values() {
    let (mut ingest, mut announced) = opened();
    let rows = [
        [counter(7, 1000, [0.0, 250.0]), gauge(5, 1000, 1, 9, 4321)],
        [counter(8, 998, [1.0, 2.0]), gauge(6, 999, 6, 6, 5994)],
    ];
    let stored = accepted(ingest.frame(&peer(), frame_of(1, &rows, &mut announced), at(0)));
    let [block] = stored.samples.as_slice() else { panic!("{:?}", stored.samples) };
    assert_eq!((block.values.as_slice(), block.samples()), ([7, 8, 5, 6].as_slice(), 3997));
    let expected = WindowColumns {
        counts: vec![1000, 998, 1000, 999],
        min: vec![0.0, 1.0, 1.0, 6.0],
        max: vec![250.0, 2.0, 9.0, 6.0],
        sum: vec![0.0, 0.0, 4321.0, 5994.0],
    };
    assert_eq!(block.windows.as_ref(), Some(&expected));
}

#[test]
fn the_first_sample_of_a_counter_is_an_ordinary_one() {
    let (mut ingest, mut announced) = opened();
    let rows =
        [[counter(7, 1, NAN), gauge(5, 1, 5, 5, 5)], [counter(8, 100, [1.0, 2.0]), gauge(6, 100, 5, 6, 555)]];
    let stored = accepted(ingest.frame(&peer(), frame_of(1, &rows, &mut announced), at(0)));
    let found: Vec<_> = stored
        .samples
        .iter()
        .map(|block| (block.values.clone(), block.windows.as_ref().map(|windows| windows.counts.clone())))
        .collect();
    assert_eq!(
        found,
        [(vec![8, 6], Some(vec![100, 100])), (vec![7], None), (vec![5], Some(vec![1]))],
        "the row with rates, then the first one"
    );
    assert_eq!(stored.samples[1].times_us, [NOW_US]);
    assert!(
        stored.samples.iter().all(|block| block.series.len() * block.times_us.len() == block.values.len())
    );
}

#[test]
fn impossible_windows_are_lost_and_counted() {
    let (mut ingest, mut announced) = opened();
    let good = [counter(7, 10, [0.0, 1.0]), gauge(5, 10, 1, 9, 50)];
    accepted(ingest.frame(&peer(), frame_of(1, &[good], &mut announced), at(0)));
    let impossible = [
        [counter(7, 10, [3.0, 1.0]), good[1]],
        [counter(7, 10, [-1.0, 1.0]), good[1]],
        [counter(7, 10, [0.0, f64::INFINITY]), good[1]],
        [counter(7, 10, NAN), good[1]],
    ];
    for (sequence, row) in (2..).zip(impossible) {
        let mut next = frame_of(sequence, &[row], &mut announced);
        // A rate below 0 cannot be packed, but sent.
        if row[0].min == (-1.0_f64).to_bits() {
            next.blocks[0].windows.as_mut().unwrap().min[0] = u64::MAX >> 36;
        }
        let lost = rejected(ingest.frame(&peer(), next, at(0)));
        assert!(lost.samples.is_empty());
        assert_eq!(
            (lost.losses[0].samples, lost.losses[0].reason),
            (20, LossReason::Contradiction),
            "{row:?}"
        );
    }
    let mut none = frame_of(6, &[good], &mut announced);
    none.blocks[0].windows.as_mut().unwrap().counts[1] = 0;
    assert_eq!(rejected(ingest.frame(&peer(), none, at(0))).losses[0].samples, 10);
    // The largest value is below the last one, beyond the range of the number.
    let mut less = frame_of(7, &[good], &mut announced);
    less.blocks[0].windows.as_mut().unwrap().max[1] = 1_u64.wrapping_neg();
    assert_eq!(rejected(ingest.frame(&peer(), less, at(0))).losses[0].samples, 20);
    let mut raw = frame_of(8, &[good], &mut announced);
    raw.blocks[0].windows = None;
    assert_eq!(rejected(ingest.frame(&peer(), raw, at(0))).losses[0].samples, 2);
    accepted(ingest.frame(&peer(), frame_of(9, &[good], &mut announced), at(0)));
}

#[test]
fn untimely_windows_are_counted_by_their_samples() {
    let (mut ingest, mut announced) = opened();
    ingest.set_range(TimeRange { out_of_range: OutOfRangePolicy::Quarantine, ..TimeRange::default() });
    let row = |count| [counter(7, count, [0.0, 1.0]), gauge(5, count, 1, 9, 5 * count)];
    let mut next = frame_of(1, &[row(10), row(20)], &mut announced);
    next.blocks[0].times_us[0] = 0;
    let stored = accepted(ingest.frame(&peer(), next, at(0)));
    assert_eq!((stored.samples[0].samples(), stored.quarantined[0].samples()), (40, 20));
    assert_eq!(stored.quarantined[0].windows.as_ref().unwrap().counts, [10, 10]);
    assert_eq!(stored.out_of_range.unwrap().samples, 20);
}
