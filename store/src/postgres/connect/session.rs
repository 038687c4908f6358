//! The start of a connection, and the check that nothing between here and the server shares it with others.

use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error};

use super::settings::Settings;
use super::tls;
use crate::error::Context;
use crate::{StoreError, limits};

/// The parameters of every connection. JIT compiles for seconds what runs for milliseconds. The second one exists only to be
/// read back: a connection pooler does not pass it on.
const OPTIONS: &str = "-c jit=off -c statement_timeout=0 -c polymeter.connection=direct";

/// The error for a connection pooler.
const POOLER: &str = "cannot use the database: a connection pooler such as PgBouncer is between this program and the server, and session state such as prepared statements and advisory locks would be lost; connect to the server's own port";

/// The use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::postgres) enum Access {
    /// Only reads. A standby server is suitable.
    Read,
    /// Reads and writes. Of several hosts, the one that accepts writes is chosen.
    Write,
}

/// The parameters of connections that only read. A plan for the parameters at hand excludes partitions. The samples of a job
/// are sorted in memory up to this size, on disk beyond it.
const READ_ONLY: &str =
    "-c default_transaction_read_only=on -c plan_cache_mode=force_custom_plan -c work_mem=32MB";

/// Connects. A silently vanished server is detected in about a minute.
///
/// # Errors
/// Returns an error if no server can be reached, the server refuses the user, or a connection pooler answers.
pub(in crate::postgres) async fn connect(settings: &Settings, access: Access) -> Result<Client, StoreError> {
    let mut config = settings.config()?;
    add_defaults(&mut config, access);
    let connected = config.connect(tls::connector(settings.tls())?).await;
    let (client, connection) = match connected {
        Err(error) if is_unsupported_parameter(&error) => {
            return Err(StoreError::Unusable(POOLER.to_owned()));
        }
        connected => connected.context("connect to the database")?,
    };
    // The client's next call reports its outcome.
    tokio::spawn(connection);
    let marked = client.query_one("SELECT current_setting('polymeter.connection', true)", &[]).await;
    let marked: Option<String> = marked.context("connect to the database")?.get(0);
    if marked.as_deref() == Some("direct") {
        Ok(client)
    } else {
        Err(StoreError::Unusable(POOLER.to_owned()))
    }
}

/// Sets the parameters that the user did not set.
fn add_defaults(config: &mut Config, access: Access) {
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(limits::CONNECT);
    }
    if config.get_application_name().is_none() {
        config.application_name("polymeter");
    }
    if access == Access::Write
        && config.get_hosts().len() > 1
        && config.get_target_session_attrs() == TargetSessionAttrs::Any
    {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    let read_only = (access == Access::Read).then_some(READ_ONLY);
    let options: Vec<&str> = [Some(OPTIONS), read_only, config.get_options()].into_iter().flatten().collect();
    config.options(options.join(" "));
    config.tcp_user_timeout(limits::CONNECT * 6).keepalives_idle(limits::CONNECT * 3);
}

/// Returns true if the answer is that of a pooler that does not know a start parameter. PostgreSQL itself knows all of them.
fn is_unsupported_parameter(error: &Error) -> bool {
    error.as_db_error().is_some_and(|error| {
        *error.code() == SqlState::PROTOCOL_VIOLATION
            && error.message().contains("unsupported startup parameter")
    })
}
