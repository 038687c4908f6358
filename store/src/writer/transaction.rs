//! Transactions.

use crate::backend::Connection;
use crate::error::DatabaseError;

pub(super) fn transaction<T>(
    connection: &mut dyn Connection,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, DatabaseError>,
) -> Result<T, DatabaseError> {
    connection.begin()?;
    let value = work(connection)?;
    connection.commit()?;
    Ok(value)
}
