//! Environment variables of libpq that are honoured, and the home directory.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

/// Variables whose values are defaults of connection parameters. The server and the database are always named
/// in the connection string.
const DEFAULTS: [(&str, &str); 6] = [
    ("PGPASSWORD", "password"),
    ("PGPASSFILE", "passfile"),
    ("PGSSLMODE", "sslmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLKEY", "sslkey"),
];

/// Environment of the process. Tests replace it.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    pub(super) defaults: Vec<(String, String)>,
    /// Home directory; none if this user may not enter it.
    pub(super) home: Option<PathBuf>,
}

impl Environment {
    pub(super) fn of_process() -> Self {
        let defaults = DEFAULTS.into_iter().filter_map(|(name, word)| {
            let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
            Some((word.to_owned(), value))
        });
        let home = std::env::home_dir().filter(|home| home.is_absolute() && can_enter(home));
        Self { defaults: defaults.collect(), home }
    }
}

/// Returns false if this user may not enter a directory. `HOME` is another user's in a program that has
/// changed its user, or was started by one that has.
fn can_enter(directory: &Path) -> bool {
    access(directory, Access::EXEC_OK) != Err(Errno::ACCESS)
}
