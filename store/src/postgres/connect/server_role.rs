//! Choice of a server by its state: the values of `target_session_attrs` that the client library does not
//! know.

use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config};

use super::client::open;
use super::tls::TlsSettings;
use crate::StoreError;
use crate::error::Context;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerRole {
    Primary,
    Standby,
    /// A hot standby, or any server if there is none.
    PreferStandby,
}

impl ServerRole {
    /// Parses a value of `target_session_attrs`. Returns none for the other values.
    pub(super) fn parse(value: &str) -> Option<Self> {
        match value {
            "primary" => Some(Self::Primary),
            "standby" => Some(Self::Standby),
            "prefer-standby" => Some(Self::PreferStandby),
            _ => None,
        }
    }

    const fn accepts(self, is_standby: bool) -> bool {
        match self {
            Self::Primary => !is_standby,
            Self::Standby | Self::PreferStandby => is_standby,
        }
    }

    const fn refusal(self) -> &'static str {
        match self {
            Self::Primary => {
                "cannot connect to the database: no server is a primary, and target_session_attrs=primary; name the primary, too"
            }
            Self::Standby | Self::PreferStandby => {
                "cannot connect to the database: no server is a standby, and target_session_attrs=standby; name a standby, too, or use target_session_attrs=prefer-standby"
            }
        }
    }
}

/// Connects to the first server of `config` in the state `role`. If there is none, returns the error of the
/// last connection that failed, or else one that names the state.
pub(super) async fn connect(
    config: &Config,
    tls: &TlsSettings,
    role: ServerRole,
) -> Result<Client, StoreError> {
    let mut refusal = None;
    for index in 0..config.get_hosts().len() {
        match open(&one_server(config, index), tls).await {
            Ok(client) if role.accepts(is_standby(&client).await?) => return Ok(client),
            Ok(_) => {}
            Err(error) => refusal = Some(error),
        }
    }
    if role == ServerRole::PreferStandby {
        return open(config, tls).await;
    }
    Err(refusal.unwrap_or_else(|| StoreError::Unusable(role.refusal().to_owned())))
}

async fn is_standby(client: &Client) -> Result<bool, StoreError> {
    let row = client.query_one("SELECT pg_is_in_recovery()", &[]).await;
    Ok(row.context("connect to the database")?.get(0))
}

/// Returns the configuration with one of its servers. The library cannot remove servers from a configuration.
fn one_server(config: &Config, index: usize) -> Config {
    let mut one = Config::new();
    match config.get_hosts().get(index) {
        Some(Host::Tcp(name)) => drop(one.host(name)),
        Some(Host::Unix(path)) => drop(one.host_path(path)),
        None => {}
    }
    if let Some(address) = config.get_hostaddrs().get(index) {
        one.hostaddr(*address);
    }
    if let Some(port) = config.get_ports().get(index).or(config.get_ports().first()) {
        one.port(*port);
    }
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(database) = config.get_dbname() {
        one.dbname(database);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        one.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    one
}
