//! Text of metrics that Prometheus and its relatives read: names, and pages in both formats.

mod names;
mod page;

pub use self::names::{JOB_INFO, LabelSet, Part, divisor, metric_name, unit_suffix};
pub use self::page::{Format, Page};
