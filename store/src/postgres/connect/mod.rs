//! Connections to the server: connection strings, password files, TLS, and the checks of a new connection.
//!
//! ```text
//! connection string + environment -> Settings -> password file, certificates -> Client
//! ```

mod client;
mod environment;
mod error;
mod password_file;
mod server_role;
mod session;
mod settings;
mod tls;
mod words;

use tokio_postgres::CancelToken;

use crate::StoreError;
use crate::error::Context;

pub(super) use self::session::{Access, connect};
pub(super) use self::settings::Settings;

pub(super) async fn cancel(settings: &Settings, token: &CancelToken) -> Result<(), StoreError> {
    token.cancel_query(tls::connector(settings.tls())?).await.context("cancel a statement")
}
