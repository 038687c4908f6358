//! Rows on their way to a file.

use std::sync::Arc;

use polymeter_store::reader::SampleWindow;

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
    /// Each window, with the number of its row.
    pub(crate) windows: Vec<(usize, SampleWindow)>,
}

impl Rows {
    /// Adds a sample, or a window of some. Successive rows of a series must share its texts.
    pub fn add(&mut self, series: &Arc<SeriesTexts>, time_us: i64, value: f64, window: Option<SampleWindow>) {
        self.windows.extend(window.map(|window| (self.values.len(), window)));
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

    /// Returns each series with its rows: times in microseconds since the epoch, values, and windows.
    pub fn series(
        &self,
    ) -> impl Iterator<Item = (&SeriesTexts, impl Iterator<Item = (i64, f64, Option<SampleWindow>)>)> {
        let mut rows = self.rows();
        self.runs()
            .map(move |(series, count)| (series, rows.by_ref().take(count).collect::<Vec<_>>().into_iter()))
    }

    fn rows(&self) -> impl Iterator<Item = (i64, f64, Option<SampleWindow>)> {
        let mut windows = self.windows.iter().peekable();
        self.times_us.iter().zip(&self.values).enumerate().map(move |(row, (time_us, value))| {
            let window = windows.next_if(|(of_row, _)| *of_row == row).map(|(_, window)| *window);
            (*time_us, *value, window)
        })
    }
}
