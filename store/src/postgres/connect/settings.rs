//! Parameters of connections: those of the connection string and the environment.

use std::fmt;
use std::path::PathBuf;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::environment::Environment;
use super::error::SettingsError;
use super::password_file::{self, Login};
use super::server_role::ServerRole;
use super::tls::{self, TlsMode, TlsSettings};
use super::words::{self, Word};
use crate::StoreError;
use crate::error::chain;

const PORT: u16 = 5432;

const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

#[derive(Clone)]
pub(in crate::postgres) struct Settings {
    config: Config,
    tls: TlsSettings,
    role: Option<ServerRole>,
    /// True if the text itself contains the password.
    has_password: bool,
    /// File in which the password is searched if none is given, and true if it must exist.
    password_file: Option<(PathBuf, bool)>,
}

/// Parameters that the client library does not know.
#[derive(Debug, Default)]
struct OwnWords {
    words: Vec<Word>,
}

const OWN: [&str; 6] = ["sslmode", "sslrootcert", "sslcert", "sslkey", "passfile", "target_session_attrs"];

/// Parameters of libpq that are refused with a reason, since ignoring them could be unsafe.
const REFUSED: [(&str, &str); 6] = [
    (
        "sslpassword",
        "encrypted keys are not supported; use a key file without a password, with the permissions 600",
    ),
    ("sslcrl", "revocation lists are not supported"),
    ("sslcrldir", "revocation lists are not supported"),
    ("gssencmode", "GSSAPI encryption is not supported; use TLS"),
    ("service", "service files are not read; name the parameters, and the password in ~/.pgpass"),
    ("replication", "replication connections are not supported"),
];

impl Settings {
    /// Parses a URL, or words `key=value`, without reading a file. The error does not repeat passwords.
    pub(in crate::postgres) fn parse(text: &str) -> Result<Self, SettingsError> {
        Self::parse_with(text, &Environment::of_process())
    }

    fn parse_with(text: &str, environment: &Environment) -> Result<Self, SettingsError> {
        let (mut config, mut own) = parse_text(text)?;
        let has_password = config.get_password().is_some();
        own.words.extend(environment.defaults.iter().cloned());
        if config.get_password().is_none()
            && let Some(password) = own.get("password")
        {
            config.password(password);
        }
        if config.get_hosts().is_empty() {
            return Err(SettingsError::invalid("missing host; for a Unix socket write host=/run/postgresql"));
        }
        let tls = tls_settings(&own)?;
        config.ssl_mode(match tls.mode {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        let (attributes, role) = server_state(own.get("target_session_attrs").unwrap_or("any"))?;
        config.target_session_attrs(attributes);
        let named = own.get("passfile").map(|path| (PathBuf::from(path), true));
        let password_file = named.or_else(|| Some((environment.home.as_ref()?.join(".pgpass"), false)));
        Ok(Self { config, tls, role, has_password, password_file })
    }

    pub(in crate::postgres) fn database(&self) -> Option<&str> {
        self.config.get_dbname()
    }

    pub(in crate::postgres) const fn has_password(&self) -> bool {
        self.has_password
    }

    pub(super) const fn tls(&self) -> &TlsSettings {
        &self.tls
    }

    /// Returns the state that the server must have, if the client library cannot check it.
    pub(super) const fn role(&self) -> Option<ServerRole> {
        self.role
    }

    /// Returns the configuration of the client library, with the password from the password file. Reads the
    /// file at each call, so that a new password counts at the next connection.
    pub(super) fn config(&self) -> Result<Config, StoreError> {
        let mut config = self.config.clone();
        if config.get_password().is_none()
            && let Some(password) = self.password_from_file()?
        {
            config.password(password);
        }
        Ok(config)
    }

    fn password_from_file(&self) -> Result<Option<String>, SettingsError> {
        let Some((path, must_exist)) = &self.password_file else { return Ok(None) };
        let Some(text) = password_file::read(path)? else {
            return if *must_exist {
                Err(SettingsError::file("read the password file", path, "no such file"))
            } else {
                Ok(None)
            };
        };
        let config = &self.config;
        let user = config.get_user().unwrap_or_default();
        let database = config.get_dbname().unwrap_or(user);
        let ports = config.get_ports();
        let mut found: Vec<String> = Vec::new();
        for (index, host) in config.get_hosts().iter().enumerate() {
            let host = match host {
                Host::Tcp(host) => host.as_str(),
                Host::Unix(_) => "localhost",
            };
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(PORT);
            found.extend(password_file::find(&text, Login { host, port, database, user }));
        }
        found.dedup();
        match found.as_slice() {
            [] => Ok(None),
            [password] => Ok(Some(password.clone())),
            _ => Err(SettingsError::file(
                "use the password file",
                path,
                "it has different passwords for the hosts; give all hosts the same password",
            )),
        }
    }
}

/// Address of the server, without a password.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => write!(f, " on {host}")?,
            Some(Host::Unix(path)) => write!(f, " at {}", path.display())?,
            None => {}
        }
        match self.config.get_hosts().len().saturating_sub(1) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl OwnWords {
    fn get(&self, wanted: &str) -> Option<&str> {
        self.words.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }
}

fn parse_text(text: &str) -> Result<(Config, OwnWords), SettingsError> {
    if !SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
        let (own, others) = divide(words::split(text)?)?;
        return Ok((library_config(&words::join(&others))?, own));
    }
    let (base, query) = text.split_once('?').unwrap_or((text, ""));
    let (own, others) = divide(words::split_query(query)?)?;
    let text =
        if others.is_empty() { base.to_owned() } else { format!("{base}?{}", words::join_query(&others)) };
    Ok((library_config(&text)?, own))
}

fn library_config(text: &str) -> Result<Config, SettingsError> {
    text.parse().map_err(|error: tokio_postgres::Error| SettingsError::Invalid(chain(&error)))
}

/// Separates the parameters that the client library does not know.
fn divide(all: Vec<Word>) -> Result<(OwnWords, Vec<Word>), SettingsError> {
    for (name, _) in &all {
        if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| refused == name) {
            return Err(SettingsError::Invalid(format!("unsupported parameter `{name}`: {reason}")));
        }
    }
    let (own, others) = all.into_iter().partition(|(name, _)| OWN.contains(&name.as_str()));
    Ok((OwnWords { words: own }, others))
}

/// Divides `target_session_attrs` into the part that the client library checks, and the part that it does not
/// know.
fn server_state(value: &str) -> Result<(TargetSessionAttrs, Option<ServerRole>), SettingsError> {
    match value {
        "any" => Ok((TargetSessionAttrs::Any, None)),
        "read-write" => Ok((TargetSessionAttrs::ReadWrite, None)),
        "read-only" => Ok((TargetSessionAttrs::ReadOnly, None)),
        _ => match ServerRole::parse(value) {
            Some(role) => Ok((TargetSessionAttrs::Any, Some(role))),
            None => Err(SettingsError::Invalid(format!(
                "unknown target_session_attrs `{}`: expected `any`, `read-write`, `read-only`, `primary`, `standby` or `prefer-standby`",
                value.escape_debug()
            ))),
        },
    }
}

fn tls_settings(own: &OwnWords) -> Result<TlsSettings, SettingsError> {
    let mode = own.get("sslmode").map_or(Ok(TlsMode::Prefer), str::parse)?;
    let file = |word: &str| own.get(word).map(PathBuf::from);
    let root = match own.get("sslrootcert") {
        Some("system") => Some(tls::Root::System),
        path => path.map(|path| tls::Root::File(path.into())),
    };
    if root.is_none() && matches!(mode, TlsMode::VerifyCa | TlsMode::VerifyFull) {
        return Err(SettingsError::invalid(
            "missing root certificate: sslmode=verify-full requires sslrootcert=FILE, or sslrootcert=system \
             for the certificates of the operating system",
        ));
    }
    // As in libpq, a weaker mode could be redirected to any server with a publicly trusted certificate.
    if root == Some(tls::Root::System) && mode != TlsMode::VerifyFull {
        return Err(SettingsError::invalid("sslrootcert=system requires sslmode=verify-full"));
    }
    let (certificate, key) = (file("sslcert"), file("sslkey"));
    if certificate.is_some() && key.is_none() {
        return Err(SettingsError::invalid("missing sslkey=FILE, the key of the client certificate"));
    }
    Ok(TlsSettings { mode, root, client: certificate.zip(key) })
}

#[cfg(test)]
mod tests;
