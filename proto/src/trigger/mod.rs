//! Triggers: rules that say when something happens to a job, and what is done then.
//!
//! Rules are data, of the site (`[[trigger]]` in the agent's configuration) or of a job's owner
//! (`polymeter trigger add`, or a request at submission). A site's rules about stragglers are in the
//! collector's configuration. [`Rule::parse`] checks one, once and in whole: a rule that it returns can be
//! evaluated without a further error.

mod condition;
mod reason;
mod request;
mod rule;
mod straggler;

pub use condition::{Comparison, Condition, InvalidCondition, JobEvent, MetricTest, Test};
pub use reason::{AT_TIME_LIMIT, OOM_KILL, OUT_OF_MEMORY, event_of, exit_status, signal, xid};
pub use request::{InvalidTrigger, TRIGGER_WORD};
pub use rule::{Rule, RuleFault, RuleFields, STACKS_METRIC};
pub use straggler::{Side, StragglerRule, StragglerTest};

/// Metric by which the evaluation notices that the kernel killed a process for lack of memory.
pub const OOM_METRIC: &str = "memory.events.oom_kill";

/// Metrics by which the evaluation notices errors of GPUs: of the node, whose GPUs have jobs, or of a job.
pub const XID_METRIC: &str = "node.gpu.xid.errors";
pub const JOB_XID_METRIC: &str = "gpu.xid.errors";

/// Metrics with the number of the last error of a GPU.
pub const XID_NUMBER_METRICS: [&str; 2] = ["node.gpu.xid.last", "gpu.xid.last"];
