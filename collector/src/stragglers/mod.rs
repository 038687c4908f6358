//! Stragglers: nodes that are far from the median of the nodes of their job.
//!
//! ```text
//! committed frames -> sink (sinks/stragglers.rs) -> Watch -> Comparison of each job and rule -> Straggler
//!                                                                 |
//!                                                                 +--> NodeState of each node
//! ```
//!
//! Time is divided into intervals. The value of a node in an interval is the mean of a gauge, or the rate of
//! a counter. When the samples of an interval should have arrived, the values are compared with their
//! median. A node is a straggler if, in some successive intervals, its values were beyond the rule's
//! percentage of the median, and their distance was several times the usual one of the nodes of this job.
//!
//! The nodes of a job may send to several collectors. Each collector passes what it has of an interval to the
//! others, through the store (sinks/straggler_exchange.rs), and compares all nodes of those jobs of which it
//! has some: when one of them ends, the others know as much. The store lets one of them fire. A collector
//! whose part is missing is awaited for 5 s, in three intervals.
//!
//! The times of samples are the clock. Memory is constant for each rule, job and node.

mod comparison;
mod median;
mod node_state;
mod other_parts;
mod watch;

#[cfg(test)]
mod shared_simulation;
#[cfg(test)]
mod simulation;

use std::sync::Arc;

use polymeter_proto::series::Identifier;
use polymeter_proto::trigger::StragglerRule;
use polymeter_store::accepted::JobRecord;

pub(crate) use self::watch::{NODES, Watch};

/// A node that became a straggler.
#[derive(Debug, Clone)]
pub(crate) struct Straggler {
    /// The job, as one of its nodes announced it.
    pub(crate) job: Arc<JobRecord>,
    pub(crate) node: Identifier,
    pub(crate) rule: Arc<StragglerRule>,
    /// End of the last interval that was compared, in microseconds since the epoch.
    pub(crate) at_us: i64,
    pub(crate) why: String,
}
