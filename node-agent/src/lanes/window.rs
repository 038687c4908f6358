//! Windows of a group: what its samples since the last row come to. Memory is taken once, when it is made.

use polymeter_proto::batch::{Batch, Full, Instant, Shape, ShapeIndex};
use polymeter_proto::histogram::{self, Histogram};
use polymeter_proto::series::{Kind, MetricDescriptor, Number};
use polymeter_proto::units;
use polymeter_proto::window::{PARTS, Summary};

/// The time of a series' last sample before the first one.
const NEVER_US: i64 = i64::MIN;

#[derive(Debug)]
pub(super) struct Window {
    /// Deadlines of samples in one window.
    deadlines: u64,
    length_us: u64,
    /// Number of the open window on the grid of its length; none before its first sample.
    number: Option<u64>,
    /// Time of the last sample.
    time_us: i64,
    series: Vec<Series>,
    /// Histograms of some series, by their columns.
    histograms: Vec<(u32, Histogram)>,
    /// Row of the window that ends, packed part by part.
    parts: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Series {
    kind: Kind,
    number: Number,
    /// Its last value is that of an earlier window, if it has no sample in this one.
    summary: Summary,
    last_us: i64,
}

impl Window {
    /// None for a shape whose rows are samples.
    pub(super) fn of(shape: &Shape) -> Option<Box<Self>> {
        let window = shape.window?;
        let series = shape.columns.iter().map(|column| Series::new(&column.metric.1));
        Some(Box::new(Self {
            deadlines: window.as_micros() / shape.period.as_micros(),
            length_us: window.as_micros(),
            number: None,
            time_us: 0,
            series: series.collect(),
            histograms: Vec::new(),
            parts: vec![0; PARTS * shape.columns.len()],
        }))
    }

    /// Gives the columns whose metrics `is_wanted` histograms.
    pub(super) fn add_histograms(&mut self, shape: &Shape, is_wanted: impl Fn(&str) -> bool) {
        let wanted = (0..).zip(&shape.columns).filter(|(_, column)| is_wanted(column.metric.1.name.as_str()));
        self.histograms = wanted.filter_map(|(column, _)| Some((column, histogram::empty()?))).collect();
    }

    /// Number of the window of a sample, and of one without a deadline by its time.
    fn number_at(&self, deadline: Option<u64>, time_us: i64) -> u64 {
        match deadline {
            Some(deadline) => deadline / self.deadlines,
            None => u64::try_from(time_us).unwrap_or(0) / self.length_us,
        }
    }

    /// True if a sample belongs to a later window than the open one.
    pub(super) fn is_over(&self, deadline: Option<u64>, time_us: i64) -> bool {
        self.number.is_some_and(|open| self.number_at(deadline, time_us) > open)
    }

    /// Adds a sample of each series, none where it is absent. Returns the number of present ones.
    pub(super) fn add(
        &mut self,
        deadline: Option<u64>,
        time_us: i64,
        values: impl Iterator<Item = Option<u64>>,
    ) -> u64 {
        let mut present = 0;
        let mut histograms = self.histograms.iter_mut().peekable();
        for ((column, series), value) in (0..).zip(&mut self.series).zip(values) {
            let histogram = histograms.next_if(|(of, _)| *of == column);
            let Some(value) = value else { continue };
            let added = series.add(value, time_us);
            if let (Some((_, histogram)), Some(value)) = (histogram, added) {
                // Each whole number has a bucket.
                histogram.increment(units::whole(value)).ok();
            }
            present += 1;
        }
        if present > 0 {
            self.number = self.number.or(Some(self.number_at(deadline, time_us)));
            self.time_us = time_us;
        }
        present
    }

    /// Number of samples in the open window.
    pub(super) fn samples(&self) -> u64 {
        self.series.iter().map(|series| series.summary.count).sum()
    }

    /// Appends the row of the open window. The window stays open if the batch is full.
    pub(super) fn push(&mut self, batch: &mut Batch, index: ShapeIndex, shape: &Shape) -> Result<(), Full> {
        let columns = self.series.len();
        for (position, (series, column)) in self.series.iter().zip(&shape.columns).enumerate() {
            let packed = series.summary.pack(&column.metric.1);
            let places = self.parts.iter_mut().skip(position).step_by(columns);
            places.zip(packed).for_each(|(place, part)| *place = part);
        }
        let instant = Instant { deadline: self.number, time_us: self.time_us };
        batch.push_windows(index, instant, &self.parts, &self.histograms)?;
        self.end();
        Ok(())
    }

    /// Ends the open window without a row.
    pub(super) fn end(&mut self) {
        self.number = None;
        self.series.iter_mut().for_each(Series::begin);
        self.histograms.iter_mut().for_each(|(_, histogram)| histogram.reset());
    }

    /// Lets the rates of counters begin at the last values of former windows, where `former` has the column
    /// of a column.
    pub(super) fn continue_from(&mut self, other: &Self, former: impl Fn(usize) -> Option<usize>) {
        for (column, series) in self.series.iter_mut().enumerate() {
            if let Some(of) = former(column).and_then(|column| other.series.get(column)) {
                (series.summary.last, series.last_us) = (of.summary.last, of.last_us);
            }
        }
    }
}

impl Series {
    fn new(metric: &MetricDescriptor) -> Self {
        let summary = Summary { last: 0, count: 0, min: 0, max: 0, sum: 0 };
        let mut series = Self { kind: metric.kind, number: metric.number, summary, last_us: NEVER_US };
        series.begin();
        series
    }

    const fn begin(&mut self) {
        let nothing = match self.kind {
            Kind::Counter => f64::NAN.to_bits(),
            Kind::Gauge => 0,
        };
        self.summary = Summary { count: 0, min: nothing, max: nothing, sum: 0, ..self.summary };
    }

    /// Returns the value of a gauge, or the rate of a counter; none for the first sample of that.
    fn add(&mut self, value: u64, time_us: i64) -> Option<f64> {
        let is_first = self.summary.count == 0;
        let added = match self.kind {
            Kind::Counter => self.add_rate(value, time_us),
            Kind::Gauge => {
                self.add_value(value, is_first);
                Some(self.number.to_f64(value))
            }
        };
        self.summary.last = value;
        self.summary.count += 1;
        self.last_us = time_us;
        added
    }

    fn add_rate(&mut self, value: u64, time_us: i64) -> Option<f64> {
        if self.last_us == NEVER_US {
            return None;
        }
        let last = self.summary.last;
        let increase = match self.number {
            Number::Unsigned => to_f64(value.saturating_sub(last)),
            Number::Signed | Number::Float => (self.number.to_f64(value) - self.number.to_f64(last)).max(0.0),
        };
        // Two reads within a microsecond are that far apart.
        let elapsed_us = time_us.saturating_sub(self.last_us).max(1).unsigned_abs();
        let rate = increase * 1e6 / to_f64(elapsed_us);
        let summary = &mut self.summary;
        // A minimum of NaN and a number is the number.
        summary.min = f64::from_bits(summary.min).min(rate).to_bits();
        summary.max = f64::from_bits(summary.max).max(rate).to_bits();
        Some(rate)
    }

    fn add_value(&mut self, value: u64, is_first: bool) {
        let summary = &mut self.summary;
        if is_first {
            (summary.min, summary.max, summary.sum) = (value, value, value);
            return;
        }
        match self.number {
            Number::Unsigned => {
                summary.min = summary.min.min(value);
                summary.max = summary.max.max(value);
                summary.sum = summary.sum.wrapping_add(value);
            }
            Number::Signed => {
                let signed = value.cast_signed();
                summary.min = summary.min.cast_signed().min(signed).cast_unsigned();
                summary.max = summary.max.cast_signed().max(signed).cast_unsigned();
                summary.sum = summary.sum.wrapping_add(value);
            }
            Number::Float => {
                let float = f64::from_bits(value);
                summary.min = f64::from_bits(summary.min).min(float).to_bits();
                summary.max = f64::from_bits(summary.max).max(float).to_bits();
                summary.sum = (f64::from_bits(summary.sum) + float).to_bits();
            }
        }
    }
}

const fn to_f64(value: u64) -> f64 {
    Number::Unsigned.to_f64(value)
}
