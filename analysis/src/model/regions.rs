//! Regions of instrumented programs in a report.

use serde::Serialize;

/// Sums over all processes of the job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RegionReport {
    pub region: String,
    pub entries: u64,
    /// Summed over threads.
    pub time_s: f64,
    /// Time in the region, but in none inside it, summed over threads.
    pub self_s: f64,
    /// Share of `time_s` in the time of the job, times the threads that entered the region.
    pub run_percent: Option<f64>,
    pub processes: u64,
    /// Threads of these processes that entered it.
    pub threads: u64,
    /// Largest time of a thread over the mean of its process, in the process where it is largest; none
    /// without a process of several threads.
    pub thread_imbalance: Option<f64>,
    /// Spread of `self_s`; none for a single rank.
    pub ranks: Option<RegionSpread>,
}

/// Spread of the time in a region among the ranks of a job, or among its processes if they have no rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RegionSpread {
    /// Includes ranks that did not enter the region.
    pub count: u64,
    pub least_s: f64,
    pub mean_s: f64,
    pub most_s: f64,
    /// Such as `rank 3`, or `process 731 on n1`.
    pub most: String,
}
