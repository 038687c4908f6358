//! URL of a store, which selects its backend.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::backend::{
    AdministrationSession, Backend, InvalidStoreUrl, MaintenanceSession, Opened, OpenedToRead,
};
use crate::{ClockLinks, Maintenance, OpenOptions, Retention, StoreError, postgres, schema_check, sqlite};

/// Parser of a backend for URLs: returns none for a URL of another backend.
type ParseUrl = fn(&str) -> Option<Result<Arc<dyn Backend>, InvalidStoreUrl>>;

/// A new backend is a directory and a line here.
const BACKENDS: &[ParseUrl] = &[sqlite::parse_url, postgres::parse_url];

/// URL of a store: `sqlite:PATH`, a `postgres://` URL, or libpq's `key=value` words.
#[derive(Clone)]
pub struct StoreUrl {
    /// May contain a password.
    text: String,
    backend: Arc<dyn Backend>,
}

impl FromStr for StoreUrl {
    type Err = InvalidStoreUrl;

    fn from_str(text: &str) -> Result<Self, InvalidStoreUrl> {
        let parsed = BACKENDS.iter().find_map(|parse| parse(text));
        let backend = parsed.ok_or_else(|| InvalidStoreUrl::because("unknown kind of store"))??;
        Ok(Self { text: text.to_owned(), backend })
    }
}

impl StoreUrl {
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        let backend = sqlite::Sqlite::new(path.into());
        Self { text: backend.to_string(), backend: Arc::new(backend) }
    }

    /// Returns none if the store is on a server.
    pub fn file(&self) -> Option<&Path> {
        self.backend.file()
    }

    /// Returns true if several connections can write at the same time.
    pub fn has_parallel_writers(&self) -> bool {
        self.backend.has_parallel_writers()
    }

    /// Returns true if the URL itself contains a password, so that a file with the URL must be protected.
    pub fn has_password(&self) -> bool {
        self.backend.has_password()
    }

    /// Connects and disconnects, to test whether the store can be reached.
    pub fn probe(&self) -> Result<(), StoreError> {
        self.backend.probe()
    }

    /// Starts the maintenance that the store needs besides the writers. It writes the policy for retention
    /// into the store; without one, the store's own stays in force. `clock` tells whether the database's time
    /// is plausible.
    pub fn start_maintenance(
        &self,
        retention: Option<Retention>,
        clock: ClockLinks,
    ) -> Result<Maintenance, StoreError> {
        Maintenance::start(Arc::clone(&self.backend), retention, clock)
    }

    pub(crate) fn open(&self, options: &OpenOptions) -> Result<Opened, StoreError> {
        self.backend.open(options)
    }

    pub(crate) fn open_to_read(&self) -> Result<OpenedToRead, StoreError> {
        self.backend.open_to_read()
    }

    pub(crate) fn open_to_administer(&self) -> Result<AdministrationSession, StoreError> {
        self.backend.open_to_administer()
    }

    /// Connects to administer a store that has the schema of this program.
    pub(crate) fn open_current_version(&self) -> Result<AdministrationSession, StoreError> {
        schema_check::check(&mut *self.open_to_read()?.connection, || self.without_tables())?;
        self.open_to_administer()
    }

    pub(crate) fn open_for_maintenance(&self) -> Result<Option<MaintenanceSession>, StoreError> {
        self.backend.open_for_maintenance()
    }

    pub(crate) fn without_tables(&self) -> StoreError {
        self.backend.without_tables()
    }
}

impl PartialEq for StoreUrl {
    fn eq(&self, other: &Self) -> bool {
        // Different spellings of a path are equal; otherwise the whole texts must be, including passwords.
        self.text == other.text || self.file().is_some() && self.file() == other.file()
    }
}

impl Eq for StoreUrl {}

/// Address of the store, without a password.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backend.fmt(f)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_form() {
        assert_eq!("sqlite:a/b.db".parse(), Ok(StoreUrl::sqlite("a/b.db")));
        assert_eq!("sqlite:///var/lib/p.db".parse(), Ok(StoreUrl::sqlite("/var/lib/p.db")));
        for text in [
            "postgres://polymeter:secret@db.example/metrics",
            "postgresql:///metrics?host=/run/postgresql&user=polymeter",
            "host=/run/postgresql dbname=metrics user=polymeter password=secret",
        ] {
            let url: StoreUrl = text.parse().unwrap();
            assert!(url.has_parallel_writers() && url.file().is_none(), "{text}");
            assert!(url.to_string().contains("database metrics"), "{url}");
            assert!(!format!("{url} {url:?}").contains("secret"));
        }
    }

    #[test]
    fn names_that_mean_something_to_sqlite_are_files() {
        for (name, path) in [
            (":memory:", "./:memory:"),
            ("file:x?mode=memory", "./file:x?mode=memory"),
            ("file.db", "file.db"),
            ("/srv/file:x", "/srv/file:x"),
        ] {
            assert_eq!(StoreUrl::sqlite(name).file(), Some(Path::new(path)), "{name}");
        }
        assert_eq!("sqlite:file:x".parse(), Ok(StoreUrl::sqlite("file:x")));
    }

    #[test]
    fn urls_with_another_password_differ() {
        let url = |password: &str| format!("postgres://u:{password}@h/d").parse::<StoreUrl>().unwrap();
        assert_eq!(url("a"), url("a"));
        assert_ne!(url("a"), url("b"));
    }

    #[test]
    fn refuses_other_text_and_names_the_forms() {
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
