//! Where the store is, as it is written in a configuration.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tokio_postgres::config::Host;

use crate::error::chain;
use crate::{StoreError, postgres};

/// Where the store is: `sqlite:PATH`, a `postgres://` URL, or libpq's `key=value` words.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A file of SQLite, which is created when it is missing.
    Sqlite(PathBuf),
    /// A database of PostgreSQL.
    Postgres(Box<tokio_postgres::Config>),
}

/// Why a text does not say where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidStoreUrl {
    why: String,
}

impl FromStr for StoreUrl {
    type Err = InvalidStoreUrl;

    fn from_str(text: &str) -> Result<Self, InvalidStoreUrl> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" => Err(InvalidStoreUrl { why: "`sqlite:` names no file".to_owned() }),
                ":memory:" => {
                    Err(InvalidStoreUrl { why: "a store in memory could not be read by anybody".to_owned() })
                }
                path => Ok(Self::Sqlite(path.into())),
            };
        }
        let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
        let is_words = text.split_whitespace().next().is_some_and(|word| word.contains('='));
        if !is_url && !is_words {
            // It may hold a password, so that it is not repeated.
            return Err(InvalidStoreUrl { why: "it begins as none of them".to_owned() });
        }
        let config: tokio_postgres::Config =
            text.parse().map_err(|error: tokio_postgres::Error| InvalidStoreUrl { why: chain(&error) })?;
        if config.get_hosts().is_empty() {
            return Err(InvalidStoreUrl {
                why: "it names no host; for a Unix socket write host=/run/postgresql".to_owned(),
            });
        }
        Ok(Self::Postgres(Box::new(config)))
    }
}

impl StoreUrl {
    /// Returns the URL of a file of SQLite.
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self::Sqlite(path.into())
    }

    /// Returns the file; none where the store is on a server.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(path) => Some(path),
            Self::Postgres(_) => None,
        }
    }

    /// Returns true if several connections can write at the same time.
    pub const fn has_parallel_writers(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Connects to the server and disconnects. Does nothing where the store is a file.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses this user.
    pub fn probe(&self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(config) => postgres::event_loop()?.block_on(postgres::connect(config)).map(drop),
        }
    }
}

/// Without the password.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(config) => {
                write!(f, "PostgreSQL")?;
                if let Some(database) = config.get_dbname() {
                    write!(f, " database {database}")?;
                }
                match config.get_hosts().first() {
                    Some(Host::Tcp(host)) => write!(f, " on {host}"),
                    Some(Host::Unix(path)) => write!(f, " at {}", path.display()),
                    None => Ok(()),
                }
            }
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

impl fmt::Display for InvalidStoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: write sqlite:PATH, postgres://USER@HOST/DATABASE, or words such as host=/run/postgresql dbname=polymeter user=polymeter",
            self.why
        )
    }
}

impl std::error::Error for InvalidStoreUrl {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_form() {
        assert_eq!("sqlite:a/b.db".parse(), Ok(StoreUrl::Sqlite("a/b.db".into())));
        assert_eq!("sqlite:///var/lib/p.db".parse(), Ok(StoreUrl::Sqlite("/var/lib/p.db".into())));
        for text in [
            "postgres://polymeter:secret@db.example/metrics",
            "postgresql:///metrics?host=/run/postgresql&user=polymeter",
            "host=/run/postgresql dbname=metrics user=polymeter password=secret",
        ] {
            let url: StoreUrl = text.parse().unwrap();
            assert!(matches!(url, StoreUrl::Postgres(_)), "{text}");
            assert!(url.to_string().contains("database metrics"), "{url}");
            assert!(!format!("{url} {url:?}").contains("secret"));
        }
    }

    #[test]
    fn refuses_the_rest_and_says_what_is_allowed() {
        for text in [
            "",
            "sqlite:",
            "sqlite::memory:",
            "mysql://x",
            "/var/lib/p.db",
            "postgres:///db",
            "postgres://h/db?colour=red",
        ] {
            let error = text.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(error.contains("sqlite:PATH") && error.contains("postgres://"), "{text}: {error}");
        }
        let error = "postgrse://u:secret@h/d".parse::<StoreUrl>().unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
