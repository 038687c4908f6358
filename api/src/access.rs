//! The access of users to stored jobs.

use polymeter_store::reader::Access;

/// Returns the access of a user to stored jobs. The lookup of groups may take long.
pub type AccessOf = dyn Fn(u32) -> Access + Send + Sync;
