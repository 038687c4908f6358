//! The environment variables of libpq that are honoured, and the files in the home directory.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

/// The variables whose values are defaults of connection parameters. The server and the database are always
/// named in the connection string or the service file.
const DEFAULTS: [(&str, &str); 7] = [
    ("PGPASSWORD", "password"),
    ("PGPASSFILE", "passfile"),
    ("PGSERVICE", "service"),
    ("PGSSLMODE", "sslmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLKEY", "sslkey"),
];

/// The system's service file, unless `PGSYSCONFDIR` names another directory.
const SYSTEM_DIRECTORY: &str = "/etc/postgresql-common";

/// The environment of the process. Tests replace it.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    /// The defaults of connection parameters.
    pub(super) defaults: Vec<(String, String)>,
    /// The service files, the user's before the system's. Files that do not exist are skipped, unless a
    /// variable names one.
    pub(super) service_files: Vec<PathBuf>,
    /// The home directory; none if this user may not enter it.
    pub(super) home: Option<PathBuf>,
}

impl Environment {
    /// Returns the environment of this process.
    pub(super) fn of_process() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let defaults =
            DEFAULTS.into_iter().filter_map(|(name, word)| Some((word.to_owned(), variable(name)?)));
        let home = std::env::home_dir().filter(|home| home.is_absolute() && can_enter(home));
        let of_user = variable("PGSERVICEFILE")
            .map(PathBuf::from)
            .or_else(|| Some(home.as_ref()?.join(".pg_service.conf")));
        let directory = variable("PGSYSCONFDIR").unwrap_or_else(|| SYSTEM_DIRECTORY.to_owned());
        let of_system = PathBuf::from(directory).join("pg_service.conf");
        Self {
            defaults: defaults.collect(),
            service_files: of_user.into_iter().chain([of_system]).collect(),
            home,
        }
    }

    /// Returns the path of a file in the directory that libpq searches by default.
    pub(super) fn in_postgresql_directory(&self, name: &str) -> Option<PathBuf> {
        Some(self.home.as_ref()?.join(".postgresql").join(name))
    }
}

/// Returns false if this user may not enter a directory. `HOME` is another user's in a program that has
/// changed its user, or was started by one that has.
fn can_enter(directory: &Path) -> bool {
    access(directory, Access::EXEC_OK) != Err(Errno::ACCESS)
}
