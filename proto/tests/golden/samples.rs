//! Frames of samples: every coding of a column, and every form of a block.

use std::sync::Arc;

use polymeter_proto::batch::{Batch, Instant, Shape};
use polymeter_proto::histogram;
use polymeter_proto::period::Period;
use polymeter_proto::series::{Kind, Number};
use polymeter_proto::window::{PARTS, Summary};
use polymeter_proto::wire::frame::{Encoder, Extras};

use super::common::{Wire, batch_of, shape};
use super::{Direction, Golden, LARGE_SESSION, T0};

/// Returns the tick `number` on the grid of `period_us`, `late_us` after its deadline.
pub(super) fn tick(number: u64, period_us: u64, late_us: i64) -> Instant {
    let deadline = T0.cast_unsigned() / period_us + number;
    Instant { deadline: Some(deadline), time_us: (deadline * period_us).cast_signed() + late_us }
}

const fn off_grid(time_us: i64) -> Instant {
    Instant { deadline: None, time_us }
}

/// Returns frame 1 with these columns. All ticks are 14 µs after the deadlines of a period of 1 ms.
fn columns(number: Number, columns: &[&[u64]]) -> Vec<u8> {
    let shape = shape(1, 1_000, &vec![number; columns.len()]);
    let ticks = columns.first().map_or(0, |column| column.len());
    let rows: Vec<_> = (0..ticks)
        .map(|position| {
            let values = columns.iter().map(|column| column.get(position).copied()).collect();
            (tick(position as u64, 1_000, 14), values)
        })
        .collect();
    Wire::default().encode(&batch_of(&shape, &rows))
}

fn unsigned(of: &[&[u64]]) -> Vec<u8> {
    columns(Number::Unsigned, of)
}

fn floats(of: &[f64]) -> Vec<u8> {
    let bits: Vec<u64> = of.iter().map(|value| value.to_bits()).collect();
    columns(Number::Float, &[&bits])
}

/// Returns frame 1 with a column of nines at these instants.
fn instants(period_us: u64, instants: &[Instant]) -> Vec<u8> {
    let shape = shape(2, period_us, &[Number::Unsigned]);
    let rows: Vec<_> = instants.iter().map(|instant| (*instant, vec![Some(9)])).collect();
    Wire::default().encode(&batch_of(&shape, &rows))
}

fn noise(bits: u32) -> impl FnMut() -> u64 {
    let mut state = 1_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> (64 - bits)
    }
}

/// Returns the readings of a clock that advances by 1 ms and some noise per tick, stops for a while, and
/// continues.
fn long_packed() -> Vec<u8> {
    let mut noise = noise(10);
    let mut at = 0;
    let clock: Vec<u64> = (0..300)
        .map(|tick| {
            at += if (129..=256).contains(&tick) { 5_000 } else { 1_000_000 + noise() };
            at
        })
        .collect();
    unsigned(&[&clock])
}

fn late_by_noise() -> Vec<u8> {
    let mut noise = noise(8);
    let ticks: Vec<Instant> =
        (0..150).map(|number| tick(number, 1_000, noise().cast_signed() - 100)).collect();
    instants(1_000, &ticks)
}

/// Ten columns, of which 1 and 8 are absent in some rows, and all in one row.
fn partial() -> Vec<u8> {
    let shape = shape(3, 1_000, &[Number::Unsigned; 10]);
    let rows: Vec<_> = (0..6)
        .map(|number| {
            let absent: &[u64] = match number {
                2 | 3 => &[1, 8],
                4 => &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
                _ => &[],
            };
            let values = (0..10).map(|column| (!absent.contains(&column)).then_some(column * 100 + number));
            (tick(number, 1_000, 14), values.collect())
        })
        .collect();
    Wire::default().encode(&batch_of(&shape, &rows))
}

/// One shape on the grid, interrupted by a read outside of the grid, and another shape.
pub(super) fn several_blocks() -> Vec<u8> {
    let first = shape(1, 1_000, &[Number::Unsigned, Number::Float]);
    let second = shape(70_000, 500_000, &[Number::Signed]);
    let mut batch = Batch::default();
    let (a, b) = (batch.add_shape(&first), batch.add_shape(&second));
    let float = |number: u32| (f64::from(number) / 4.0).to_bits();
    for number in 0..4 {
        let values = [Some(u64::from(number) * 4096), Some(float(number))];
        batch.push(a, tick(u64::from(number), 1_000, 20), values.into_iter()).unwrap();
    }
    batch.push(b, tick(0, 500_000, 9), [Some((-5_i64).cast_unsigned())].into_iter()).unwrap();
    batch.push(a, off_grid(T0 + 3_700), [Some(1), Some(float(1))].into_iter()).unwrap();
    batch.push(a, tick(4, 1_000, 21), [Some(5), Some(float(5))].into_iter()).unwrap();
    let mut bytes = Vec::new();
    Encoder::default().encode(&mut bytes, LARGE_SESSION, 300, &batch, Extras::default()).unwrap();
    bytes
}

/// Three series in windows of a second, with samples every millisecond: a gauge that changes, a counter, and
/// a double that is absent in the second window. With `lone` there is one row.
fn windows(is_lone: bool) -> Vec<u8> {
    let mut shape = Shape::clone(&shape(9, 1_000, &[Number::Unsigned, Number::Unsigned, Number::Float]));
    shape.window = Some(Period::SECOND);
    shape.columns[1].metric.1.kind = Kind::Counter;
    let rate = |rate: f64| rate.to_bits();
    let window = |number: u64| {
        let last = 8_192 + 4_096 * number;
        [
            Summary { last, count: 1_000, min: 4_096, max: last + 4_096, sum: 1_000 * last - 8_192 },
            Summary { last: 1 << 40, count: 999, min: rate(0.0), max: rate(1e9), sum: 0 },
            Summary {
                last: 1.5_f64.to_bits(),
                count: if number == 1 { 0 } else { 1_000 },
                min: 0.5_f64.to_bits(),
                max: 1.5_f64.to_bits(),
                sum: 1_250.25_f64.to_bits(),
            },
        ]
    };
    let shape = Arc::new(shape);
    let mut batch = Batch::default();
    let index = batch.add_shape(&shape);
    let mut histogram = histogram::empty().unwrap();
    for (value, count) in [(4_096, 499), (8_192, 500), (12_288, 1)] {
        histogram.add(value, count).unwrap();
    }
    let histograms = [(0, histogram)];
    for number in 0..if is_lone { 1 } else { 4 } {
        let series = shape.columns.iter().zip(window(number));
        let packed: Vec<_> = series.map(|(column, summary)| summary.pack(&column.metric.1)).collect();
        let parts: Vec<u64> = (0..PARTS).flat_map(|part| packed.iter().map(move |of| of[part])).collect();
        batch.push_windows(index, tick(number, 1_000_000, 999_014), &parts, &histograms).unwrap();
    }
    Wire::default().encode(&batch)
}

pub(super) fn modes() -> Vec<Golden> {
    const EXTREMES: [u64; 9] = [0, u64::MAX, 0, 1 << 63, (1 << 63) - 1, 1, 1 << 62, u64::MAX - 1, 1 << 31];
    let zeros: &[u64] = &[0; 3];
    let (a, b): (&[u64], &[u64]) = (&[5, 6, 8], &[1, 1, 4]);
    let far: Vec<&[u64]> = [a].into_iter().chain([zeros; 40]).chain([a]).collect();
    let frame = |name, bytes| (name, Direction::Frame, bytes);
    vec![
        frame("zeros", unsigned(&[zeros; 40])),
        frame("constant", unsigned(&[&[28_672; 4]])),
        frame("copy", unsigned(&[a, b, a, b, a, b])),
        frame("copy_far", unsigned(&far)),
        frame("runs", unsigned(&[&[100, 100, 100, 101, 99, 99]])),
        frame("runs_of_pages", unsigned(&[&[8_192, 12_288, 12_288, 4_096]])),
        frame("packed", unsigned(&[&[1_000, 2_003, 3_010, 4_011, 5_025, 6_026, 7_032, 8_041, 9_042]])),
        frame("packed_long", long_packed()),
        frame("level_runs", instants(1_000, &[14, 15, 14, 14, 16].map_ticks(1_000))),
        frame("level_packed", instants(1_000, &[14, 19, 17, 12, 16, 20, 13, 18, 15].map_ticks(1_000))),
        frame("level_packed_long", late_by_noise()),
        frame("xor", floats(&[20.5, 20.5, 20.5, 21.0, 20.5])),
        frame(
            "floats",
            floats(&[
                0.0,
                -0.0,
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                5e-324,
                f64::MAX,
                -1.5,
                0.1,
                0.1,
            ]),
        ),
        frame("extremes", unsigned(&[&EXTREMES, &[u64::MAX; 9], &EXTREMES])),
        frame("extremes_float", columns(Number::Float, &[&EXTREMES])),
    ]
}

trait MapTicks {
    fn map_ticks(&self, period_us: u64) -> Vec<Instant>;
}

impl<const N: usize> MapTicks for [i64; N] {
    fn map_ticks(&self, period_us: u64) -> Vec<Instant> {
        (0..).zip(self).map(|(number, late_us)| tick(number, period_us, *late_us)).collect()
    }
}

pub(super) fn times() -> Vec<Golden> {
    let frame = |name, bytes| (name, Direction::Frame, bytes);
    let with_gaps = [0, 1, 2, 5, 6].map(|number| tick(number, 1_000, 14));
    let extremes = [T0, i64::MIN, i64::MAX, 0, -1].map(off_grid);
    vec![
        frame("one_tick", instants(1_000, &[tick(0, 1_000, 14)])),
        frame("missing_deadlines", instants(1_000, &with_gaps)),
        frame("off_grid", instants(1_000, &[off_grid(T0), off_grid(T0 + 1_500), off_grid(T0 - 7)])),
        frame("off_grid_extremes", instants(1_000, &extremes)),
        frame("partial", partial()),
        frame("several_blocks", several_blocks()),
        frame("windows", windows(false)),
        frame("window", windows(true)),
    ]
}
