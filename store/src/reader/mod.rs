//! Reading side of a store, for reports. The statements are the same for every backend.
//!
//! Each statement on samples states the time that contains them, as a constant, so that the planner excludes
//! other partitions and chunks. Rows of samples are streamed.

mod access;
mod agents;
mod clocks;
mod cover;
mod history;
mod jobs;
mod plan_changes;
mod queries;
mod read;
mod recorded_statements;
mod retention_state;
mod samples;
mod series;
mod shapes;
mod stacks;
mod usage;

pub use polymeter_proto::read::{
    AgentRow, BucketRow, CpusRow, FiringRow, HistogramRow, JobFilter, JobMetricRow, JobNodeRow, JobOrder,
    JobRow, JobUsage, JobsOf, KeptIntervalRow, LedgerRow, LossRow, MarkRow, NoticeRow, PlanChangeRow, Query,
    RefusedRow, Rollup, RowBlock, SampleRow, SampleSet, SampleWindow, SeriesOwner, SeriesRow,
    StackIntervalRow, StackNodeRow, StackRow, UsageGroup, UsageRow,
};

pub use self::access::{Access, GuardedReader};
pub use self::read::{Read, SeriesScope};
pub use self::recorded_statements::{ReadCancel, Reader};
pub use self::usage::FAILED_STATES;
