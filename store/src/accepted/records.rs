//! Records that frames refer to: sessions, jobs, series and lines of the ledger.

use std::sync::Arc;

use polymeter_proto::read::SampleWindow;
use polymeter_proto::series::{
    DEVICE_METRICS, Identifier, JOB_LABEL, JobDescriptor, JobHandle, Kind, Labels, MetricDescriptor, Number,
    SessionDescriptor, SessionId, served_node,
};

use super::store_id::StoreId;

#[derive(Debug)]
pub struct SessionRecord {
    pub id: SessionId,
    pub descriptor: SessionDescriptor,
}

#[derive(Debug)]
pub struct JobRecord {
    /// Session of the node; of a job that a device names, that of the device with the node of the job.
    pub session: Arc<SessionRecord>,
    /// The session's handle of the job. A job whose cgroups disappear and reappear gets a new handle each
    /// time.
    pub handle: JobHandle,
    pub descriptor: JobDescriptor,
    /// Key in the store, once committed.
    pub key: StoreId,
}

impl JobRecord {
    pub fn node(&self) -> &Identifier {
        &self.session.descriptor.node
    }
}

#[derive(Debug)]
pub struct SeriesRecord {
    /// Session of the node.
    pub session: Arc<SessionRecord>,
    pub metric: Arc<MetricDescriptor>,
    /// None for the node's own series.
    pub job: Option<Arc<JobRecord>>,
    /// Labels; the sessions of a collector share one copy.
    pub labels: Arc<Labels>,
    /// Id in the store, once committed.
    pub id: StoreId,
}

impl SeriesRecord {
    pub fn node(&self) -> &Identifier {
        &self.session.descriptor.node
    }

    /// Returns the node that the store has the series of: that of the job for one of a job.
    pub fn stored_node(&self) -> &Identifier {
        self.job.as_ref().map_or_else(|| self.node(), |job| job.node())
    }

    /// True for a series of a device whose labels name a job that it does not belong to. The jobs of a node
    /// must not have it: it stays with the agent that took it.
    pub fn names_other_job(&self) -> bool {
        let is_of_device = self.metric.name.as_str().starts_with(DEVICE_METRICS);
        is_of_device && self.job.is_none() && self.labels.get(JOB_LABEL).is_some()
    }

    /// Returns the other node that a series of a device is about.
    pub fn served_node(&self) -> Option<&str> {
        if self.job.is_some() || self.names_other_job() {
            return None;
        }
        served_node(self.node(), self.metric.name.as_str(), &self.labels)
    }
}

/// Line of the ledger: one source of one job, or of the node, in one session. It corresponds to one tally of
/// the agent, so that a later tally replaces an earlier one of the same counters, and never one of another
/// handle of the job.
#[derive(Debug)]
pub struct LedgerLine {
    pub session: Arc<SessionRecord>,
    /// None for the node's own sources.
    pub job: Option<Arc<JobRecord>>,
    /// Name of the source in its tallies.
    pub source: Identifier,
    /// Id in the store, once committed.
    pub id: StoreId,
}

impl LedgerLine {
    /// Returns the session's handle of the job; none for the node's own sources.
    pub fn handle(&self) -> Option<i64> {
        self.job.as_ref().map(|job| i64::from(job.handle.0))
    }
}

#[derive(Debug)]
pub struct SampleBlock {
    pub line: Arc<LedgerLine>,
    /// Series, with a column of `values` for each.
    pub series: Vec<Arc<SeriesRecord>>,
    /// Microseconds since the epoch.
    pub times_us: Vec<i64>,
    /// Bits of the values, column by column, each of `times_us.len()` values.
    pub values: Vec<u64>,
    /// None for samples that were sent each.
    pub windows: Option<WindowColumns>,
}

/// Summaries of the samples that windows had, one for each value of a block, in the same order. The value is
/// the last of its window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WindowColumns {
    /// Samples in the window, the last one included.
    pub counts: Vec<u64>,
    /// Smallest value; of a counter the smallest rate between two samples, per second.
    pub min: Vec<f64>,
    /// Largest value; of a counter the largest rate between two samples, per second.
    pub max: Vec<f64>,
    /// Sum of the values; without meaning for a counter.
    pub sum: Vec<f64>,
}

impl WindowColumns {
    /// Returns the summary of a value; none if there are fewer. A counter has no sum.
    fn get(&self, position: usize, is_counter: bool) -> Option<SampleWindow> {
        Some(SampleWindow {
            count: *self.counts.get(position)?,
            min: *self.min.get(position)?,
            max: *self.max.get(position)?,
            sum: if is_counter { f64::NAN } else { *self.sum.get(position)? },
        })
    }
}

/// Histogram of the samples of a window of a series, of a counter of its rates.
#[derive(Debug, Clone)]
pub struct HistogramRecord {
    pub series: Arc<SeriesRecord>,
    /// Time of the window's last sample, in microseconds since the epoch.
    pub time_us: i64,
    /// Buckets with samples, and their counts.
    pub counts: Vec<(u16, u64)>,
}

impl SampleBlock {
    /// Returns the number of samples; a window counts as those that it had.
    pub fn samples(&self) -> u64 {
        match &self.windows {
            None => self.values.len() as u64,
            Some(windows) => windows.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)),
        }
    }

    /// Returns each series with its rows: times in microseconds since the epoch, values, and windows.
    pub fn rows(
        &self,
    ) -> impl Iterator<Item = (&Arc<SeriesRecord>, impl Iterator<Item = (i64, f64, Option<SampleWindow>)>)>
    {
        let rows = self.times_us.len();
        self.iter().enumerate().map(move |(column, (series, samples))| {
            let windows = self.windows.as_ref();
            let is_counter = series.metric.kind == Kind::Counter;
            let rows = samples.enumerate().map(move |(row, (time_us, value))| {
                let window = windows.and_then(|windows| windows.get(column * rows + row, is_counter));
                (time_us, value, window)
            });
            (series, rows)
        })
    }

    /// Returns each series with its samples: times in microseconds since the epoch, and values.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<SeriesRecord>, impl Iterator<Item = (i64, f64)>)> {
        self.series.iter().zip(self.values.chunks_exact(self.times_us.len().max(1))).map(
            |(series, column)| {
                let number: Number = series.metric.number;
                let values = column.iter().map(move |bits| number.to_f64(*bits));
                (series, self.times_us.iter().copied().zip(values))
            },
        )
    }

    /// Returns the columns of the series for which `is_wanted` holds.
    #[must_use]
    pub fn with(&self, is_wanted: impl Fn(&SeriesRecord) -> bool) -> Self {
        let wanted: Vec<bool> = self.series.iter().map(|series| is_wanted(series)).collect();
        let rows = self.times_us.len();
        let series = self.series.iter().zip(&wanted).filter(|(_, wanted)| **wanted);
        Self {
            line: Arc::clone(&self.line),
            series: series.map(|(series, _)| Arc::clone(series)).collect(),
            times_us: self.times_us.clone(),
            values: columns(&self.values, rows, &wanted),
            windows: self.windows.as_ref().map(|windows| WindowColumns {
                counts: columns(&windows.counts, rows, &wanted),
                min: columns(&windows.min, rows, &wanted),
                max: columns(&windows.max, rows, &wanted),
                sum: columns(&windows.sum, rows, &wanted),
            }),
        }
    }

    /// Returns the times of the oldest and the newest sample, in microseconds since the epoch; none without
    /// samples.
    pub fn span_us(&self) -> Option<(i64, i64)> {
        let times = || self.times_us.iter().copied();
        times().min().zip(times().max())
    }
}

/// Returns the wanted columns of values, each of `rows` rows.
fn columns<T: Copy>(values: &[T], rows: usize, wanted: &[bool]) -> Vec<T> {
    let columns = values.chunks_exact(rows.max(1)).zip(wanted).filter(|(_, wanted)| **wanted);
    columns.flat_map(|(column, _)| column.iter().copied()).collect()
}
