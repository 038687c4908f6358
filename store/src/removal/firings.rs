//! Removal of triggers that fired. They are kept as long as samples.

use super::old_rows::{ALL, OldRows};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::stop::Stop;

const FIRINGS: OldRows = OldRows {
    table: "trigger_firing",
    key: "time",
    of: "time < {before}",
    delete: &[(
        "trigger_firing",
        &["{step} AND time < {before}
             AND job_key NOT IN (SELECT job_key FROM kept_job WHERE until IS NULL OR until > {now})"],
    )],
    ..ALL
};

/// Removes the firings before `before_us`, in microseconds since the epoch.
pub(super) fn remove(
    connection: &mut dyn Connection,
    before_us: i64,
    now_us: i64,
    stop: &Stop,
) -> Result<(), DatabaseError> {
    FIRINGS.remove(connection, &[("{before}", before_us), ("{now}", now_us)], &[], stop)?;
    Ok(())
}
