//! Removal of histograms of windows. They are kept as long as samples.

use super::old_rows::{ALL, OldRows};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::stop::Stop;

const HISTOGRAMS: OldRows = OldRows {
    table: "window_histogram",
    key: "time",
    of: "time < {before}",
    step_rows: 10_000,
    delete: &[(
        "window_histogram",
        &["{step} AND time < {before}
             AND job_key NOT IN (SELECT job_key FROM kept_job WHERE until IS NULL OR until > {now})"],
    )],
    ..ALL
};

/// Removes the histograms before `before_us`, in microseconds since the epoch.
pub(super) fn remove(
    connection: &mut dyn Connection,
    before_us: i64,
    now_us: i64,
    stop: &Stop,
) -> Result<(), DatabaseError> {
    HISTOGRAMS.remove(connection, &[("{before}", before_us), ("{now}", now_us)], &[], stop)?;
    Ok(())
}
