//! Start of a connection, and the check that nothing between here and the server shares it with others.

use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::{Client, Config};

use super::client::{POOLER, open};
use super::server_role::{self, ServerRole};
use super::settings::Settings;
use crate::error::Context;
use crate::{StoreError, limits};

/// Parameters of every connection. JIT compiles for seconds what runs for milliseconds.
/// `polymeter.connection` exists only to be read back: a connection pooler does not pass it on. The server
/// notices within a minute that this machine has vanished or is suspended; otherwise the locks of its
/// transactions would remain for hours.
const OPTIONS: &str = "-c jit=off -c statement_timeout=0 -c polymeter.connection=direct \
     -c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3";

/// Parameters of connections that write. The server ends the transaction of a process that is frozen, so that
/// other collectors can take its locks.
const WRITE: &str = "-c idle_in_transaction_session_timeout=10s";

/// Error for writers that may only use a standby.
const STANDBY: &str = "cannot write to the database: target_session_attrs=standby, and a standby accepts no writes; use target_session_attrs=primary";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::postgres) enum Access {
    /// Only reads. A standby server is suitable.
    Read,
    /// Reads and writes. Of several hosts, the one that accepts writes is chosen.
    Write,
}

/// Parameters of connections that only read. A plan for the parameters at hand excludes partitions. The
/// samples of a job are sorted in memory up to this size, on disk beyond it.
const READ_ONLY: &str = "-c plan_cache_mode=force_custom_plan -c work_mem=32MB";

/// Connects, and refuses a connection pooler. A silently vanished server is detected in about a minute.
pub(in crate::postgres) async fn connect(settings: &Settings, access: Access) -> Result<Client, StoreError> {
    let mut config = settings.config()?;
    add_defaults(&mut config, access);
    let client = match settings.role() {
        None => open(&config, settings.tls()).await?,
        Some(ServerRole::Standby) if access == Access::Write => {
            return Err(StoreError::Unusable(STANDBY.to_owned()));
        }
        Some(ServerRole::PreferStandby) if access == Access::Write => {
            server_role::connect(&config, settings.tls(), ServerRole::Primary).await?
        }
        Some(role) => server_role::connect(&config, settings.tls(), role).await?,
    };
    if access == Access::Read {
        // Not before: every server would look like one that accepts no writes to `target_session_attrs`.
        let set = client.batch_execute("SET default_transaction_read_only = on").await;
        set.context("connect to the database")?;
    }
    let row = client.query_one(EXAMINE, &[]).await.context("connect to the database")?;
    if row.get::<_, Option<&str>>(0) != Some("direct") {
        return Err(StoreError::Unusable(POOLER.to_owned()));
    }
    let (encoding, database): (&str, &str) = (row.get(1), row.get(2));
    if encoding != "UTF8" {
        return Err(StoreError::Unusable(format!(
            "cannot use the database {database}: its encoding is {encoding}, and names of jobs, users and files may have any characters; create one with UTF8: createdb -E UTF8 --locale=C -T template0 NAME"
        )));
    }
    Ok(client)
}

/// Mark of a direct connection, and the encoding and the name of the database.
const EXAMINE: &str = "SELECT current_setting('polymeter.connection', true), current_setting('server_encoding'), current_database()::text";

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
    let of_access = match access {
        Access::Read => READ_ONLY,
        Access::Write => WRITE,
    };
    let options: Vec<&str> = [OPTIONS, of_access].into_iter().chain(config.get_options()).collect();
    config.options(options.join(" "));
    config.tcp_user_timeout(limits::CONNECT * 6).keepalives_idle(limits::CONNECT * 3);
}
