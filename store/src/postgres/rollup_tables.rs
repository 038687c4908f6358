//! The rollups of a server without continuous aggregates: tables of computed buckets, and views that add the
//! samples behind them.
//!
//! The maintenance computes buckets in two transactions. The first one claims them: it waits for the writers
//! whose samples are not committed yet, for milliseconds. The second one computes them. A writer with
//! samples older than the claimed range records their times in the same transaction; the maintenance computes
//! those minutes again. Hence each committed sample was seen by the computation, or is recorded as late.

use std::collections::BTreeMap;

use super::citus;
use super::parameters::{hash_aggregation, set_locally};
use crate::StoreError;
use crate::accepted::Accepted;
use crate::backend::{Connection, Task};
use crate::bounds::stored_us;
use crate::error::{Context, DatabaseError};
use crate::row::TimeUs;
use crate::stop::Stop;
use crate::value::{Batch, Column, ColumnType, Value};

/// The advisory lock between writers and the claim of buckets.
const CLAIM_LOCK: i64 = super::server::SCHEMA_LOCK + 3;

/// The statements that create the tables and the views.
pub(super) const SCHEMA: &str = include_str!("../../schema/postgres/rollups_tables.sql");

/// Computes the buckets that were completed: a report aggregates the samples behind them, a million in half a
/// second.
pub(super) const COMPUTE: Task = Task { name: "compute the rollups", rounds: 1, run: compute };

/// Computes the buckets with late samples again.
pub(super) const COMPUTE_LATE: Task =
    Task { name: "add late samples to the rollups", rounds: 1, run: compute_late };

const COMPUTING: &str = "compute the rollups";
const COMPUTING_LATE: &str = "add late samples to the rollups";

const MINUTE_US: i64 = 60 * 1_000_000;
const HOUR_US: i64 = 60 * MINUTE_US;
const DAY_US: usize = 86_400_000_000;

/// The time after which buckets are computed. Samples arrive within a minute, except for those from a spool.
const DELAY: &str = "interval '1 min'";

/// The memory for buckets: half a million of them.
const MEMORY_MB: u32 = 256;

/// A relation of rollups.
struct Rollup {
    relation: &'static str,
    table: &'static str,
    /// The width of its buckets.
    width: &'static str,
    width_us: i64,
    /// The relation from which it is computed.
    source: &'static str,
    /// The aggregated columns of the source, in the order of the table.
    columns: &'static str,
    /// The range that one transaction computes.
    step_us: i64,
}

/// The rollups, each computed from the one before.
const ROLLUPS: [Rollup; 3] = [
    Rollup {
        relation: "samples_10s",
        table: "rollup_10s",
        width: "10 s",
        width_us: 10_000_000,
        source: "samples",
        columns: "sum(coalesce(count, 1))::int8, min(CASE WHEN sum IS NULL THEN value ELSE min END),
             max(CASE WHEN sum IS NULL THEN value ELSE max END),
             sum(coalesce(sum, value * coalesce(count, 1))),
             (min(ARRAY[date_part('epoch', time), value]))[2],
             (max(ARRAY[date_part('epoch', time), value]))[2],
             min(CASE WHEN sum IS NULL THEN min END), max(CASE WHEN sum IS NULL THEN max END)",
        step_us: 30 * MINUTE_US,
    },
    Rollup {
        relation: "samples_1min",
        table: "rollup_1min",
        width: "1 min",
        width_us: MINUTE_US,
        source: "rollup_10s",
        columns: "sum(count)::int8, min(min), max(max), sum(sum / count), count(*),
             (min(ARRAY[date_part('epoch', time), first]))[2],
             (max(ARRAY[date_part('epoch', time), last]))[2], min(rate_min), max(rate_max)",
        step_us: 6 * HOUR_US,
    },
    Rollup {
        relation: "samples_1h",
        table: "rollup_1h",
        width: "1 h",
        width_us: HOUR_US,
        source: "rollup_1min",
        columns: "sum(count)::int8, min(min), max(max), sum(sum), sum(parts)::int8,
             (min(ARRAY[date_part('epoch', time), first]))[2],
             (max(ARRAY[date_part('epoch', time), last]))[2], min(rate_min), max(rate_max)",
        step_us: 7 * 24 * HOUR_US,
    },
];

/// Returns true if the database has the tables.
pub(super) fn exist(connection: &mut dyn Connection) -> Result<bool, DatabaseError> {
    connection.select_one("SELECT to_regclass('rollup_late') IS NOT NULL", &[])
}

/// Records the times of samples whose buckets are claimed already. Until the end of the transaction no
/// further buckets are claimed.
pub(super) fn record_late(
    connection: &mut dyn Connection,
    frames: &[&Accepted],
) -> Result<(), DatabaseError> {
    const SPAN: [Column; 2] = [("oldest", ColumnType::Time), ("newest", ColumnType::Time)];
    let times = frames.iter().flat_map(|frame| &frame.samples).flat_map(|samples| &samples.times_us);
    let mut hours: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for time_us in times.map(|time_us| stored_us(*time_us)) {
        let (oldest, newest) = hours.entry(time_us / HOUR_US).or_insert((time_us, time_us));
        (*oldest, *newest) = (time_us.min(*oldest), time_us.max(*newest));
    }
    if hours.is_empty() {
        return Ok(());
    }
    connection.execute("SELECT pg_advisory_xact_lock_shared($1)", &[CLAIM_LOCK.into()])?;
    connection.execute_batch(
        "INSERT INTO rollup_late (time)
         SELECT unnest(ARRAY[oldest, least(newest, claimed_before - interval '1 us')]) FROM {new}, rollup
         WHERE relation = 'samples_10s' AND oldest < claimed_before",
        &Batch::new(&SPAN, hours.into_values().map(|(oldest, newest)| [oldest, newest].map(Value::Time))),
    )?;
    Ok(())
}

/// Computes all buckets that are complete, also those with late samples.
pub(super) fn complete(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    compute(connection, stop)?;
    compute_late(connection, stop)
}

/// Computes the buckets that were completed since the last time, in steps, the oldest first.
fn compute(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    if computed_before(connection, &ROLLUPS[0])?.is_none() && !begin(connection)? {
        return Ok(());
    }
    for (position, rollup) in ROLLUPS.iter().enumerate() {
        let source = position.checked_sub(1).and_then(|source| ROLLUPS.get(source));
        while !stop.is_requested() && compute_step(connection, rollup, source)? {}
    }
    Ok(())
}

/// Returns the begin of the first bucket of a rollup that is not computed; none before the first computation.
fn computed_before(connection: &mut dyn Connection, rollup: &Rollup) -> Result<Option<i64>, StoreError> {
    let select =
        "SELECT CASE WHEN isfinite(computed_before) THEN computed_before END FROM rollup WHERE relation = $1";
    let TimeUs(before_us) = connection.select_one(select, &[rollup.relation.into()]).context(COMPUTING)?;
    Ok(before_us)
}

/// Lets the computation begin with the hour of the oldest sample. Returns false if there are no samples.
fn begin(connection: &mut dyn Connection) -> Result<bool, StoreError> {
    let Some(found_us) = oldest_hour(connection)? else { return Ok(false) };
    // Older samples that are written from now on are late. The second look finds those written meanwhile.
    claim(connection, found_us).context(COMPUTING)?;
    let begin_us = oldest_hour(connection)?.map_or(found_us, |again_us| again_us.min(found_us));
    let update = "UPDATE rollup SET computed_before = $1 WHERE NOT isfinite(computed_before)";
    connection.execute(update, &[Value::Time(begin_us)]).context(COMPUTING)?;
    Ok(true)
}

/// Returns the begin of the hour of the oldest sample; none if there are no samples.
fn oldest_hour(connection: &mut dyn Connection) -> Result<Option<i64>, StoreError> {
    // Partitions are in the order of their names, chunks of a hypertable are not.
    let parts = "SELECT format('%I.%I', nspname, relname), relispartition FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
         JOIN pg_namespace ON pg_namespace.oid = relnamespace
         WHERE inhparent = 'samples'::regclass AND relkind = 'r' ORDER BY relname";
    let mut begin_us = None;
    for (part, is_partition) in connection.select::<(String, bool)>(parts, &[]).context(COMPUTING)? {
        let oldest = format!("SELECT date_bin('1 h', min(time), 'epoch') FROM {part}");
        let TimeUs(oldest_us): TimeUs<Option<i64>> =
            connection.select_one(&oldest, &[]).context(COMPUTING)?;
        begin_us = begin_us.into_iter().chain(oldest_us).min();
        if is_partition && begin_us.is_some() {
            break;
        }
    }
    Ok(begin_us)
}

/// Computes the next buckets of a rollup from `source`, or from the samples. Returns false if there are none.
fn compute_step(
    connection: &mut dyn Connection,
    rollup: &Rollup,
    source: Option<&Rollup>,
) -> Result<bool, StoreError> {
    let Some(begin_us) = computed_before(connection, rollup)? else { return Ok(false) };
    let complete_us = match source {
        Some(source) => computed_before(connection, source)?,
        None => {
            let now = format!("SELECT now() - {DELAY}");
            let TimeUs(complete_us) = connection.select_one(&now, &[]).context(COMPUTING)?;
            Some(complete_us)
        }
    };
    let complete_us = complete_us.unwrap_or(begin_us) / rollup.width_us * rollup.width_us;
    if complete_us <= begin_us {
        return Ok(false);
    }
    let end_us = step_end(connection, rollup, begin_us, complete_us).context(COMPUTING)?;
    let compute = |connection: &mut dyn Connection| -> Result<(), DatabaseError> {
        if source.is_none() {
            claim(connection, end_us)?;
        }
        connection.begin()?;
        // Samples may have arrived before the claim.
        if has_rows(connection, rollup, begin_us, end_us)? {
            replace(connection, rollup, begin_us, end_us)?;
        }
        let update = "UPDATE rollup SET computed_before = $2 WHERE relation = $1";
        connection.execute(update, &[rollup.relation.into(), Value::Time(end_us)])?;
        connection.commit()
    };
    compute(connection).context(COMPUTING)?;
    Ok(true)
}

/// Returns the end of the range that the next transaction computes: a step if it has rows. A range without
/// rows is passed over at once.
fn step_end(
    connection: &mut dyn Connection,
    rollup: &Rollup,
    begin_us: i64,
    complete_us: i64,
) -> Result<i64, DatabaseError> {
    let (mut from_us, mut end_us) = (begin_us, complete_us.min(begin_us + rollup.step_us));
    while !has_rows(connection, rollup, from_us, end_us)? {
        from_us = end_us;
        if end_us == complete_us {
            break;
        }
        end_us = complete_us.min(end_us + (end_us - begin_us));
    }
    Ok(if from_us == begin_us { end_us } else { from_us })
}

/// Returns true if the source of a rollup has rows in a range.
fn has_rows(
    connection: &mut dyn Connection,
    rollup: &Rollup,
    begin_us: i64,
    end_us: i64,
) -> Result<bool, DatabaseError> {
    // Citus refuses a subquery without columns.
    let exists = format!("SELECT EXISTS (SELECT 1 FROM {} WHERE time >= $1 AND time < $2)", rollup.source);
    connection.select_one(&exists, &[Value::Time(begin_us), Value::Time(end_us)])
}

/// Claims the buckets before `end_us`: samples that are written from now on are late there.
fn claim(connection: &mut dyn Connection, end_us: i64) -> Result<(), DatabaseError> {
    connection.begin()?;
    // A writer that does not commit must not make all others wait behind this one.
    connection.execute("SET LOCAL lock_timeout = '2s'", &[])?;
    connection.execute("SELECT pg_advisory_xact_lock($1)", &[CLAIM_LOCK.into()])?;
    connection.execute(
        "UPDATE rollup SET claimed_before = greatest(claimed_before, $1) WHERE relation = 'samples_10s'",
        &[Value::Time(end_us)],
    )?;
    connection.commit()
}

/// Computes the buckets of a range, and replaces those that are there.
fn replace(
    connection: &mut dyn Connection,
    rollup: &Rollup,
    begin_us: i64,
    end_us: i64,
) -> Result<(), DatabaseError> {
    let Rollup { table, width, source, columns, .. } = rollup;
    let range = [Value::Time(begin_us), Value::Time(end_us)];
    for part_us in (begin_us..end_us).step_by(DAY_US).chain([end_us - 1]) {
        connection.execute("SELECT polymeter_create_rollup_partitions($1)", &[Value::Time(part_us)])?;
    }
    connection.execute(&format!("DELETE FROM {table} WHERE time >= $1 AND time < $2"), &range)?;
    for (name, value) in hash_aggregation(MEMORY_MB) {
        set_locally(connection, name, &value)?;
    }
    // Where samples are distributed, each shard computes the buckets of its nodes: Citus cannot combine these
    // aggregates.
    let is_distributed = *source == "samples" && citus::has_functions(connection)?;
    let key = if is_distributed { "node_key, " } else { "" };
    let insert = format!(
        "INSERT INTO {table} SELECT series_id, date_bin('{width}', time, 'epoch'), {columns}
         FROM {source} WHERE time >= $1 AND time < $2 GROUP BY {key}1, 2"
    );
    connection.execute(&insert, &range)?;
    Ok(())
}

/// Computes the hours with late samples again.
fn compute_late(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    let hours = "SELECT DISTINCT date_bin('1 h', time, 'epoch') FROM rollup_late
         WHERE time < (SELECT computed_before FROM rollup WHERE relation = 'samples_10s') ORDER BY 1";
    for TimeUs(hour_us) in connection.select(hours, &[]).context(COMPUTING_LATE)? {
        if stop.is_requested() {
            break;
        }
        compute_hour(connection, hour_us).context(COMPUTING_LATE)?;
    }
    Ok(())
}

/// Computes the minutes of an hour from the first to the last one with late samples, and the hour.
fn compute_hour(connection: &mut dyn Connection, hour_us: i64) -> Result<(), DatabaseError> {
    connection.begin()?;
    // The records of writers that are not committed yet remain, and their minutes are computed again.
    let range = [Value::Time(hour_us), Value::Time(hour_us + HOUR_US)];
    let delete = "DELETE FROM rollup_late WHERE time >= $1 AND time < $2 RETURNING time";
    let late: Vec<TimeUs<i64>> = connection.select(delete, &range)?;
    let times = || late.iter().map(|TimeUs(time_us)| *time_us);
    let Some((first_us, last_us)) = times().min().zip(times().max()) else { return connection.commit() };
    for rollup in &ROLLUPS {
        let begin_us = first_us - first_us.rem_euclid(rollup.width_us);
        let end_us = last_us - last_us.rem_euclid(rollup.width_us) + rollup.width_us;
        // The end of the buckets to compute again; none if their samples were removed.
        let end = "SELECT least($2, computed_before) FROM rollup WHERE relation = $1 AND coalesce(final_before, '-infinity') <= $3
             AND computed_before > $3";
        let parameters = [rollup.relation.into(), Value::Time(end_us), Value::Time(begin_us)];
        let Some(TimeUs(end_us)) = connection.select_first(end, &parameters)? else { break };
        replace(connection, rollup, begin_us, end_us)?;
    }
    connection.commit()
}
