//! The ids that the store has for records.

use std::sync::Arc;

use crate::accepted::StoreId;
use crate::error::{DatabaseError, ErrorKind};
use crate::value::Row;

/// Sets the ids of `records` from pairs of a position and an id.
pub(super) fn set_ids<T>(
    found: impl IntoIterator<Item = (usize, i64)>,
    records: &[Arc<T>],
    id_of: impl Fn(&T) -> &StoreId,
) {
    for (position, id) in found {
        if let Some(record) = records.get(position) {
            id_of(record).assign(id);
        }
    }
}

/// Returns the pairs of rows of a position and an id, except for those whose id is NULL: the store lacks the record.
pub(super) fn pairs(found: Vec<Row>) -> Vec<(usize, i64)> {
    let pair = |mut row: Row| {
        let position = usize::try_from(row.integer()).unwrap_or(usize::MAX);
        Some((position, row.optional_integer()?))
    };
    found.into_iter().filter_map(pair).collect()
}

/// Returns the error for a row that the database accepted and does not have: a rule or a trigger that an
/// administrator added may suppress it.
pub(super) fn not_inserted(table: &str) -> DatabaseError {
    let error = format!("an inserted row of table {table} is missing; check the table's triggers and rules");
    DatabaseError::new(ErrorKind::Other, std::io::Error::other(error))
}
