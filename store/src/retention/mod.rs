//! Retention: the time for which rows of samples and rollups are kept, and the parts that are removed at
//! once. Pure.

mod keep;
mod parts;
mod policy;
mod storage;

pub use self::keep::{InvalidKeep, Keep};
pub(crate) use self::parts::{Cutoffs, PartKind};
pub use self::parts::{Level, Part};
pub use self::policy::{LevelState, Retention};
pub(crate) use self::storage::level_sizes;
pub use self::storage::{LevelSize, Storage};
