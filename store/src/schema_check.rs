//! Check that a store has the schema of this program.

use std::ops::ControlFlow;

use crate::StoreError;
use crate::backend::Connection;
use crate::error::Context;
use crate::row::Row;
use crate::schema::SCHEMA_VERSION;

const ACTION: &str = "read the version of the store";

/// Checks that a store has the schema of this program. Returns `without_tables` if it has none.
pub(crate) fn check(
    connection: &mut dyn Connection,
    without_tables: impl FnOnce() -> StoreError,
) -> Result<(), StoreError> {
    let mut newest: Result<Option<i64>, _> = Ok(None);
    let select = "SELECT CAST(max(version) AS bigint) FROM store_version";
    let read = connection.read(select, &[], &mut |mut row: Row| {
        newest = row.get();
        ControlFlow::Continue(())
    });
    match read {
        Ok(()) => newest.context(ACTION)?.map_or_else(|| Err(without_tables()), check_version),
        Err(error) if error.is_missing_table() => {
            Err(if is_of_development(connection)? { StoreError::DevelopmentSchema } else { without_tables() })
        }
        Err(error) => Err(error),
    }
}

fn check_version(version: i64) -> Result<(), StoreError> {
    let found = i32::try_from(version).unwrap_or(i32::MAX);
    if found > SCHEMA_VERSION {
        return Err(StoreError::NewerSchema { found });
    }
    if found < SCHEMA_VERSION { Err(StoreError::OlderSchema { found }) } else { Ok(()) }
}

/// Returns true if a store without a version has the tables of a development revision.
fn is_of_development(connection: &mut dyn Connection) -> Result<bool, StoreError> {
    let select = "SELECT 1 FROM schema_version CROSS JOIN samples LIMIT 0";
    match connection.read(select, &[], &mut |_| ControlFlow::Continue(())) {
        Ok(()) => Ok(true),
        Err(error) if error.is_missing_table() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_refuse_other_versions() {
        let version = i64::from(SCHEMA_VERSION);
        assert!(check_version(version).is_ok());
        let older = check_version(version - 1).unwrap_err().to_string();
        assert!(older.contains("is older than") && older.contains("; migrate it"), "{older}");
        let newer = check_version(version + 1).unwrap_err().to_string();
        assert!(newer.contains("is newer than") && newer.contains("; use a newer"), "{newer}");
    }
}
