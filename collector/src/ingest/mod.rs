//! Rules for accepting frames: each once, in order, and with known ids. Pure: no I/O and no clock.
//!
//! The state of a session is a cache. It begins after the last stored frame, and its dictionary can be
//! requested again. Any session can be removed when all its accepted frames are committed.

mod cost;
mod dictionary;
mod fault;
mod id_table;
mod memory;
mod metric_units;
mod resolve;
mod served_series;
mod session;
mod sessions;
mod shared_rules;
mod stack_table;
mod stacks;
#[cfg(test)]
mod tests;
mod times;
mod user_series;
mod verdict;
mod windows;

pub(crate) use self::metric_units::{Measure, MetricUnits, RefusedMetric};
pub use self::served_series::DeviceAgents;
pub(crate) use self::served_series::ServedSeries;
pub use self::sessions::{Ingest, session_of};
pub(crate) use self::times::micros;
pub use self::times::{OutOfRangePolicy, TimeRange, UnknownPolicy};
pub(crate) use self::user_series::UserSeries;
pub use self::verdict::{Rejection, Verdict};
