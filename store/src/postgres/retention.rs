//! Retention in PostgreSQL: chunks and partitions are dropped as a whole.
//!
//! Where a part contains rows of kept jobs, these are copied, and written back in place of all rows, in the
//! transaction that removes them. An interruption at any moment leaves all rows or those of the kept jobs. A
//! partition is emptied rather than dropped, since that locks only the partition itself.

use crate::StoreError;
use crate::backend::{Connection, Removal, Removed, Task};
use crate::error::{Context, DatabaseError};
use crate::removal::{record, remove_due};
use crate::retention::{Cutoffs, Level, Part, PartKind};
use crate::stop::Stop;
use crate::value::Value;

use super::parameters::set_locally;
use super::{continuous, kept, parts, rollup_tables};

/// Removes what the policy does not keep. A part that a query reads for long is tried again.
pub(super) const REMOVE: Task = Task {
    name: "drop old samples",
    rounds: 10,
    run: |connection, stop| remove_due(connection, stop, &REMOVAL),
};

pub(super) const REMOVAL: Removal = Removal { due, prepare, remove, finish: |_, _| Ok(()) };

const ACTION: &str = "drop old samples";

/// Range of a table that one transaction removes row by row.
const STEP_US: i64 = 7 * 86_400 * 1_000_000;

/// Returns the parts before the cutoffs, except for those that were reduced to the rows of the kept jobs
/// already.
fn due(connection: &mut dyn Connection, cutoffs: &Cutoffs) -> Result<Vec<Part>, StoreError> {
    let mut due: Vec<Part> = parts::list(connection).context(ACTION)?;
    due.retain(|part| cutoffs.include(part));
    if let Some(before_us) = cutoffs.of(Level::Hour) {
        due.extend(parts::rows_of_hours(connection, before_us).context(ACTION)?);
    }
    kept::mark(connection, &mut due).context(ACTION)?;
    Ok(due)
}

fn prepare(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    let is_owner = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'samples'::regclass";
    if !connection.select_one::<bool>(is_owner, &[]).context(ACTION)? {
        return Err(StoreError::Unusable(
            "cannot drop old samples: this user of the database does not own the tables; run a collector, or polymeter store prune, as their owner"
                .to_owned(),
        ));
    }
    if rollup_tables::exist(connection).context(ACTION)? {
        rollup_tables::complete(connection, stop)
    } else {
        continuous::complete(connection, stop)
    }
}

/// Removes a part in one transaction, or rows of a table in several.
fn remove(connection: &mut dyn Connection, part: &Part, stop: &Stop) -> Result<Removed, StoreError> {
    if stop.is_requested() {
        return Ok(Removed::Postponed);
    }
    if let PartKind::Rows(table) = part.kind {
        return remove_rows(connection, table, part, stop);
    }
    begin(connection).context(ACTION)?;
    let kept_jobs = kept::jobs_of(connection, part).context(ACTION)?;
    if !is_summarised(connection, part).context(ACTION)? {
        connection.commit().context(ACTION)?;
        return Ok(Removed::Postponed);
    }
    let part = &Part { kept_jobs, ..part.clone() };
    record(connection, part.level, part.end_us).context(ACTION)?;
    let kept_rows = if part.kept_jobs.is_empty() {
        kept::forget(connection, part).context(ACTION)?;
        drop_part(connection, part).context(ACTION)?;
        0
    } else {
        kept::reduce(connection, part, drop_part)?
    };
    connection.commit().context(ACTION)?;
    Ok(Removed::Done { kept_rows })
}

/// Begins a transaction that may read a whole part, but does not make others wait for its locks.
fn begin(connection: &mut dyn Connection) -> Result<(), DatabaseError> {
    connection.begin()?;
    for (name, value) in [
        ("enable_seqscan", "on"),
        ("enable_hashjoin", "on"),
        ("lock_timeout", "2s"),
        ("work_mem", "64MB"),
        // The rollups of this time are final.
        ("timescaledb.skip_cagg_invalidation", "on"),
        ("timescaledb.enable_direct_compress_insert", "on"),
    ] {
        set_locally(connection, name, value)?;
    }
    // A job that is kept from now on finds out what was removed before.
    connection.execute("LOCK TABLE kept_job IN SHARE MODE", &[])?;
    Ok(())
}

/// Returns true if the next level contains the rows of `part`. Continuous aggregates do after [`prepare`].
fn is_summarised(connection: &mut dyn Connection, part: &Part) -> Result<bool, DatabaseError> {
    let Some(next) = part.level.next() else { return Ok(true) };
    if !rollup_tables::exist(connection)? {
        return Ok(true);
    }
    let select = "SELECT computed_before >= $2 AND NOT EXISTS (SELECT FROM rollup_late WHERE time < $2) FROM rollup WHERE relation = $1";
    connection.select_one(select, &[next.relation().into(), Value::Time(part.end_us)])
}

/// Removes all rows of a part, whose name is from the catalogue. A partition remains if rows of kept jobs
/// return to it.
fn drop_part(connection: &mut dyn Connection, part: &Part) -> Result<(), DatabaseError> {
    let name = part.name.as_deref().unwrap_or_default();
    match &part.kind {
        PartKind::Chunk(_) => {
            let drop = format!(
                "SELECT CAST(drop_chunks('{}', older_than => {}, newer_than => {}) AS text)",
                part.level.relation(),
                parts::time(part.end_us),
                parts::time(part.begin_us)
            );
            connection.query(&drop, &[])?;
        }
        PartKind::Partition if part.kept_jobs.is_empty() => {
            connection.execute(&format!("DROP TABLE {name}"), &[])?;
        }
        PartKind::Partition => {
            connection.execute(&format!("TRUNCATE {name}"), &[])?;
        }
        PartKind::Rows(_) => {}
    }
    Ok(())
}

/// Removes rows of a table without partitions, in steps.
fn remove_rows(
    connection: &mut dyn Connection,
    table: &str,
    part: &Part,
    stop: &Stop,
) -> Result<Removed, StoreError> {
    let mut begin_us = part.begin_us;
    while begin_us < part.end_us {
        if stop.is_requested() {
            return Ok(Removed::Postponed);
        }
        let end_us = part.end_us.min(begin_us + STEP_US);
        let step = Part { begin_us, end_us, ..part.clone() };
        begin(connection).context(ACTION)?;
        connection.execute("SET LOCAL enable_seqscan = off", &[]).context(ACTION)?;
        let kept_jobs = kept::jobs_of(connection, &step).context(ACTION)?;
        record(connection, part.level, end_us).context(ACTION)?;
        kept::select_series(connection, &step, &kept_jobs).context(ACTION)?;
        let delete =
            format!("DELETE FROM {table} AS row WHERE {} AND NOT {}", parts::range(&step), kept::IS_KEPT);
        connection.execute(&delete, &[]).context(ACTION)?;
        connection.commit().context(ACTION)?;
        begin_us = end_us;
    }
    Ok(Removed::Done { kept_rows: 0 })
}
