//! Ids that the store has for records.

use std::sync::Arc;

use crate::accepted::StoreId;
use crate::error::{DatabaseError, ErrorKind};

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

/// Returns the pairs without those whose id is NULL: the store lacks the record.
pub(super) fn stored(pairs: Vec<(usize, Option<i64>)>) -> impl Iterator<Item = (usize, i64)> {
    pairs.into_iter().filter_map(|(position, id)| Some((position, id?)))
}

/// Returns the error for a row that the database accepted and does not have: a rule or a trigger that an
/// administrator added may suppress it.
pub(super) fn not_inserted(table: &str) -> DatabaseError {
    let error = format!("an inserted row of table {table} is missing; check the table's triggers and rules");
    DatabaseError::new(ErrorKind::Other, std::io::Error::other(error))
}
