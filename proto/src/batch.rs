//! Log of rows that the sampler appends without allocation. Encoding sorts it into blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::histogram::{self, Histogram};
use crate::limits;
use crate::period::{Period, Sampling};
use crate::series::{
    Identifier, JobDescriptor, JobHandle, Labels, MetricDescriptor, MetricId, SeriesId, ShapeDescriptor,
    ShapeId,
};
use crate::window::{COUNT_PART, PARTS};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub handle: JobHandle,
    pub descriptor: JobDescriptor,
}

/// One column of a shape: a series with its dictionary entries.
#[derive(Debug, Clone)]
pub struct Column {
    pub series: SeriesId,
    pub metric: (MetricId, MetricDescriptor),
    pub labels: Labels,
}

/// Series that are sampled together: one source, one job, one period.
#[derive(Debug, Clone)]
pub struct Shape {
    pub id: ShapeId,
    /// None for the node's own series.
    pub job: Option<Arc<Job>>,
    pub source: Identifier,
    /// Period of the samples.
    pub period: Period,
    /// Length of the windows that its rows summarise; none if each row is a sample.
    pub window: Option<Period>,
    pub columns: Vec<Column>,
}

impl Shape {
    pub fn descriptor(&self) -> ShapeDescriptor {
        ShapeDescriptor {
            source: self.source.clone(),
            inner_period: self.window.map(|_| self.period),
            series: self.columns.iter().map(|column| column.series).collect(),
        }
    }

    pub const fn sampling(&self) -> Sampling {
        Sampling { period: self.period, window: self.window, has_histogram: false }
    }

    /// Period of the rows.
    pub fn row_period(&self) -> Period {
        self.window.unwrap_or(self.period)
    }
}

/// Time at which a row's values were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instant {
    /// Number of the read, or of the window, on the grid of the rows' period; none for a read outside of the
    /// grid, such as a job's last one.
    pub deadline: Option<u64>,
    /// Microseconds since the epoch.
    pub time_us: i64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) shape: u32,
    pub(crate) instant: Instant,
    pub(crate) values_at: u32,
}

/// A bounded log of rows. Appending neither allocates nor blocks once the buffers have grown to their bounds.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) shapes: Vec<Arc<Shape>>,
    pub(crate) rows: Vec<Row>,
    pub(crate) values: Vec<u64>,
    /// Row and column of each absent value, in the order of the rows.
    pub(crate) absent: Vec<(u32, u32)>,
    /// Histograms of windows, in the order of the rows, then of the columns.
    pub(crate) histograms: Vec<RowHistogram>,
    /// Buckets with samples of the histograms, and their counts.
    pub(crate) buckets: Vec<(u16, u32)>,
    samples: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RowHistogram {
    pub(crate) row: u32,
    pub(crate) column: u32,
    pub(crate) buckets_at: u32,
    pub(crate) buckets: u32,
}

#[derive(Debug, Clone, Copy)]
pub struct Recorded<'a> {
    /// Index of its shape in [`Batch::shapes`].
    pub shape: usize,
    /// Microseconds since the epoch.
    pub time_us: i64,
    values: &'a [u64],
    absent: &'a [(u32, u32)],
}

impl Recorded<'_> {
    /// Returns the bits of a value, of a window the last one; none where it was absent.
    pub fn value(&self, column: usize) -> Option<u64> {
        let absent = self.absent.binary_search_by_key(&column, |(_, absent)| *absent as usize);
        self.values.get(column).copied().filter(|_| absent.is_err())
    }
}

/// Error of a batch without room for another row: flush it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the batch is full")]
pub struct Full;

/// Index of a shape in one batch; valid until that batch is cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapeIndex(u32);

impl Batch {
    pub fn with_capacity(values: usize) -> Self {
        Self {
            shapes: Vec::new(),
            rows: Vec::with_capacity(values / 8),
            values: Vec::with_capacity(values),
            absent: Vec::new(),
            histograms: Vec::with_capacity(values / 8),
            buckets: Vec::with_capacity(values / 8),
            samples: 0,
        }
    }

    pub fn add_shape(&mut self, shape: &Arc<Shape>) -> ShapeIndex {
        let index = u32::try_from(self.shapes.len()).unwrap_or(u32::MAX);
        self.shapes.push(Arc::clone(shape));
        ShapeIndex(index)
    }

    /// Appends a row: one value for each column of the shape, none where it was absent. Returns the number of
    /// present values. Appends nothing if the batch holds [`limits::BATCH_VALUES`] values.
    pub fn push(
        &mut self,
        shape: ShapeIndex,
        instant: Instant,
        values: impl Iterator<Item = Option<u64>>,
    ) -> Result<u64, Full> {
        self.check_room()?;
        let row = u32::try_from(self.rows.len()).map_err(|_too_many| Full)?;
        let values_at = self.values.len();
        let absent_before = self.absent.len();
        self.values.extend((0..).zip(values).map(|(column, value)| {
            value.unwrap_or_else(|| {
                self.absent.push((row, column));
                0
            })
        }));
        let present = (self.values.len() - values_at - (self.absent.len() - absent_before)) as u64;
        let values_at = u32::try_from(values_at).map_err(|_too_many| Full)?;
        self.rows.push(Row { shape: shape.0, instant, values_at });
        self.samples += present;
        Ok(present)
    }

    /// Appends a row without absent values, like [`Batch::push`] but by a plain copy.
    pub fn push_whole(&mut self, shape: ShapeIndex, instant: Instant, values: &[u64]) -> Result<u64, Full> {
        self.check_room()?;
        let values_at = u32::try_from(self.values.len()).map_err(|_too_many| Full)?;
        self.values.extend_from_slice(values);
        self.rows.push(Row { shape: shape.0, instant, values_at });
        self.samples += values.len() as u64;
        Ok(values.len() as u64)
    }

    /// Appends a row of windows, as [`crate::window::Summary::pack`] has them: all values of the first part,
    /// then all of the next, with the histograms of some columns. A series whose count is 0 was absent.
    /// Returns the number of samples in the windows.
    pub fn push_windows(
        &mut self,
        shape: ShapeIndex,
        instant: Instant,
        parts: &[u64],
        histograms: &[(u32, Histogram)],
    ) -> Result<u64, Full> {
        self.check_room()?;
        let row = u32::try_from(self.rows.len()).map_err(|_too_many| Full)?;
        let values_at = u32::try_from(self.values.len()).map_err(|_too_many| Full)?;
        let counts = counts_of(parts, parts.len() / PARTS);
        let absent = (0..).zip(counts).filter(|(_, count)| **count == 0);
        self.absent.extend(absent.map(|(column, _)| (row, column)));
        self.values.extend_from_slice(parts);
        self.rows.push(Row { shape: shape.0, instant, values_at });
        let samples = counts.iter().sum();
        self.samples += samples;
        for (column, histogram) in histograms {
            self.push_histogram(row, *column, histogram);
        }
        Ok(samples)
    }

    /// Appends a histogram that has samples.
    fn push_histogram(&mut self, row: u32, column: u32, histogram: &Histogram) {
        let from = self.buckets.len();
        self.buckets.extend(histogram::buckets(histogram));
        let (Ok(buckets_at), Ok(buckets)) = (u32::try_from(from), u32::try_from(self.buckets.len() - from))
        else {
            return;
        };
        if buckets > 0 {
            self.histograms.push(RowHistogram { row, column, buckets_at, buckets });
        }
    }

    /// Returns how many values have room.
    pub const fn room(&self) -> usize {
        limits::BATCH_VALUES.saturating_sub(self.values.len())
    }

    fn check_room(&self) -> Result<(), Full> {
        let has_room = self.values.len() < limits::BATCH_VALUES
            && self.rows.len() < limits::BLOCK_TICKS
            && self.buckets.len() < limits::BATCH_VALUES;
        if !has_room { Err(Full) } else { Ok(()) }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the number of samples, those in windows included, absent values not counted.
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    pub fn samples_by_shape(&self) -> Vec<u64> {
        let mut samples = vec![0_u64; self.shapes.len()];
        for row in &self.rows {
            let Some(shape) = self.shapes.get(row.shape as usize) else { continue };
            let Some(samples) = samples.get_mut(row.shape as usize) else { continue };
            *samples += match shape.window {
                None => shape.columns.len() as u64,
                Some(_) => {
                    let parts = self.values.get(row.values_at as usize..).unwrap_or_default();
                    counts_of(parts, shape.columns.len()).iter().sum()
                }
            };
        }
        for (row, _) in &self.absent {
            let Some(row) = self.rows.get(*row as usize) else { continue };
            let is_raw = self.shapes.get(row.shape as usize).is_some_and(|shape| shape.window.is_none());
            if let Some(samples) = samples.get_mut(row.shape as usize).filter(|_| is_raw) {
                *samples -= 1;
            }
        }
        samples
    }

    /// Returns the earliest and the latest time of the rows, in microseconds since the epoch.
    pub fn span_us(&self) -> Option<(i64, i64)> {
        let times = || self.rows.iter().map(|row| row.instant.time_us);
        times().min().zip(times().max())
    }

    pub fn shapes(&self) -> &[Arc<Shape>] {
        &self.shapes
    }

    pub fn recorded(&self) -> impl Iterator<Item = Recorded<'_>> {
        let mut absent_left = self.absent.as_slice();
        (0..).zip(&self.rows).map(move |(number, row): (u32, &Row)| {
            let of_row = absent_left.iter().take_while(|(row, _)| *row == number).count();
            let (absent, left) = absent_left.split_at_checked(of_row).unwrap_or_default();
            absent_left = left;
            let shape = row.shape as usize;
            let columns = self.shapes.get(shape).map_or(0, |shape| shape.columns.len());
            let from = row.values_at as usize;
            let values = self.values.get(from..from + columns).unwrap_or_default();
            Recorded { shape, time_us: row.instant.time_us, values, absent }
        })
    }

    /// Divides the rows by a property of their shapes, in one pass. Those of shapes without it are left out.
    pub fn divided<K: Ord + Copy>(&self, key: impl Fn(&Shape) -> Option<K>) -> BTreeMap<K, Self> {
        let mut parts: BTreeMap<K, Self> = BTreeMap::new();
        let mut places = Vec::with_capacity(self.shapes.len());
        for shape in &self.shapes {
            let place = key(shape).map(|key| (key, parts.entry(key).or_default().add_shape(shape)));
            places.push(place);
        }
        for (recorded, row) in self.recorded().zip(&self.rows) {
            let Some(Some((key, index))) = places.get(recorded.shape) else { continue };
            let Some(part) = parts.get_mut(key) else { continue };
            let values = (0..recorded.values.len()).map(|column| recorded.value(column));
            // A part has no more rows and values than the whole.
            part.push(*index, row.instant, values).ok();
        }
        parts
    }

    /// Appends the rows of another batch that are wanted by their shape and their time, in microseconds since
    /// the epoch. Returns false if this batch has become full: the rows behind are missing.
    pub fn append(&mut self, other: &Self, mut is_wanted: impl FnMut(&Shape, i64) -> bool) -> bool {
        let mut indexes: Vec<Option<ShapeIndex>> = vec![None; other.shapes.len()];
        for (recorded, row) in other.recorded().zip(&other.rows) {
            let Some(shape) = other.shapes.get(recorded.shape) else { continue };
            if !is_wanted(shape, recorded.time_us) {
                continue;
            }
            let Some(place) = indexes.get_mut(recorded.shape) else { continue };
            let index = match *place {
                Some(index) => index,
                None => *place.insert(self.index_of(shape)),
            };
            let values = (0..recorded.values.len()).map(|column| recorded.value(column));
            if self.push(index, row.instant, values).is_err() {
                return false;
            }
        }
        true
    }

    /// Index of a shape, which is added if necessary.
    fn index_of(&mut self, shape: &Arc<Shape>) -> ShapeIndex {
        let known = self.shapes.iter().position(|known| Arc::ptr_eq(known, shape));
        let known = known.and_then(|known| u32::try_from(known).ok()).map(ShapeIndex);
        known.unwrap_or_else(|| self.add_shape(shape))
    }

    /// Bytes of the buffers' capacity.
    pub fn capacity_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
            + self.values.capacity() * size_of::<u64>()
            + self.absent.capacity() * size_of::<(u32, u32)>()
            + self.histograms.capacity() * size_of::<RowHistogram>()
            + self.buckets.capacity() * size_of::<(u16, u32)>()
            + self.shapes.capacity() * size_of::<Arc<Shape>>()
    }

    /// Empties the batch, but keeps its buffers.
    pub fn clear(&mut self) {
        self.shapes.clear();
        self.rows.clear();
        self.values.clear();
        self.absent.clear();
        self.histograms.clear();
        self.buckets.clear();
        self.samples = 0;
    }
}

/// Returns the counts of a row of windows with `columns` series.
fn counts_of(parts: &[u64], columns: usize) -> &[u64] {
    parts.get(COUNT_PART * columns..(COUNT_PART + 1) * columns).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::MetricName;
    use crate::series::{Kind, Number, Unit};

    fn shape(id: u32, columns: u32) -> Arc<Shape> {
        let descriptor = MetricDescriptor {
            name: MetricName::new("test.metric").unwrap(),
            unit: Unit::Count,
            kind: Kind::Gauge,
            number: Number::Unsigned,
        };
        let columns = (0..columns)
            .map(|number| Column {
                series: SeriesId(number),
                metric: (MetricId(0), descriptor.clone()),
                labels: Labels::default(),
            })
            .collect();
        let source = Identifier::try_from("s").unwrap();
        Arc::new(Shape { id: ShapeId(id), source, job: None, period: Period::SECOND, window: None, columns })
    }

    #[test]
    fn rows_are_appended_by_shape_and_time() {
        let mut from = Batch::default();
        let (wide, narrow) = (from.add_shape(&shape(1, 3)), from.add_shape(&shape(2, 1)));
        let at = |time_us| Instant { deadline: Some(7), time_us };
        from.push(wide, at(10), [None, Some(7), None].into_iter()).unwrap();
        from.push(narrow, at(11), [Some(0)].into_iter()).unwrap();
        from.push_whole(wide, at(12), &[1, 2, 3]).unwrap();
        let mut into = Batch::default();
        assert!(into.append(&from, |shape, time_us| shape.id == ShapeId(1) && time_us < 12));
        assert!(into.append(&from, |shape, time_us| shape.id == ShapeId(1) && time_us >= 12));
        assert_eq!((into.shapes().len(), into.samples()), (1, 4));
        let read: Vec<_> = into.recorded().map(|row| (row.time_us, row.value(0), row.value(1))).collect();
        assert_eq!(read, [(10, None, Some(7)), (12, Some(1), Some(2))]);
        assert_eq!(into.rows[1].instant.deadline, Some(7));
        let parts = from.divided(|shape| (shape.id != ShapeId(2)).then_some(shape.id));
        assert_eq!(parts.keys().collect::<Vec<_>>(), [&ShapeId(1)]);
        let part = &parts[&ShapeId(1)];
        let read: Vec<_> = part.recorded().map(|row| (row.time_us, row.value(0), row.value(1))).collect();
        assert_eq!(read, [(10, None, Some(7)), (12, Some(1), Some(2))]);
    }

    #[test]
    fn recorded_rows_are_read_back() {
        let mut batch = Batch::default();
        let (wide, narrow) = (batch.add_shape(&shape(1, 3)), batch.add_shape(&shape(2, 1)));
        let at = |time_us| Instant { deadline: None, time_us };
        batch.push(wide, at(10), [None, Some(7), None].into_iter()).unwrap();
        batch.push(narrow, at(11), [Some(0)].into_iter()).unwrap();
        batch.push_whole(wide, at(12), &[1, 2, 3]).unwrap();
        batch.push(wide, at(13), [Some(4), None, Some(5)].into_iter()).unwrap();
        let read: Vec<_> = batch
            .recorded()
            .map(|row| (row.shape, row.time_us, [0, 1, 2].map(|column| row.value(column))))
            .collect();
        assert_eq!(
            read,
            [
                (0, 10, [None, Some(7), None]),
                (1, 11, [Some(0), None, None]),
                (0, 12, [Some(1), Some(2), Some(3)]),
                (0, 13, [Some(4), None, Some(5)]),
            ]
        );
    }
}
