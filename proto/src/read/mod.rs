//! Reading from a store through the collector: queries as lines of JSON, their rows in binary frames. No I/O.
//!
//! ```text
//! {"verb":"read"}                          -> {"answer":"reading","version":1,"access":"own"}
//! {"query":"series","of":{"job":7}}        -> rows, rows, ..., end
//! {"query":"marks","job_key":7}            -> error
//! ```
//!
//! [`ReadRequest`](crate::control::ReadRequest) begins a session; `docs/reference/control.md` describes it.

mod block;
mod id_ranges;
mod query;
mod row_types;

pub use self::block::{Frame, FrameTooLong, LENGTH_BYTES, ReadError, frame_length};
pub use self::id_ranges::IdRanges;
pub use self::query::{JobFilter, JobOrder, JobsOf, Query, SampleSet, SeriesOwner, UsageGroup};
pub use self::row_types::{
    AgentRow, BucketRow, CpusRow, FiringRow, HistogramRow, JobMetricRow, JobNodeRow, JobRow, JobUsage,
    KeptIntervalRow, LedgerRow, LossRow, MarkRow, NoticeRow, PlanChangeRow, ReadRow, RefusedRow, Rollup,
    RowBlock, SampleRow, SampleWindow, SeriesRow, StackIntervalRow, StackNodeRow, StackRow, UsageRow,
};
