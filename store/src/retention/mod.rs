//! Retention: the time for which rows of samples and rollups are kept, and the parts that are removed at
//! once. Pure.

mod keep;
mod partition_sizes;
mod policy;
mod storage;

pub use self::keep::{InvalidKeep, Keep};
pub(crate) use self::partition_sizes::{Cutoffs, PartKind};
pub use self::partition_sizes::{Level, Part};
pub use self::policy::{LevelState, Retention};
pub(crate) use self::storage::level_sizes;
pub use self::storage::{LevelSize, Storage};
