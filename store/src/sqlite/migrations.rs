//! Schema of SQLite.

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::diagnosis::explain;
use crate::error::Context;
use crate::file_problem::FileProblem;
use crate::schema::{self, CREATE_VERSION, FIRST_VERSION};
use crate::{OpenOptions, StoreError};

const ACTION: &str = "migrate the schema";

const SCHEMA: [&str; 12] = [
    include_str!("../../schema/sqlite/jobs.sql"),
    include_str!("../../schema/sqlite/samples.sql"),
    include_str!("../../schema/sqlite/sessions.sql"),
    include_str!("../../schema/sqlite/plans.sql"),
    include_str!("../../schema/sqlite/histograms.sql"),
    include_str!("../../schema/sqlite/stacks.sql"),
    include_str!("../../schema/sqlite/kept.sql"),
    include_str!("../../schema/sqlite/triggers.sql"),
    include_str!("../../schema/sqlite/control.sql"),
    include_str!("../../schema/sqlite/rollups.sql"),
    include_str!("../../schema/sqlite/retention.sql"),
    include_str!("../../schema/sqlite/views.sql"),
];

/// Creates the schema, or migrates it to the newest version. Returns true if there was none.
pub(super) fn migrate(
    connection: &mut Connection,
    path: &Path,
    options: &OpenOptions,
) -> Result<bool, StoreError> {
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|source| explain(path, ACTION, source))?;
    let found = version(&transaction, path)?;
    let changes =
        schema::missing(found, options.later_migrations).ok_or(StoreError::NewerSchema { found })?;
    let is_new = found < FIRST_VERSION;
    if is_new {
        transaction.execute_batch(CREATE_VERSION).context(ACTION)?;
        for statements in SCHEMA {
            transaction.execute_batch(statements).context(ACTION)?;
        }
        add_version(&transaction, FIRST_VERSION)?;
    }
    for (version, change) in changes {
        transaction.execute_batch(change.sqlite).context(ACTION)?;
        add_version(&transaction, version)?;
    }
    transaction.commit().context(ACTION)?;
    Ok(is_new)
}

/// Returns the version of the schema, 0 if there is none.
fn version(transaction: &Transaction<'_>, path: &Path) -> Result<i32, StoreError> {
    if count(transaction, "name = 'store_version'")? > 0 {
        let select = "SELECT max(version) FROM store_version";
        return transaction.query_row(select, (), |row| row.get(0)).context(ACTION);
    }
    if count(transaction, "name IN ('schema_version', 'samples')")? == 2 {
        return Err(StoreError::DevelopmentSchema);
    }
    if count(transaction, "true")? > 0 {
        return Err(StoreError::File { path: path.to_owned(), problem: FileProblem::Foreign });
    }
    Ok(0)
}

fn count(transaction: &Transaction<'_>, condition: &str) -> Result<i32, StoreError> {
    let select = format!("SELECT count(*) FROM sqlite_master WHERE {condition}");
    transaction.query_row(&select, (), |row| row.get(0)).context(ACTION)
}

fn add_version(transaction: &Transaction<'_>, version: i32) -> Result<(), StoreError> {
    transaction.execute("INSERT INTO store_version VALUES (?1)", [version]).context(ACTION).map(drop)
}
