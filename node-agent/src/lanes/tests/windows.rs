//! Windows against the samples of the same reads, which another group sends each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::batch::{Column, Shape};
use polymeter_proto::catalogue;
use polymeter_proto::ledger::Tally;
use polymeter_proto::period::Sampling;
use polymeter_proto::series::{Identifier, Kind, Labels, MetricId, Number, SeriesId, ShapeId};
use polymeter_proto::units::{to_f64, whole};
use polymeter_proto::window::Summary;
use polymeter_proto::wire::frame::Block;

use super::support::{Received, Running};
use crate::clock;
use crate::lanes::{ActiveSource, Command, Group, SourceId, SourceKey};
use crate::sources::reader_thread::ThreadedSource;
use crate::sources::{CustomSource, Outcome, Reading, Slot, Source};

/// A gauge, a counter that begins anew at times, and a double that is absent at times.
const METRICS: [&str; 3] = ["memory.current", "cpu.usage", "node.load1"];

/// Values that change irregularly. Some reads take so long that deadlines are missed.
#[derive(Debug)]
struct VaryingSource {
    slots: Vec<Slot>,
    reads: u64,
    count: u64,
}

impl CustomSource for VaryingSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        self.reads += 1;
        let noise = self.reads.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        self.count = if self.reads.is_multiple_of(97) { 0 } else { self.count + noise % 1_000 * (noise % 3) };
        reading.clear();
        reading.set(0, 4096 * (noise % 500));
        reading.set(1, self.count);
        if !self.reads.is_multiple_of(7) {
            let value = Number::Signed.to_f64(noise.wrapping_sub(1 << 19)) / 3.0;
            reading.set(2, value.to_bits());
        }
        if self.reads % 41 == 40 {
            clock::sleep(Duration::from_millis(9));
        }
        Outcome::Read
    }
}

fn varying() -> Box<VaryingSource> {
    let slot = |name| Slot { definition: catalogue::find(name).unwrap(), labels: Labels::default() };
    Box::new(VaryingSource { slots: METRICS.map(slot).into(), reads: 0, count: 1_000_000 })
}

/// Group of all series of the source.
fn group(number: u32, sampling: &str) -> Group {
    let Sampling { period, window, .. } = sampling.parse().unwrap();
    let columns = (0..).zip(METRICS).map(|(column, name)| {
        let metric = (MetricId(column), catalogue::find(name).unwrap().descriptor().unwrap());
        Column { series: SeriesId(3 * number + column), metric, labels: Labels::default() }
    });
    let columns = columns.collect();
    let source = Identifier::try_from("varying").unwrap();
    let shape = Shape { id: ShapeId(number), job: None, source, period, window, columns };
    Group::new(Arc::new(shape), vec![0, 1, 2]).with_histograms(|_| true)
}

fn active(source: Source, groups: Vec<Group>) -> Box<ActiveSource> {
    let key = SourceKey { job: None, name: Identifier::try_from("varying").unwrap() };
    let source = ActiveSource::new(Arc::new(key), source, groups);
    Box::new(source.with_progress(|_| Arc::default()))
}

/// Samples of one series: times and bits.
type Samples = Vec<(i64, u64)>;

/// Samples of each metric that raw groups have sent, by time.
fn samples(received: &Received) -> [Samples; 3] {
    let mut samples: [Samples; 3] = Default::default();
    for (shape, block) in &received.blocks {
        if shape.window.is_some() {
            continue;
        }
        for (column, values) in block.iter() {
            samples[column].extend(block.times_us.iter().copied().zip(values.iter().copied()));
        }
    }
    samples.iter_mut().for_each(|samples| samples.sort_unstable());
    samples
}

#[derive(Debug)]
struct Row {
    shape: ShapeId,
    time_us: i64,
    /// Parts of each metric; none for an absent one.
    parts: [Option<[u64; 5]>; 3],
    /// Buckets of each metric, and their counts.
    histograms: [BTreeMap<u16, u64>; 3],
}

fn rows(received: &Received) -> Vec<Row> {
    let mut rows = Vec::new();
    for (shape, block) in received.blocks.iter().filter(|(shape, _)| shape.window.is_some()) {
        for (tick, time_us) in block.times_us.iter().enumerate() {
            let mut parts = [None; 3];
            for (position, column) in block.columns.iter().enumerate() {
                let at = position * block.times_us.len() + tick;
                let Block { values, windows: Some(windows), .. } = block else { panic!("no windows") };
                parts[*column] =
                    Some([values[at], windows.counts[at], windows.min[at], windows.max[at], windows.sum[at]]);
            }
            let mut histograms: [BTreeMap<u16, u64>; 3] = Default::default();
            let all = block.windows.iter().flat_map(|windows| &windows.histograms);
            for histogram in all.filter(|histogram| histogram.tick == tick) {
                histograms[block.columns[histogram.position]].extend(histogram.counts.iter().copied());
            }
            rows.push(Row { shape: shape.id, time_us: *time_us, parts, histograms });
        }
    }
    rows.sort_by_key(|row| row.time_us);
    rows
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-5 * expected.abs() + 1e-9
}

/// Tells whether a packed rate is that of the samples.
fn is_rate(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= expected / 2048.0
}

/// Compares a row with the samples of its window, which follow `before`.
fn compare(column: usize, parts: [u64; 5], inner: &[(i64, u64)], before: Option<&(i64, u64)>) {
    let metric = catalogue::find(METRICS[column]).unwrap().descriptor().unwrap();
    let found = Summary::unpack(parts, &metric);
    let last = metric.number.to_f64(inner.last().unwrap().1);
    assert_eq!((metric.number.to_f64(parts[0]), found.count), (last, inner.len() as u64));
    assert!(found.is_possible(&metric, last), "{found:?}");
    let values: Vec<f64> = inner.iter().map(|(_, bits)| metric.number.to_f64(*bits)).collect();
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if metric.kind == Kind::Gauge {
        assert_eq!((found.min, found.max), (least(&values), most(&values)));
        assert!(close(found.sum, values.iter().sum()), "{found:?} of {values:?}");
        return;
    }
    let points: Vec<(f64, f64)> = before
        .into_iter()
        .chain(inner)
        .map(|(time_us, bits)| (Number::Signed.to_f64(time_us.cast_unsigned()), metric.number.to_f64(*bits)))
        .collect();
    let rates: Vec<f64> =
        points.windows(2).map(|pair| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0) * 1e6).collect();
    assert!(rates.iter().all(|rate| *rate >= 0.0), "a counter never decreases: {rates:?}");
    if rates.is_empty() {
        assert!(found.is_raw(), "{found:?}");
    } else {
        assert!(is_rate(found.min, least(&rates)) && is_rate(found.max, most(&rates)), "{found:?} {rates:?}");
    }
}

/// Compares a histogram with the samples of its window, which follow `before`.
fn compare_histogram(
    column: usize,
    found: &BTreeMap<u16, u64>,
    inner: &[(i64, u64)],
    before: Option<&(i64, u64)>,
) {
    let metric = catalogue::find(METRICS[column]).unwrap().descriptor().unwrap();
    let values: Vec<f64> = if metric.kind == Kind::Gauge {
        inner.iter().map(|(_, bits)| metric.number.to_f64(*bits)).collect()
    } else {
        let points: Vec<_> = before.into_iter().chain(inner).collect();
        let rate = |pair: &[&(i64, u64)]| {
            let elapsed_us = (pair[1].0 - pair[0].0).max(1).unsigned_abs();
            to_f64(pair[1].1.saturating_sub(pair[0].1)) * 1e6 / to_f64(elapsed_us)
        };
        points.windows(2).map(rate).collect()
    };
    let mut expected: BTreeMap<u16, u64> = BTreeMap::new();
    for value in values {
        let value = value.round().max(0.0);
        // Four binary digits behind the first.
        let power = value.log2().floor() - 4.0;
        let bucket = if value < 32.0 { value } else { 16.0 * power + (value / power.exp2()).floor() };
        *expected.entry(u16::try_from(whole(bucket)).unwrap()).or_default() += 1;
    }
    assert_eq!(*found, expected, "{}", METRICS[column]);
}

/// Compares all rows with the samples of the same reads. Returns the number of rows.
fn compare_all(received: &Received, length_us: i64) -> usize {
    let (samples, rows) = (samples(received), rows(received));
    for (column, samples) in samples.iter().enumerate() {
        let mut from = 0;
        for row in &rows {
            let until = samples.partition_point(|(time_us, _)| *time_us <= row.time_us);
            let (inner, before) = (&samples[from..until], samples[..from].last());
            match row.parts[column] {
                Some(parts) => compare(column, parts, inner, before),
                None => assert!(inner.is_empty(), "{inner:?} in {row:?}"),
            }
            compare_histogram(column, &row.histograms[column], inner, before);
            from = until;
        }
        assert_eq!(from, samples.len(), "each sample is in a window");
    }
    for pair in rows.windows(2).filter(|pair| pair[0].shape == pair[1].shape) {
        // A late read belongs to the window of its deadline.
        let windows = pair[1].time_us / length_us - pair[0].time_us / length_us;
        assert!(windows >= 0, "{pair:?}");
    }
    rows.len()
}

#[test]
fn windows_are_those_of_the_samples_of_the_same_reads() {
    let mut running = Running::start();
    let groups = |number| vec![group(number, "1ms"), group(number + 1, "1ms/20ms")];
    running.command(Command::Add(SourceId(0), active(Source::Custom(varying()), groups(0))));
    running.command(Command::ReadNow(vec![SourceId(0)]));
    // Plans change in the middle of windows, and rates go on.
    for round in 1..6 {
        running.until("some windows", |received| {
            received.samples.get("varying").is_some_and(|samples| *samples >= 2_000 * u64::from(round))
        });
        running.command(Command::Regroup(SourceId(0), groups(2 * round)));
    }
    running.until("further windows", |received| received.samples["varying"] >= 14_000);
    let received = running.stop();
    let Tally { missed, absent, dropped, .. } = received.tally("varying");
    assert!(missed > 0 && absent > 0 && dropped == 0, "{:?}", received.tally("varying"));
    assert!(compare_all(&received, 20_000) > 50);
}

#[test]
fn windows_of_the_slow_lane_are_those_of_the_same_reads() {
    let mut running = Running::start();
    let source = Source::Threaded(ThreadedSource::start("varying", varying()).unwrap());
    let groups = |number| vec![group(number, "2ms"), group(number + 1, "2ms/10ms")];
    running.command(Command::Add(SourceId(0), active(source, groups(0))));
    for round in 1..4 {
        running.until("some windows", |received| {
            received.samples.get("varying").copied().unwrap_or_default() >= 600 * u64::from(round)
        });
        running.command(Command::Regroup(SourceId(0), groups(2 * round)));
    }
    running.until("further windows", |received| received.samples["varying"] >= 2_400);
    running.command(Command::Remove(SourceId(0)));
    running.until("the last report", |received| received.ended == ["varying"]);
    let received = running.stop();
    let rows = rows(&received);
    let counted = |row: &Row| row.parts.iter().flatten().map(|parts| parts[1]).sum::<u64>();
    let in_windows: u64 = rows.iter().map(counted).sum();
    let raw: usize = samples(&received).iter().map(Vec::len).sum();
    // Both groups miss the same deadlines, unless a read ends between theirs.
    assert!(in_windows.abs_diff(raw as u64) <= in_windows / 10, "{in_windows} {raw}");
    assert!(rows.len() > 20 && rows.iter().all(|row| counted(row) > 0));
}
