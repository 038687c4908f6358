//! Removal of what stands beside the samples of jobs and nodes: histograms of windows, kept intervals,
//! triggers that fired. They are kept as long as samples.

use super::old_rows::{ALL, IS_NOT_KEPT, OldRows};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::stop::Stop;

const IS_OF_NODE_OR_NOT_KEPT: &str =
    "(job_key IS NULL OR job_key NOT IN (SELECT job_key FROM kept_job WHERE until IS NULL OR until > {now}))";

const TABLES: [OldRows; 3] = [
    OldRows {
        table: "window_histogram",
        key: "time",
        of: "time < {before}",
        step_rows: 10_000,
        delete: &[("window_histogram", &["{step}", "time < {before}", IS_OF_NODE_OR_NOT_KEPT])],
        ..ALL
    },
    OldRows {
        table: "kept_interval",
        key: "ended",
        of: "ended < {before}",
        delete: &[("kept_interval", &["{step}", "ended < {before}", IS_NOT_KEPT])],
        ..ALL
    },
    OldRows {
        table: "trigger_firing",
        key: "time",
        of: "time < {before}",
        delete: &[("trigger_firing", &["{step}", "time < {before}", IS_NOT_KEPT])],
        ..ALL
    },
];

/// Removes the rows before `before_us`, in microseconds since the epoch.
pub(super) fn remove(
    connection: &mut dyn Connection,
    before_us: i64,
    now_us: i64,
    stop: &Stop,
) -> Result<(), DatabaseError> {
    for table in &TABLES {
        table.remove(connection, &[("{before}", before_us), ("{now}", now_us)], &[], stop)?;
    }
    Ok(())
}
