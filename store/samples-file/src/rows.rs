//! Rows on their way to a file.

use std::sync::Arc;

/// Texts that all samples of a series share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SeriesTexts {
    /// None for a series of a node.
    pub job_id: Option<String>,
    pub node: String,
    pub metric: String,
    pub unit: String,
    /// JSON object.
    pub labels: String,
}

/// Samples of one or more series, series by series.
#[derive(Debug, Default)]
pub struct Rows {
    /// Each series with its number of samples.
    runs: Vec<(Arc<SeriesTexts>, usize)>,
    /// Microseconds since the epoch.
    pub(crate) times_us: Vec<i64>,
    pub(crate) values: Vec<f64>,
}

impl Rows {
    /// Adds a sample. Successive samples of a series must share its texts.
    pub fn add(&mut self, series: &Arc<SeriesTexts>, time_us: i64, value: f64) {
        match self.runs.last_mut() {
            Some((last, count)) if Arc::ptr_eq(last, series) => *count += 1,
            _ => self.runs.push((Arc::clone(series), 1)),
        }
        self.times_us.push(time_us);
        self.values.push(value);
    }

    pub const fn len(&self) -> usize {
        self.values.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = (&SeriesTexts, usize)> {
        self.runs.iter().map(|(series, count)| (series.as_ref(), *count))
    }

    pub fn series(&self) -> impl Iterator<Item = (&SeriesTexts, impl Iterator<Item = (i64, f64)>)> {
        let mut samples = self.times_us.iter().copied().zip(self.values.iter().copied());
        self.runs().map(move |(series, count)| {
            (series, samples.by_ref().take(count).collect::<Vec<_>>().into_iter())
        })
    }
}
