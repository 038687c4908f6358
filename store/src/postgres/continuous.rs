//! The rollups of a hypertable: continuous aggregates, which the maintenance refreshes.
//!
//! The server's own policies are not used: the scheduler of TimescaleDB 2.28 fails on PostgreSQL 15.20. The
//! server logs which times were written behind the refreshed range, so that late samples are added by the
//! next refresh of the whole range.

use tracing::info;

use super::parameters::{hash_aggregation, set};
use crate::StoreError;
use crate::backend::{Connection, Task};
use crate::error::Context;
use crate::stop::Stop;

/// The statements that create the aggregates, empty at first.
pub(super) const SCHEMA: &str = include_str!("../../schema/postgres/rollups_continuous.sql");

/// Refreshes all that was written since the last refresh, however old.
pub(super) const REFRESH_ALL: Task = Task { name: "refresh the rollups", rounds: 10, run: complete };

/// Refreshes the buckets of 10 s that were completed since the last refresh: a report aggregates the samples
/// behind them, three million in a second.
pub(super) const REFRESH_FINEST: Task = Task {
    name: "refresh the recent rollups of 10 s",
    rounds: 1,
    run: |connection, stop| refresh(connection, stop, RECENT, 1),
};

/// Refreshes the buckets that were completed since the last refresh. To refresh those of a minute costs
/// a third of a second for each 40 million samples of the day: the server looks for samples that the finer
/// aggregate lacks.
pub(super) const REFRESH_RECENT: Task = Task {
    name: "refresh the recent rollups",
    rounds: 5,
    run: |connection, stop| refresh(connection, stop, RECENT, AGGREGATES.len()),
};

/// Compresses the chunks of rollups that no longer grow.
pub(super) const COMPRESS: Task = Task { name: "compress rollups", rounds: 60, run: compress };

/// Refreshes all buckets that are complete.
pub(super) fn complete(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    refresh(connection, stop, ALL, AGGREGATES.len())
}

const REFRESHING: &str = "refresh the rollups";

/// The aggregates, each computed from the one before, with the number of buckets that one transaction
/// refreshes at least (half an hour of samples), and at most (a day, a week of hours). A transaction costs
/// tens of milliseconds whatever it refreshes.
const AGGREGATES: [(&str, u64, u64); 3] =
    [("samples_10s", 180, 8640), ("samples_1min", 180, 1440), ("samples_1h", 168, 168)];

/// The memory for buckets: 250,000 of them, in 250 MB. The planner estimates 16 kB for the states of `first`
/// and `last`; a bucket takes 1 kB.
const MEMORY_MB: u32 = 4000;

/// The size of the samples that one transaction refreshes: a few million if they are compressed.
const BATCH_BYTES: u64 = 16 << 20;

/// Returns the size of the largest day of samples.
const DAY_BYTES: &str = "SELECT coalesce(max(total_bytes), 0)::int8 FROM chunks_detailed_size('samples')";

/// Returns the range of all buckets of the aggregate `$1` that may change, as text: to those that are
/// complete except for samples that are still on their way, for a minute at most.
const ALL: &str = "SELECT CAST(rollup.final_before AS text), CAST(now() - interval '1 min' AS text)
     FROM rollup WHERE relation = $1";

/// Returns the range of the buckets of the aggregate `$1` that were completed since its last refresh, as
/// text; no row if there are none. Before the first refresh that is all of them: a new store has rollups
/// within minutes.
const RECENT: &str = "SELECT CAST(CASE WHEN refreshed > '1970-01-01' THEN refreshed ELSE rollup.final_before END AS text), CAST(complete AS text)
     FROM timescaledb_information.continuous_aggregates
     JOIN rollup ON rollup.relation = view_name
     JOIN _timescaledb_catalog.continuous_agg ON user_view_schema = view_schema AND user_view_name = view_name
     CROSS JOIN LATERAL (SELECT _timescaledb_functions.to_timestamp(_timescaledb_functions.cagg_watermark(mat_hypertable_id)) AS refreshed) AS mark
     CROSS JOIN LATERAL (SELECT now() - interval '1 min' AS complete) AS until
     WHERE view_schema = current_schema() AND view_name = CAST($1 AS text)
         AND refreshed + CASE CAST($1 AS text) WHEN 'samples_10s' THEN interval '10 s' WHEN 'samples_1min' THEN interval '1 min' ELSE interval '1 h' END < complete";

/// Refreshes the first `levels` aggregates within the ranges that `range` returns. Each transaction refreshes
/// a bounded number of buckets, the oldest first: a query adds the samples behind the refreshed range, and
/// would miss a gap in it.
fn refresh(
    connection: &mut dyn Connection,
    stop: &Stop,
    range: &str,
    levels: usize,
) -> Result<(), StoreError> {
    // Merging the many small batches of recent samples in their order costs more than to aggregate them by
    // hash.
    set(connection, "timescaledb.enable_decompression_sorted_merge", "off").context(REFRESHING)?;
    let parameters = hash_aggregation(MEMORY_MB);
    for (name, value) in &parameters {
        set(connection, name, value).context(REFRESHING)?;
    }
    let refreshes_stepwise: bool = connection
        .select_one(
            "SELECT EXISTS (SELECT FROM pg_proc
                 WHERE proname = 'refresh_continuous_aggregate' AND 'options' = ANY(proargnames))",
            &[],
        )
        .context(REFRESHING)?;
    let day_bytes = connection.select_one::<u64>(DAY_BYTES, &[]).context(REFRESHING)?.max(1);
    for (aggregate, at_least, at_most) in AGGREGATES.into_iter().take(levels) {
        if stop.is_requested() {
            break;
        }
        // Small days are refreshed at once: a year of them would take hours by the half hour.
        let buckets = (at_most * BATCH_BYTES / day_bytes).clamp(at_least, at_most);
        let range: Option<(Option<String>, String)> =
            connection.select_first(range, &[aggregate.into()]).context(REFRESHING)?;
        let Some((begin, end)) = range else { continue };
        let begin = begin.map_or_else(|| "NULL".to_owned(), |begin| format!("'{begin}'"));
        // Versions before 2.28 refresh a range in one transaction.
        let options = if refreshes_stepwise {
            format!(r#", options => '{{"buckets_per_batch": {buckets}, "refresh_newest_first": false}}'"#)
        } else {
            String::new()
        };
        // The times are from the server; a parameter would need a type that the procedure does not declare.
        let call = format!(
            "CALL refresh_continuous_aggregate('{aggregate}', CAST({begin} AS timestamptz), CAST('{end}' AS timestamptz){options})"
        );
        connection.execute(&call, &[]).context(REFRESHING)?;
    }
    // Not for the tasks that follow: a join would take all of it. After an error they have a new connection.
    for (name, _) in parameters {
        connection.execute(&format!("RESET {name}"), &[]).context(REFRESHING)?;
    }
    Ok(())
}

/// Compresses the chunks of the aggregates that no longer grow: those that are not compressed, and those to
/// which a refresh added late rows.
fn compress(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    const ACTION: &str = "compress rollups";
    let chunks = "SELECT format('%I.%I', chunk.schema_name, chunk.table_name)
         FROM timescaledb_information.continuous_aggregates
         JOIN timescaledb_information.chunks
             ON chunks.hypertable_schema = materialization_hypertable_schema AND chunks.hypertable_name = materialization_hypertable_name
         JOIN _timescaledb_catalog.chunk ON chunk.schema_name = chunk_schema AND chunk.table_name = chunk_name
         WHERE view_schema = current_schema() AND view_name IN ('samples_10s', 'samples_1min', 'samples_1h')
             AND range_end < now() - interval '1 h' AND chunk.status IN (0, 9)
         ORDER BY range_start";
    // A query that has read a chunk for long must not make all others wait behind this task.
    set(connection, "lock_timeout", "10s").context(ACTION)?;
    for chunk in connection.select::<String>(chunks, &[]).context(ACTION)? {
        if stop.is_requested() {
            break;
        }
        connection.query(&format!("SELECT CAST(compress_chunk('{chunk}') AS text)"), &[]).context(ACTION)?;
        info!("compressed the rollups in {chunk}");
    }
    set(connection, "lock_timeout", "0").context(ACTION)
}
