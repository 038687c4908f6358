//! Recorded frames: the data that an agent has sent, kept in a file so that they can be encoded again with
//! other settings.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use polymeter_proto::batch::{Batch, Column, Instant, Shape};
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Labels, MetricDescriptor, MetricId, SeriesDescriptor, SeriesId, ShapeDescriptor, ShapeId,
};
use polymeter_proto::wire::DecodeError;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::Frame;

/// Recorded job: 10 s of memory.stat, cpu.stat and software perf events at 1 ms.
pub const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/job-1ms.frames");

#[derive(Debug, Clone)]
pub struct Row {
    pub shape: Arc<Shape>,
    pub instant: Instant,
    pub values: Vec<Option<u64>>,
}

#[derive(Debug)]
pub enum RecordingError {
    Read(std::io::Error),
    Frame(DecodeError),
    /// Truncated, or with ids that the file does not define.
    Incomplete,
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Frame(error) => error.fmt(f),
            Self::Incomplete => f.write_str("the recording is incomplete"),
        }
    }
}

impl std::error::Error for RecordingError {}

/// Reads the frames of a file. Each is stored as its length in bytes (four bytes, little-endian), followed by
/// the frame.
pub fn frames(path: &Path) -> Result<Vec<Vec<u8>>, RecordingError> {
    let bytes = std::fs::read(path).map_err(RecordingError::Read)?;
    let mut rest = bytes.as_slice();
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (len, behind) = rest.split_first_chunk::<4>().ok_or(RecordingError::Incomplete)?;
        let len = u32::from_le_bytes(*len) as usize;
        let (frame, behind) = behind.split_at_checked(len).ok_or(RecordingError::Incomplete)?;
        frames.push(frame.to_vec());
        rest = behind;
    }
    Ok(frames)
}

/// Reads all rows of a recording, ordered by time.
pub fn rows(path: &Path) -> Result<Vec<Row>, RecordingError> {
    let mut dictionary = Dictionary::default();
    let mut rows = Vec::new();
    for bytes in frames(path)? {
        let frame = Frame::decode(&bytes).map_err(RecordingError::Frame)?;
        frame.dictionary.iter().for_each(|entry| dictionary.learn(entry));
        for block in &frame.blocks {
            let shape = dictionary.shape(block.shape).ok_or(RecordingError::Incomplete)?;
            for (tick, time_us) in block.times_us.iter().enumerate() {
                let mut values = vec![None; block.shape_columns];
                for (column, of_column) in block.iter() {
                    if let (Some(value), Some(read)) = (values.get_mut(column), of_column.get(tick)) {
                        *value = Some(*read);
                    }
                }
                let deadline = u64::try_from(*time_us).unwrap_or(0) / shape.period.as_micros();
                let instant = Instant { deadline: Some(deadline), time_us: *time_us };
                rows.push(Row { shape: Arc::clone(&shape), instant, values });
            }
        }
    }
    rows.sort_by_key(|row| row.instant.time_us);
    Ok(rows)
}

pub fn batches(rows: &[Row], ticks: i64) -> Vec<Batch> {
    let by_time =
        rows.chunk_by(|a, b| a.instant.time_us / 1_000 / ticks == b.instant.time_us / 1_000 / ticks);
    by_time
        .map(|rows| {
            let mut batch = Batch::default();
            let mut known = BTreeMap::new();
            for row in rows {
                let index = *known.entry(row.shape.id).or_insert_with(|| batch.add_shape(&row.shape));
                // A batch of one second at 1 ms is within the size limits.
                batch.push(index, row.instant, row.values.iter().copied()).ok();
            }
            batch
        })
        .collect()
}

#[derive(Debug, Default)]
struct Dictionary {
    metrics: BTreeMap<MetricId, MetricDescriptor>,
    series: BTreeMap<SeriesId, SeriesDescriptor>,
    shapes: BTreeMap<ShapeId, ShapeDescriptor>,
    built: BTreeMap<ShapeId, Arc<Shape>>,
}

impl Dictionary {
    fn learn(&mut self, entry: &Entry) {
        match entry {
            Entry::Session(_) | Entry::Job(..) | Entry::Function(..) | Entry::Stack(..) => {}
            Entry::Metric(id, metric) => drop(self.metrics.insert(*id, metric.clone())),
            Entry::Series(id, series) => drop(self.series.insert(*id, series.clone())),
            Entry::Shape(id, shape) => drop(self.shapes.insert(*id, shape.clone())),
        }
    }

    fn shape(&mut self, id: ShapeId) -> Option<Arc<Shape>> {
        if !self.built.contains_key(&id) {
            let columns: Option<Vec<Column>> = self
                .shapes
                .get(&id)?
                .series
                .iter()
                .map(|series| {
                    let metric = self.series.get(series)?.metric;
                    Some(Column {
                        series: *series,
                        metric: (metric, self.metrics.get(&metric)?.clone()),
                        labels: Labels::default(),
                    })
                })
                .collect();
            let period = Period::from_micros(1_000).ok()?;
            let source = self.shapes.get(&id)?.source.clone();
            self.built.insert(
                id,
                Arc::new(Shape { id, job: None, source, period, window: None, columns: columns? }),
            );
        }
        self.built.get(&id).cloned()
    }
}
