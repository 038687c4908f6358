//! The schema of SQLite, version by version.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::diagnosis::explain;
use crate::error::Context;
use crate::file_problem::FileProblem;
use crate::schema::Addition;
use crate::{SCHEMA_VERSION, StoreError};

const ACTION: &str = "migrate the schema";

/// The migration to each version, the first to version 1.
const MIGRATIONS: [&str; SCHEMA_VERSION as usize] = [
    include_str!("../../schema/sqlite/1.sql"),
    include_str!("../../schema/sqlite/2.sql"),
    include_str!("../../schema/sqlite/3.sql"),
    include_str!("../../schema/sqlite/4.sql"),
    include_str!("../../schema/sqlite/5.sql"),
    concat!(include_str!("../../schema/all/6.sql"), include_str!("../../schema/sqlite/6.sql")),
    concat!(
        include_str!("../../schema/sqlite/7_jobs.sql"),
        include_str!("../../schema/sqlite/7_metadata.sql"),
        include_str!("../../schema/sqlite/7_rollups.sql"),
        include_str!("../../schema/sqlite/7_retention.sql"),
        include_str!("../../schema/sqlite/7_views.sql")
    ),
    concat!(
        include_str!("../../schema/sqlite/8_jobs.sql"),
        include_str!("../../schema/sqlite/8_job_ends.sql"),
        include_str!("../../schema/sqlite/8_plan_levels.sql"),
        include_str!("../../schema/sqlite/8_energy.sql"),
        include_str!("../../schema/sqlite/8_tokens.sql")
    ),
];

/// The additions to the current version, which earlier programs of this version do not know.
const ADDITIONS: [Addition; 1] =
    [Addition { table: "control_request", statements: include_str!("../../schema/sqlite/8_control.sql") }];

/// Migrates the schema to the current version, and returns true if there was none.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<bool, StoreError> {
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|source| explain(path, ACTION, source))?;
    let is_foreign = "SELECT count(*) > 0 AND NOT max(name = 'schema_version') FROM sqlite_master";
    if transaction.query_row(is_foreign, (), |row| row.get(0)).context(ACTION)? {
        return Err(StoreError::File { path: path.to_owned(), problem: FileProblem::Foreign });
    }
    transaction
        .execute_batch("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)")
        .context(ACTION)?;
    let found: i32 = transaction
        .query_row("SELECT coalesce(max(version), 0) FROM schema_version", (), |row| row.get(0))
        .context(ACTION)?;
    if found > SCHEMA_VERSION {
        return Err(StoreError::NewerSchema { found });
    }
    for (version, migration) in
        (1..=SCHEMA_VERSION).zip(MIGRATIONS).skip_while(|(version, _)| *version <= found)
    {
        transaction.execute_batch(migration).context(ACTION)?;
        transaction.execute("INSERT INTO schema_version VALUES (?1)", [version]).context(ACTION)?;
    }
    for addition in ADDITIONS {
        let is_there = "SELECT count(*) > 0 FROM sqlite_master WHERE type = 'table' AND name = ?1";
        if !transaction.query_row(is_there, [addition.table], |row| row.get(0)).context(ACTION)? {
            transaction.execute_batch(addition.statements).context(ACTION)?;
        }
    }
    transaction.commit().context(ACTION)?;
    Ok(found == 0)
}
