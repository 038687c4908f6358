//! Space of a database.

use crate::StoreError;
use crate::backend::Connection;
use crate::error::{Context, DatabaseError};
use crate::retention::{Level, LevelSize, Storage, level_sizes};

use super::sample_table::SampleTable;
use super::{citus, parts, rollup_tables};

/// Returns the space of the database. Sizes are from the catalogue, numbers of rows are those of the last
/// analysis.
pub(super) fn measure(connection: &mut dyn Connection, now_us: i64) -> Result<Storage, StoreError> {
    measure_all(connection, now_us).context("measure the store")
}

fn measure_all(connection: &mut dyn Connection, now_us: i64) -> Result<Storage, DatabaseError> {
    let is_citus = citus::has_functions(connection)?;
    let mut parts = parts::list(connection)?;
    if is_citus {
        citus::add_sizes(connection, &mut parts)?;
    }
    let mut levels = level_sizes(&parts, now_us);
    if rollup_tables::exist(connection)? {
        let bytes = number(connection, "SELECT pg_total_relation_size('rollup_1h')")?;
        levels.push(LevelSize { level: Level::Hour, bytes, growth_bytes: Some(0.0) });
    }
    let is_partitioned = "SELECT relkind = 'p' FROM pg_class WHERE oid = 'samples'::regclass";
    let table = if is_citus {
        SampleTable::Distributed
    } else if connection.select_one(is_partitioned, &[])? {
        SampleTable::Partitions
    } else {
        SampleTable::Hypertable
    };
    let samples = match table {
        SampleTable::Distributed => citus::SAMPLES,
        SampleTable::Partitions => {
            "SELECT coalesce(sum(greatest(reltuples, 0)), 0)::int8 FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
             WHERE inhparent = 'samples'::regclass"
        }
        SampleTable::DirectCompress | SampleTable::Hypertable => {
            "SELECT coalesce(approximate_row_count('samples'), 0)"
        }
    };
    let bytes = if is_citus { citus::BYTES } else { "SELECT pg_database_size(current_database())" };
    let jobs = "SELECT CASE WHEN reltuples > 1000000 THEN reltuples::int8 ELSE (SELECT count(*) FROM job) END
         FROM pg_class WHERE oid = 'job'::regclass";
    Ok(Storage {
        form: table.name(),
        is_timescale: matches!(table, SampleTable::DirectCompress | SampleTable::Hypertable),
        is_citus,
        bytes: number(connection, bytes)?,
        free_bytes: 0,
        samples: number(connection, samples)?,
        jobs: number(connection, jobs)?,
        levels,
        directory: directory(connection)?,
        parts,
        returns_space: true,
    })
}

fn number(connection: &mut dyn Connection, select: &str) -> Result<u64, DatabaseError> {
    connection.select_one(select, &[])
}

/// Returns the directory of the server's files, if they are on this machine and the user may know it.
fn directory(
    connection: &mut dyn Connection,
) -> Result<Result<std::path::PathBuf, &'static str>, DatabaseError> {
    if citus::has_functions(connection)? {
        return Ok(Err("the samples are on the servers of Citus"));
    }
    let select = "SELECT inet_server_addr() IS NULL, pg_has_role('pg_read_all_settings', 'USAGE')";
    let (is_local, may_know): (bool, bool) = connection.select_one(select, &[])?;
    if !is_local {
        return Ok(Err("the server is reached over the network"));
    }
    if !may_know {
        return Ok(Err("this user may not see the server's directory; GRANT pg_read_all_settings lets it"));
    }
    let directory: String = connection.select_one("SELECT current_setting('data_directory')", &[])?;
    Ok(Ok(directory.into()))
}
