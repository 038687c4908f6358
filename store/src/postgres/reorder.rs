//! Order of samples in a chunk that still grows.
//!
//! Direct compression leaves a batch per commit, with samples of all series: a query of one series
//! decompresses all of them. The function `compress_chunk` would merge the batches, but locks out the writers
//! of the chunk, for minutes. Therefore the maintenance rewrites the samples of a closed period of time in
//! the order of their series: it deletes and inserts them in one transaction, beside the writers. Whole
//! batches are deleted without decompression. Late samples of that time remain in batches of their own until
//! the compression policy orders the whole chunk.

use polymeter_proto::units::counted;
use tracing::info;

use super::parameters::set;
use crate::StoreError;
use crate::backend::{Connection, Task};
use crate::error::Context;
use crate::stop::Stop;

/// Rewrites the samples of the last hour in the order of their series.
pub(super) const REORDER: Task = Task { name: "order recent samples", rounds: 10, run: reorder };

const ACTION: &str = "order recent samples";

const COLUMNS: &str = "time, series_id, value, count, min, max, sum";

/// Samples that one transaction rewrites at most: some 10 s, and 300 MB of temporary space.
const STEP_ROWS: i64 = 4_000_000;

/// Selects the begin and the end of the next period, as text; no row if it is too short yet. Older samples
/// are left to the compression policy. `$1` is the number of parts into which an hour is divided.
const PERIOD: &str = "SELECT CAST(begin_at AS text), CAST(end_at AS text)
     FROM (SELECT greatest(ordered_before, date_bin('1 h', now(), 'epoch') - interval '2 days') AS begin_at,
               now() - interval '10 min' AS complete_at FROM samples_order) AS state
     CROSS JOIN LATERAL (SELECT least(begin_at + interval '1 h' / CAST($1 AS bigint), complete_at) AS end_at) AS period
     WHERE complete_at - begin_at >= interval '30 min'";

/// Parts into which an hour is divided at most: minutes.
const PARTS: i64 = 64;

fn reorder(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    for (name, value) in [
        ("timescaledb.enable_direct_compress_insert", "on"),
        ("timescaledb.max_tuples_decompressed_per_dml_transaction", "0"),
        ("work_mem", "64MB"),
    ] {
        set(connection, name, value).context(ACTION)?;
    }
    while !stop.is_requested() {
        let Some((begin, end, rows)) = next_period(connection)? else { break };
        rewrite(connection, &begin, &end, rows)?;
    }
    Ok(())
}

/// Returns the begin and the end of the next period, and its number of samples.
fn next_period(connection: &mut dyn Connection) -> Result<Option<(String, String, i64)>, StoreError> {
    let mut parts = 1;
    loop {
        let period: Option<(String, String)> =
            connection.select_first(PERIOD, &[parts.into()]).context(ACTION)?;
        let Some((begin, end)) = period else { return Ok(None) };
        let count = format!("SELECT count(*) FROM samples WHERE {}", condition(&begin, &end));
        let count = connection.select_one(&count, &[]).context(ACTION)?;
        if count <= STEP_ROWS || parts >= PARTS {
            return Ok(Some((begin, end, count)));
        }
        parts *= 2;
    }
}

/// Returns the condition for the samples of a period. The times are from the server. As constants they select
/// chunks and batches; as columns they would let the server decompress all samples.
fn condition(begin: &str, end: &str) -> String {
    format!("time >= TIMESTAMPTZ '{begin}' AND time < TIMESTAMPTZ '{end}'")
}

fn rewrite(connection: &mut dyn Connection, begin: &str, end: &str, rows: i64) -> Result<(), StoreError> {
    let period = condition(begin, end);
    connection.begin().context(ACTION)?;
    // All statements see the same samples; those that others write meanwhile stay as they are.
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", &[]).context(ACTION)?;
    if rows > 0 {
        // The samples stay the same, so that the rollups need no refresh.
        let skip = "SELECT set_config(name, 'on', true) FROM pg_settings WHERE name = 'timescaledb.skip_cagg_invalidation'";
        connection.query(skip, &[]).context(ACTION)?;
        let mut run = |statement: &str| connection.execute(statement, &[]).context(ACTION);
        run(
            "CREATE TEMP TABLE reordered (time timestamptz NOT NULL, series_id int8 NOT NULL, value float8 NOT NULL,
                 count int8, min float8, max float8, sum float8) ON COMMIT DROP",
        )?;
        let copied = run(&format!("INSERT INTO reordered SELECT {COLUMNS} FROM samples WHERE {period}"))?;
        run(&format!("DELETE FROM samples WHERE {period}"))?;
        let inserted = run(&format!(
            "INSERT INTO samples ({COLUMNS}) SELECT {COLUMNS} FROM reordered ORDER BY series_id, time"
        ))?;
        let count = format!("SELECT count(*) FROM samples WHERE {period}");
        let present: u64 = connection.select_one(&count, &[]).context(ACTION)?;
        if copied != inserted || copied != present {
            return Err(StoreError::Unusable(format!(
                "cannot order the samples from {begin} to {end}: {present} of {copied} would remain; nothing was changed"
            )));
        }
    }
    let done = format!("UPDATE samples_order SET ordered_before = '{end}'");
    connection.execute(&done, &[]).context(ACTION)?;
    connection.commit().context(ACTION)?;
    if rows > 0 {
        info!("ordered {} from {begin} to {end}", counted(rows, "sample"));
    }
    Ok(())
}
