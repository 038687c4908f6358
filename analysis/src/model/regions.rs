//! The regions of instrumented programs in a report.

use serde::Serialize;

/// A region, over all processes of the job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RegionReport {
    /// Its name.
    pub region: String,
    pub entries: u64,
    /// Time in the region, in seconds, summed over threads.
    pub time_s: f64,
    /// Time in the region, but in none inside it, in seconds, summed over threads.
    pub self_s: f64,
    /// The share of `time_s` in the time of the job, times the threads that entered the region, in percent.
    pub run_percent: Option<f64>,
    /// The processes that entered it.
    pub processes: u64,
    /// Their threads that entered it.
    pub threads: u64,
    /// The largest time of a thread over the mean of its process, in the process where it is largest; none
    /// without a process of several threads.
    pub thread_imbalance: Option<f64>,
    /// The spread of `self_s` among the ranks; none for a single one.
    pub ranks: Option<RegionSpread>,
}

/// The spread of the time in a region among the ranks of a job, or among its processes if they have no rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RegionSpread {
    /// The number of ranks, those included that did not enter the region.
    pub count: u64,
    /// The least, in seconds.
    pub least_s: f64,
    /// The mean, in seconds.
    pub mean_s: f64,
    /// The most, in seconds.
    pub most_s: f64,
    /// The rank with the most, such as `rank 3`, or `process 731 on n1`.
    pub most: String,
}
