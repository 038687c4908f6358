//! A user without rights, with copies of the programs in a directory that every user can read.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{install, program};

const UID: u32 = 65534;

/// The user, with the programs of each test and a home of its own. Needs root.
#[derive(Debug)]
pub struct OrdinaryUser {
    directory: tempfile::TempDir,
}

impl Default for OrdinaryUser {
    fn default() -> Self {
        Self::new()
    }
}

impl OrdinaryUser {
    /// Installs `polymeter` and `e2e-workload`, and creates the home.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["polymeter", "e2e-workload"] {
            install(Path::new(program(name).get_program()), &directory.path().join(name));
        }
        let home = directory.path().join("home");
        fs::create_dir(&home).unwrap();
        chown(&home, Some(UID), Some(UID)).unwrap();
        Self { directory }
    }

    /// Path of a program, or of the user's `home`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Builds a command of this user, in the home, with the programs in its search path.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={UID}"), &format!("--regid={UID}"), "--clear-groups"]).arg(name);
        let path = format!("{}:/usr/bin:/bin", self.directory.path().display());
        let home = self.path("home");
        command.current_dir(&home).env("HOME", home).env("PATH", path).env("TMPDIR", std::env::temp_dir());
        command
    }
}
