//! One connection, and the errors of connection poolers.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error};

use super::tls::{self, TlsSettings};
use crate::StoreError;
use crate::error::Context;

pub(super) const POOLER: &str = "cannot use the database: a connection pooler such as PgBouncer is between this program and the server, and session state such as prepared statements and advisory locks would be lost; connect to the server's own port";

pub(super) async fn open(config: &Config, tls: &TlsSettings) -> Result<Client, StoreError> {
    let connected = config.connect(tls::connector(tls)?).await;
    let (client, connection) = match connected {
        Err(error) if is_unsupported_parameter(&error) => {
            return Err(StoreError::Unusable(POOLER.to_owned()));
        }
        connected => connected.context("connect to the database")?,
    };
    // The client's next call reports its outcome.
    tokio::spawn(connection);
    Ok(client)
}

/// Returns true if a pooler answered that it does not know a start parameter. PostgreSQL itself knows all of
/// them.
fn is_unsupported_parameter(error: &Error) -> bool {
    error.as_db_error().is_some_and(|error| {
        *error.code() == SqlState::PROTOCOL_VIOLATION
            && error.message().contains("unsupported startup parameter")
    })
}
