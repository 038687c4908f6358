//! Maintenance of a PostgreSQL database: the connection, and the tasks for each form of the table of
//! samples.

use super::cancellation::cancel_statement;
use super::connect::{Access, Settings, connect};
use super::connection::PostgresConnection;
use super::sample_table::SampleTable;
use super::server::{MAINTENANCE_LOCK, event_loop};
use super::{citus, continuous, partitions, reorder, retention, rollup_tables, table_detection, timescale};
use crate::StoreError;
use crate::backend::{Connection, MaintenanceSession, Task};
use crate::error::{Context, DatabaseError};
use crate::removal::{metadata, requests};
use crate::schema_check;

const PARTITIONS: [Task; 8] = [
    partitions::CREATE_AHEAD,
    partitions::SUMMARISE,
    rollup_tables::COMPUTE,
    rollup_tables::COMPUTE_LATE,
    retention::REMOVE,
    metadata::REMOVE,
    requests::REMOVE,
    partitions::CLOSE,
];

const DISTRIBUTED: [Task; 9] = [
    partitions::CREATE_AHEAD,
    citus::SUMMARISE,
    rollup_tables::COMPUTE,
    rollup_tables::COMPUTE_LATE,
    retention::REMOVE,
    metadata::REMOVE,
    requests::REMOVE,
    partitions::CLOSE,
    citus::COMPRESS,
];

/// Tasks for a hypertable with continuous aggregates, whose rows are compressed on arrival.
const DIRECT_COMPRESS: [Task; 9] = [
    continuous::REFRESH_ALL,
    continuous::REFRESH_FINEST,
    continuous::REFRESH_RECENT,
    retention::REMOVE,
    metadata::REMOVE,
    requests::REMOVE,
    continuous::COMPRESS,
    reorder::REORDER,
    timescale::COMPRESS,
];

const HYPERTABLE: [Task; 8] = [
    continuous::REFRESH_ALL,
    continuous::REFRESH_FINEST,
    continuous::REFRESH_RECENT,
    retention::REMOVE,
    metadata::REMOVE,
    requests::REMOVE,
    continuous::COMPRESS,
    timescale::COMPRESS,
];

/// Tasks for a hypertable without continuous aggregates, which belong to the community license.
const PLAIN_HYPERTABLE: [Task; 5] = [
    rollup_tables::COMPUTE,
    rollup_tables::COMPUTE_LATE,
    retention::REMOVE,
    metadata::REMOVE,
    requests::REMOVE,
];

/// Connects to maintain a database. Returns none while another connection maintains it.
pub(super) fn open(settings: &Settings) -> Result<Option<MaintenanceSession>, StoreError> {
    let runtime = event_loop()?;
    let opened = runtime.block_on(async {
        let client = connect(settings, Access::Write).await?;
        // The end of the connection releases the lock.
        let lock = client.query_one("SELECT pg_try_advisory_lock($1)", &[&MAINTENANCE_LOCK]).await;
        if !lock.context("lock the maintenance")?.get::<_, bool>(0) {
            return Ok::<_, StoreError>(None);
        }
        let table = table_detection::detect(&client).await?;
        Ok(Some((client, table)))
    })?;
    let Some((client, table)) = opened else { return Ok(None) };
    let (running, settings) = (client.cancel_token(), settings.clone());
    let mut connection = PostgresConnection::new(runtime, client, Some(table));
    schema_check::check(&mut connection, || StoreError::WithoutTables)?;
    let has_tables = rollup_tables::exist(&mut connection).context("prepare the maintenance")?;
    let obstacle = obstacle(&mut connection).context("prepare the maintenance")?;
    Ok(Some(MaintenanceSession {
        connection: Box::new(connection),
        cancel: Some(Box::new(move || cancel_statement(&settings, &running))),
        tasks: match table {
            _ if obstacle.is_some() => &[],
            SampleTable::Partitions => &PARTITIONS,
            SampleTable::Distributed => &DISTRIBUTED,
            SampleTable::DirectCompress | SampleTable::Hypertable if has_tables => &PLAIN_HYPERTABLE,
            SampleTable::DirectCompress => &DIRECT_COMPRESS,
            SampleTable::Hypertable => &HYPERTABLE,
        },
        removal: &retention::REMOVAL,
        obstacle,
    }))
}

/// Returns why this user cannot maintain the database; none if it can. Most tasks are for the owner of the
/// tables: no privilege lets others refresh continuous aggregates, drop chunks or build indexes, and a
/// procedure that commits cannot have the rights of its owner.
fn obstacle(connection: &mut dyn Connection) -> Result<Option<String>, DatabaseError> {
    let select = "SELECT pg_has_role(relowner, 'USAGE'), current_user::text, pg_get_userbyid(relowner)::text
         FROM pg_class WHERE oid = 'samples'::regclass";
    let (is_owner, user, owner): (bool, String, String) = connection.select_one(select, &[])?;
    Ok((!is_owner).then(|| {
        format!(
            "this collector does not maintain the database (summaries, compression, retention): its user {user} does not own the tables; let another collector run as {owner}, or GRANT {owner} TO {user}"
        )
    }))
}
