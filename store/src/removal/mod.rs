//! Retention of a store: its policy, and the removal of what the policy does not keep.
//!
//! The policy is in the table `retention`, where the collector writes it, so that all programs see the same
//! one. A part, such as a chunk or a partition, is removed in one transaction, together with the record that
//! its time is gone.

pub(crate) mod clock_check;
mod kept_samples;
pub(crate) mod metadata;
mod old_rows;
pub(crate) mod requests;
mod rows_of_jobs;
mod stacks;
mod state;

use tracing::info;

use self::old_rows::{ALL, OldRows};
pub(crate) use self::state::{now_us, states};
use polymeter_proto::units::counted;

use crate::StoreError;
use crate::backend::{Connection, Removal, Removed};
use crate::error::{Context, DatabaseError};
use crate::retention::{Cutoffs, Level, LevelState, Part, Retention};
use crate::row::from_row;
use crate::stop::Stop;
use crate::value::Value;

/// Samples in quarantine that arrived before `{before}`, without those of jobs that are kept at `{now}`.
/// Their times say nothing about their age.
const QUARANTINE: OldRows = OldRows {
    table: "samples_quarantine",
    key: "series_id",
    of: "series_id > -1",
    is_old: "received < {before}",
    step_rows: 10_000,
    delete: &[(
        "samples_quarantine",
        &["{step} AND received < {before} AND series_id NOT IN (
         SELECT series_id FROM series WHERE job_key IN (
             SELECT job_key FROM kept_job WHERE until IS NULL OR until > {now}))"],
    )],
    ..ALL
};

/// Writes the policy into the store. Returns the previous one if it was another one.
pub(crate) fn write(
    connection: &mut dyn Connection,
    retention: &Retention,
) -> Result<Option<Retention>, StoreError> {
    let before = Retention::of_states(&states(connection)?);
    if before == *retention {
        return Ok(None);
    }
    const ACTION: &str = "store the retention policy";
    connection.begin().context(ACTION)?;
    for level in Level::ALL {
        let update = "UPDATE retention SET keep_days = CAST($2 AS bigint) WHERE relation = CAST($1 AS text)";
        let days = retention.of(level).days();
        connection.execute(update, &[level.relation().into(), days.into()]).context(ACTION)?;
        if retention.of(level) > before.of(level) {
            // Rows that the previous policy did not keep may be added from now on.
            let update = "UPDATE retention SET complete_before = NULL WHERE relation = $1";
            connection.execute(update, &[level.relation().into()]).context(ACTION)?;
        }
    }
    connection.commit().context(ACTION)?;
    Ok(Some(before))
}

from_row!(LevelState { level, keep, dropped_before_us: TimeUs });

/// Returns the times before which the policy of the store removes rows at `time_us`.
pub(crate) fn cutoffs(connection: &mut dyn Connection, time_us: i64) -> Result<Cutoffs, StoreError> {
    Ok(Retention::of_states(&states(connection)?).cutoffs(time_us))
}

pub(crate) fn remove_due(
    connection: &mut dyn Connection,
    stop: &Stop,
    removal: &Removal,
) -> Result<(), StoreError> {
    let time_us = clock_check::time_us(connection)?;
    let cutoffs = cutoffs(connection, time_us)?;
    remove_before(connection, stop, removal, &cutoffs, |_, _| ())
}

/// Removes what lies before `cutoffs`, and passes the result of each part to `each`.
pub(crate) fn remove_before(
    connection: &mut dyn Connection,
    stop: &Stop,
    removal: &Removal,
    cutoffs: &Cutoffs,
    mut each: impl FnMut(&Part, Removed),
) -> Result<(), StoreError> {
    if cutoffs.is_empty() {
        return Ok(());
    }
    let mut is_complete = true;
    if !(removal.due)(connection, cutoffs)?.is_empty() {
        (removal.prepare)(connection, stop)?;
        // The completion of the rollups may have made further old parts.
        for part in (removal.due)(connection, cutoffs)? {
            if stop.is_requested() {
                break;
            }
            let removed = (removal.remove)(connection, &part, stop)?;
            is_complete &= removed != Removed::Postponed;
            log(&part, removed);
            each(&part, removed);
        }
        (removal.finish)(connection, stop)?;
    }
    if let Some(before_us) = cutoffs.of(Level::Samples) {
        let now_us = clock_check::time_us(connection)?;
        let times = [("{before}", before_us), ("{now}", now_us)];
        let removed = QUARANTINE.remove(connection, &times, &[], stop);
        let removed = removed.context("remove samples in quarantine")?;
        if removed > 0 {
            info!("removed {} in quarantine", counted(removed, "sample"));
        }
        stacks::remove(connection, before_us, now_us, stop).context("remove call stacks")?;
        kept_samples::remove(connection, before_us, now_us, stop).context("remove samples of rings")?;
        rows_of_jobs::remove(connection, before_us, now_us, stop)
            .context("remove histograms, kept intervals and triggers that fired")?;
    }
    if is_complete && !stop.is_requested() {
        record_complete(connection, cutoffs)?;
    }
    Ok(())
}

fn log(part: &Part, removed: Removed) {
    let Removed::Done { kept_rows } = removed else { return };
    let name = part.name.as_deref().unwrap_or("old rows");
    let relation = part.level.relation();
    if kept_rows > 0 {
        info!("dropped {name} of {relation}, except for {} of kept jobs", counted(kept_rows, "row"));
    } else {
        info!("dropped {name} of {relation}");
    }
}

/// Records that rows of a level before `end_us` are removed: the next level is not computed again there.
pub(crate) fn record(
    connection: &mut dyn Connection,
    level: Level,
    end_us: i64,
) -> Result<(), DatabaseError> {
    let dropped = "UPDATE retention SET dropped_before = greatest(dropped_before, $2) WHERE relation = $1";
    connection.execute(dropped, &[level.relation().into(), Value::Time(end_us)])?;
    if let Some(next) = level.next() {
        let done = "UPDATE rollup SET final_before = greatest(final_before, $2) WHERE relation = $1";
        connection.execute(done, &[next.relation().into(), Value::Time(end_us)])?;
    }
    Ok(())
}

/// Records that nothing is left before `done`, as far as the policy admits no older rows any more.
fn record_complete(connection: &mut dyn Connection, done: &Cutoffs) -> Result<(), StoreError> {
    const ACTION: &str = "record the end of the removal";
    let time_us = clock_check::time_us(connection)?;
    let policy = cutoffs(connection, time_us)?;
    let recorded = progress(connection)?;
    for level in Level::ALL {
        let Some(before_us) = done.of(level).zip(policy.of(level)).map(|(done, policy)| done.min(policy))
        else {
            continue;
        };
        if recorded.iter().any(|of| of.level == level && of.complete_us >= Some(before_us)) {
            continue;
        }
        let update = "UPDATE retention SET complete_before = $2 WHERE relation = $1";
        connection.execute(update, &[level.relation().into(), Value::Time(before_us)]).context(ACTION)?;
    }
    Ok(())
}

/// Progress of the removal of a level, in microseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) level: Level,
    /// Time before which rows were removed, or are being removed.
    pub(crate) dropped_us: Option<i64>,
    /// Time before which no row is left, except for those of kept jobs.
    pub(crate) complete_us: Option<i64>,
}

from_row!(Progress { level, dropped_us: TimeUs, complete_us: TimeUs });

pub(crate) fn progress(connection: &mut dyn Connection) -> Result<Vec<Progress>, StoreError> {
    let select = "SELECT relation, dropped_before, complete_before FROM retention";
    connection.select(select, &[]).context("read the retention policy")
}
