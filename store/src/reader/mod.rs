//! The reading side of a store, for reports. The statements are the same for every backend.
//!
//! Each statement on samples states the time that contains them, as a constant, so that the planner excludes other
//! partitions and chunks. Rows of samples are streamed.

mod connection;
mod history;
mod jobs;
mod retention;
mod rows;
mod samples;
mod series;

pub use self::connection::Reader;
pub use self::rows::{
    BucketRow, JobFilter, JobRow, LedgerRow, LossRow, MarkRow, PlanChangeRow, RefusedRow, Rollup, SampleRow,
    SeriesRow, SeriesScope,
};
