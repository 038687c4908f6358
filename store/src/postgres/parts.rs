//! Chunks and partitions of samples and rollups.

use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::retention::{Level, Part, PartKind};
use crate::row::{FromRow, Row, TimeUs};

use super::rollup_tables;
use super::statement::DIALECT;

/// Selects the partitions. Their names end in a day or a month, in UTC.
const PARTITIONS: &str = "SELECT CASE parent.relname WHEN 'rollup_10s' THEN 'samples_10s' WHEN 'rollup_1min' THEN 'samples_1min' ELSE 'samples' END,
         format('%I.%I', nspname, part.relname), begin_at AT TIME ZONE 'UTC', (begin_at + length) AT TIME ZONE 'UTC',
         pg_total_relation_size(part.oid), NULL
     FROM pg_inherits JOIN pg_class AS part ON part.oid = inhrelid JOIN pg_class AS parent ON parent.oid = inhparent
     JOIN pg_namespace ON pg_namespace.oid = part.relnamespace
     CROSS JOIN LATERAL (SELECT substring(part.relname FROM '_([0-9]{6,8})$') AS digits) AS name
     CROSS JOIN LATERAL (SELECT CASE length(digits) WHEN 8 THEN to_date(digits, 'YYYYMMDD') ELSE to_date(digits, 'YYYYMM') END::timestamp AS begin_at,
                                CASE length(digits) WHEN 8 THEN interval '1 day' ELSE interval '1 month' END AS length) AS span
     WHERE inhparent IN (to_regclass('samples'), to_regclass('rollup_10s'), to_regclass('rollup_1min'))
         AND part.relispartition AND digits IS NOT NULL";

const CHUNKS: &str = "SELECT relation, format('%I.%I', chunk.chunk_schema, chunk.chunk_name), range_start, range_end, total_bytes, hypertable
     FROM (
         SELECT 'samples' AS relation, format('%I.%I', hypertable_schema, hypertable_name) AS hypertable
         FROM timescaledb_information.hypertables WHERE hypertable_schema = current_schema() AND hypertable_name = 'samples'
         UNION ALL
         SELECT CAST(view_name AS text), format('%I.%I', materialization_hypertable_schema, materialization_hypertable_name)
         FROM timescaledb_information.continuous_aggregates
         WHERE view_schema = current_schema() AND view_name IN ('samples_10s', 'samples_1min', 'samples_1h')
     ) AS tables
     CROSS JOIN LATERAL chunks_detailed_size(hypertable::regclass) AS chunk
     JOIN timescaledb_information.chunks USING (chunk_schema, chunk_name)";

/// Returns all chunks and partitions: the finest level first, then the oldest.
pub(super) fn list(connection: &mut dyn Connection) -> Result<Vec<Part>, DatabaseError> {
    let has_chunks = "SELECT relkind <> 'p' FROM pg_class WHERE oid = 'samples'::regclass";
    let mut parts = connection.select::<Part>(PARTITIONS, &[])?;
    if connection.select_one(has_chunks, &[])? {
        parts.extend(connection.select::<Part>(CHUNKS, &[])?);
    }
    parts.sort_by_key(|part| (part.level, part.begin_us));
    Ok(parts)
}

impl FromRow for Part {
    fn from_row(row: &mut Row) -> Result<Self, DatabaseError> {
        Ok(Self {
            level: row.get()?,
            name: Some(row.get()?),
            begin_us: row.get::<TimeUs>()?.0,
            end_us: row.get::<TimeUs>()?.0,
            // A partition that was dropped meanwhile has no size.
            bytes: row.get()?,
            kept_jobs: Vec::new(),
            kind: row.get::<Option<_>>()?.map_or(PartKind::Partition, PartKind::Chunk),
        })
    }
}

/// Returns the rows of the rollup of an hour before `before_us`, where it is a table; none if there are no
/// such rows.
pub(super) fn rows_of_hours(
    connection: &mut dyn Connection,
    before_us: i64,
) -> Result<Option<Part>, DatabaseError> {
    if !rollup_tables::exist(connection)? {
        return Ok(None);
    }
    // The transaction reads through indexes.
    connection.begin()?;
    let oldest = format!("SELECT min(time) FROM rollup_1h WHERE time < {}", time(before_us));
    let TimeUs(oldest_us): TimeUs<Option<i64>> = connection.select_one(&oldest, &[])?;
    connection.commit()?;
    Ok(oldest_us.map(|begin_us| Part {
        level: Level::Hour,
        name: None,
        begin_us,
        end_us: before_us,
        bytes: None,
        kept_jobs: Vec::new(),
        kind: PartKind::Rows("rollup_1h"),
    }))
}

pub(super) fn time(time_us: i64) -> String {
    (DIALECT.time)(time_us)
}

/// Returns the condition for the rows of a part, with constants, which exclude other chunks.
pub(super) fn range(part: &Part) -> String {
    format!("time >= {} AND time < {}", time(part.begin_us), time(part.end_us))
}

/// Returns the table from which the rows of a part are read, and to which they are written.
pub(super) fn table(part: &Part) -> &str {
    match &part.kind {
        PartKind::Chunk(hypertable) => hypertable,
        PartKind::Partition => part.name.as_deref().unwrap_or_default(),
        PartKind::Rows(table) => table,
    }
}
