//! Lists that many rows share, such as the series of a job: each list is stored once, and found by its
//! digest.

use std::collections::{BTreeMap, HashMap};

use super::found::not_inserted;
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::value::{Batch, Column, ColumnType, Value};

/// Tables of a kind of lists. `N` is the number of columns of a member.
pub(super) struct ListTables<const N: usize> {
    pub(super) table: &'static str,
    pub(super) id: &'static str,
    /// Columns of the table of members: the id, the position, and the values.
    pub(super) columns: &'static [Column; N],
    pub(super) insert_members: &'static str,
}

/// Lists by their digests. A member has a value for each column; the first two, the id and the position, are
/// replaced.
pub(super) type Lists<'a, const N: usize> = BTreeMap<String, Vec<[Value<'a>; N]>>;

const DIGEST: [Column; 1] = [("digest", ColumnType::Text)];

/// Returns the ids of `lists` by their digests, and inserts those that are missing. They remain until the end
/// of the transaction.
pub(super) fn ids<const N: usize>(
    connection: &mut dyn Connection,
    tables: &ListTables<N>,
    lists: Lists<'_, N>,
) -> Result<HashMap<String, i64>, DatabaseError> {
    let mut ids = find(connection, tables, lists.keys())?;
    // The map is sorted: connections that insert the same lists wait for each other in one order.
    let missing: Vec<_> = lists.into_iter().filter(|(digest, _)| !ids.contains_key(digest)).collect();
    if missing.is_empty() {
        return Ok(ids);
    }
    let ListTables { table, id, .. } = tables;
    let insert = format!(
        "INSERT INTO {table} (digest) SELECT digest FROM {{new}} WHERE true ON CONFLICT DO NOTHING RETURNING digest, {id}"
    );
    let inserted = connection.select_batch(&insert, &digests(missing.iter().map(|(digest, _)| digest)))?;
    let inserted: HashMap<String, i64> = inserted.into_iter().collect();
    let (new, others): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|(digest, _)| inserted.contains_key(digest));
    let rows = new.into_iter().flat_map(|(digest, members)| {
        let id = inserted.get(&digest).copied();
        (0..).zip(members).map(move |(position, mut member): (i64, _)| {
            for (column, value) in member.iter_mut().zip([id.into(), position.into()]) {
                *column = value;
            }
            member
        })
    });
    connection.execute_batch(tables.insert_members, &Batch::new(tables.columns, rows))?;
    ids.extend(inserted);
    if !others.is_empty() {
        // Another connection inserted them meanwhile.
        ids.extend(find(connection, tables, others.iter().map(|(digest, _)| digest))?);
        if others.iter().any(|(digest, _)| !ids.contains_key(digest)) {
            return Err(not_inserted(table));
        }
    }
    Ok(ids)
}

/// Returns the ids of those lists that are in the store, and locks their rows against deletion.
fn find<'a, const N: usize>(
    connection: &mut dyn Connection,
    tables: &ListTables<N>,
    of: impl Iterator<Item = &'a String>,
) -> Result<HashMap<String, i64>, DatabaseError> {
    let ListTables { table, id, .. } = tables;
    let select = format!(
        "SELECT digest, {id} FROM {table} WHERE digest IN (SELECT digest FROM {{new}}) ORDER BY digest{{for_key_share}}"
    );
    Ok(connection.select_batch(&select, &digests(of))?.into_iter().collect())
}

fn digests<'a>(of: impl Iterator<Item = &'a String>) -> Batch<'a> {
    Batch::new(&DIGEST, of.map(|digest| [digest.as_str().into()]))
}
