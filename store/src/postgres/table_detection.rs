//! Detection of the form of an existing table of samples.

use tokio_postgres::Client;

use super::sample_table::SampleTable;
use super::{citus, timescale};
use crate::{ExtensionMode, StoreError};

/// Detects the form of the existing table of samples. Fails if this server cannot serve the table.
pub(super) async fn detect(client: &Client) -> Result<SampleTable, StoreError> {
    if citus::detect(client).await?.is_distributed() {
        return Ok(SampleTable::Distributed);
    }
    let offer = timescale::detect(client).await?;
    Ok(timescale::choose_table(client, &offer, ExtensionMode::Auto, false).await?.table)
}
