//! Parameters of a connection of the maintenance.

use crate::backend::Connection;
use crate::error::DatabaseError;

/// The unit of the memory for hash tables, which is the server's own default.
const UNIT_MB: u32 = 4;

/// Sets a parameter of the session, if the server knows it.
pub(super) fn set(connection: &mut dyn Connection, name: &str, value: &str) -> Result<(), DatabaseError> {
    configure(connection, name, value, false)
}

/// Sets a parameter until the end of the transaction, if the server knows it.
pub(super) fn set_locally(
    connection: &mut dyn Connection,
    name: &str,
    value: &str,
) -> Result<(), DatabaseError> {
    configure(connection, name, value, true)
}

fn configure(
    connection: &mut dyn Connection,
    name: &str,
    value: &str,
    is_local: bool,
) -> Result<(), DatabaseError> {
    let configure = "SELECT set_config(name, $2, CAST($3 AS boolean)) FROM pg_settings WHERE name = $1";
    connection.query(configure, &[name.into(), value.into(), is_local.into()]).map(drop)
}

/// Returns the parameters that let the server compute rollups by hash, in `megabytes` of memory as its planner
/// estimates it. With less, samples are written to temporary files, with several times the size of those that
/// are stored, and half of the time is spent there.
pub(super) fn hash_aggregation(megabytes: u32) -> [(&'static str, String); 3] {
    [
        ("enable_sort", "off".to_owned()),
        ("work_mem", format!("{UNIT_MB}MB")),
        ("hash_mem_multiplier", (megabytes / UNIT_MB).to_string()),
    ]
}
