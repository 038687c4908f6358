//! What the store knows about its retention, and its time.

use crate::StoreError;
use crate::backend::Connection;
use crate::error::Context;
use crate::retention::LevelState;
use crate::row::TimeUs;

pub(crate) fn states(connection: &mut dyn Connection) -> Result<Vec<LevelState>, StoreError> {
    let select = "SELECT relation, keep_days, dropped_before FROM retention";
    let mut states: Vec<LevelState> = connection.select(select, &[]).context("read the retention policy")?;
    states.sort_by_key(|state| state.level);
    Ok(states)
}

/// Returns the time of the database, in microseconds since the epoch.
pub(crate) fn now_us(connection: &mut dyn Connection) -> Result<i64, StoreError> {
    let TimeUs(now_us) =
        connection.select_one("SELECT {now}", &[]).context("read the time of the database")?;
    Ok(now_us)
}
