//! Removal of samples of rings. They are kept as long as those of the plan.

use polymeter_proto::units::counted;
use tracing::info;

use super::old_rows::{ALL, OldRows};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::stop::Stop;

/// Samples before `{before}`, without those of jobs that are kept at `{now}`.
const SAMPLES: OldRows = OldRows {
    table: "kept_sample",
    key: "time",
    of: "time < {before}",
    step_rows: 10_000,
    delete: &[(
        "kept_sample",
        &["{step} AND time < {before} AND series_id NOT IN (
         SELECT series_id FROM series WHERE job_key IN (
             SELECT job_key FROM kept_job WHERE until IS NULL OR until > {now}))"],
    )],
    ..ALL
};

/// Removes the samples before `before_us`, in microseconds since the epoch.
pub(super) fn remove(
    connection: &mut dyn Connection,
    before_us: i64,
    now_us: i64,
    stop: &Stop,
) -> Result<(), DatabaseError> {
    let times = [("{before}", before_us), ("{now}", now_us)];
    let removed = SAMPLES.remove(connection, &times, &[], stop)?;
    if removed > 0 {
        info!("removed {} of rings", counted(removed, "sample"));
    }
    Ok(())
}
