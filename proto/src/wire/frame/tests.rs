//! Bytes of windows against those of their samples, and both decoded.

use std::sync::Arc;

use super::{Encoder, Extras, Frame};
use crate::batch::{Batch, Column, Instant, Shape};
use crate::name::MetricName;
use crate::period::Period;
use crate::series::{
    Identifier, Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId, SessionId, ShapeId, Unit,
};
use crate::window::{PARTS, Summary};

const PAGE: u64 = 4096;
const SAMPLES: usize = 1000;
const SECONDS: usize = 20;
const START_US: i64 = 1_790_000_000_000_000;

/// Random numbers below a bound, always the same.
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Series of a job as cgroup v1 has them, with a sample every millisecond: CPU time, and a `memory.stat` of
/// which half the lines repeat the others. The job allocates memory for tens of milliseconds, then frees it.
fn job() -> Vec<(Kind, Vec<u64>)> {
    let (mut noise, count) = (Noise(1), SAMPLES * SECONDS);
    let mut stat: Vec<(Kind, Vec<u64>)> = Vec::new();
    stat.extend((0..9).map(|_| (Kind::Gauge, vec![0; count])));
    stat.extend((1..4).map(|number| (Kind::Gauge, vec![number * 50 * PAGE; count])));
    for most in [2, 500, 7_000, 20] {
        let mut pages = 50;
        let samples = (0..count).map(|sample| {
            pages =
                if sample % 80 == 0 { 50 } else { pages + u64::from(sample % 80 < 30) * noise.below(most) };
            pages * PAGE
        });
        stat.push((Kind::Gauge, samples.collect()));
    }
    for (most, total) in [(400, 1_200_000), (500, 1_190_000), (300, 1_300_000), (1, 17)] {
        let mut total = total;
        let samples = (0..count).map(|sample| {
            total += u64::from(sample % 80 < 30) * noise.below(most);
            total
        });
        stat.push((Kind::Counter, samples.collect()));
    }
    let cpu = [700_000, 200_000, 500_000].map(|most| {
        let mut total_ns = 15_000_000_000;
        let samples = (0..count).map(|_| {
            total_ns += noise.below(most);
            total_ns
        });
        (Kind::Counter, samples.collect())
    });
    let again = stat.clone();
    stat.into_iter().chain(again).chain(cpu).collect()
}

fn shape(series: &[(Kind, Vec<u64>)], window: Option<Period>) -> Arc<Shape> {
    let column = |(number, (kind, _)): (u32, &(Kind, Vec<u64>))| {
        let name = MetricName::new(format!("test.m{number}")).unwrap();
        let metric = MetricDescriptor { name, unit: Unit::Count, kind: *kind, number: Number::Unsigned };
        Column { series: SeriesId(number), metric: (MetricId(number), metric), labels: Labels::default() }
    };
    let columns = (0..).zip(series).map(column).collect();
    let (source, period) = (Identifier::try_from("s").unwrap(), Period::from_micros(1000).unwrap());
    Arc::new(Shape { id: ShapeId(1), job: None, source, period, window, columns })
}

/// Summary of the samples from `from` on, which are a millisecond apart, and the one before.
fn summary(kind: Kind, samples: &[u64], from: usize) -> Summary {
    let of = &samples[from..from + SAMPLES];
    let (last, count) = (of[SAMPLES - 1], SAMPLES as u64);
    if kind == Kind::Gauge {
        let (min, max) = (*of.iter().min().unwrap(), *of.iter().max().unwrap());
        return Summary { last, count, min, max, sum: of.iter().sum() };
    }
    let rates =
        samples[from.saturating_sub(1)..from + SAMPLES].windows(2).map(|pair| (pair[1] - pair[0]) * 1000);
    let bits = |rate: Option<u64>| Number::Unsigned.to_f64(rate.unwrap()).to_bits();
    Summary { last, count, min: bits(rates.clone().min()), max: bits(rates.max()), sum: 0 }
}

fn encoded(encoder: &mut Encoder, batch: &Batch) -> (usize, Frame) {
    let mut bytes = Vec::new();
    encoder.encode(&mut bytes, SessionId(7), 100, batch, Extras::default()).unwrap();
    (bytes.len(), Frame::decode(&bytes).unwrap())
}

#[test]
fn windows_of_a_second_take_a_fiftieth_of_the_bytes_of_their_samples() {
    let series = job();
    let (raw_shape, window_shape) = (shape(&series, None), shape(&series, Some(Period::SECOND)));
    let (mut encoder, mut raw_bytes, mut window_bytes) = (Encoder::default(), 0, 0);
    for second in 0..SECONDS {
        let from = second * SAMPLES;
        let (mut raw, mut windows) = (Batch::default(), Batch::default());
        let (of_raw, of_windows) = (raw.add_shape(&raw_shape), windows.add_shape(&window_shape));
        for sample in from..from + SAMPLES {
            let number = START_US.cast_unsigned() / 1000 + sample as u64;
            let late_us = 14 + i64::try_from(sample * 7 % 5).unwrap();
            let instant =
                Instant { deadline: Some(number), time_us: (number * 1000).cast_signed() + late_us };
            let row: Vec<u64> = series.iter().map(|(_, samples)| samples[sample]).collect();
            raw.push_whole(of_raw, instant, &row).unwrap();
        }
        let packed: Vec<[u64; PARTS]> = series
            .iter()
            .zip(&window_shape.columns)
            .map(|((kind, samples), column)| summary(*kind, samples, from).pack(&column.metric.1))
            .collect();
        let parts: Vec<u64> = (0..PARTS).flat_map(|part| packed.iter().map(move |of| of[part])).collect();
        let number = START_US.cast_unsigned() / 1_000_000 + second as u64;
        let time_us = (number * 1_000_000).cast_signed() + 999_014;
        windows.push_windows(of_windows, Instant { deadline: Some(number), time_us }, &parts, &[]).unwrap();
        let (bytes, frame) = encoded(&mut encoder, &raw);
        assert_eq!(frame.samples(), (series.len() * SAMPLES) as u64);
        raw_bytes += bytes;
        let (bytes, frame) = encoded(&mut encoder, &windows);
        let block = &frame.blocks[0];
        let of = block.windows.as_ref().unwrap();
        let found =
            [&block.values, &of.counts, &of.min, &of.max, &of.sum].map(|part| part.as_slice()).concat();
        assert_eq!(found, parts);
        window_bytes += bytes;
    }
    assert!(window_bytes * 50 <= raw_bytes, "{window_bytes} bytes of windows, {raw_bytes} of samples");
}
