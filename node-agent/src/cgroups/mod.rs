//! Control groups: their mount points, the patterns of jobs' cgroups, and the cgroups of steps and tasks.

pub mod hierarchy;
pub mod pattern;
pub mod steps;
mod subdirectories;

pub use hierarchy::JobCgroups;
pub use pattern::{Captured, InvalidPattern, Pattern};
pub use polymeter_service::cgroup_mounts::{Mounts, all_roots};
pub use steps::{SeenSteps, Step, StepAdmission, StepCounts};
pub(crate) use subdirectories::subdirectories;
