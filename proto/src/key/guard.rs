//! Check that no other user could have read or changed a file.

use std::path::{Path, PathBuf};

/// Permission bits of the group and of other users to read, write or execute.
const OTHERS: u32 = 0o077;

/// Permission bits of the group and of other users to write.
const OTHERS_WRITE: u32 = 0o022;

/// Owner and mode of a file, and the user of this process.
#[derive(Debug, Clone, Copy)]
pub struct Guard {
    pub owner: u32,
    pub mode: u32,
    pub user: u32,
    /// User id of [`SERVICE_USER`], if it exists. Root accepts that user's files like its own, since a prolog
    /// starts agents as root.
    pub service: Option<u32>,
}

/// User of the daemons when they run as services (`deploy/systemd`).
pub const SERVICE_USER: &str = "polymeter";

impl Guard {
    /// Returns true if the check needs the user id of [`SERVICE_USER`].
    pub const fn asks_for_service(self) -> bool {
        self.user == 0 && self.owner != 0
    }

    /// Checks that only root and this user can know the content of the file at `path`. The error contains the
    /// command that corrects the permissions.
    pub fn keeps_secret(self, path: &Path) -> Result<(), Exposed> {
        self.check(path, OTHERS, "600", "other users can read or change it")
    }

    /// Checks that only root and this user can have changed the file or directory at `path`. The error
    /// contains the command that corrects the permissions.
    pub fn keeps_intact(self, path: &Path) -> Result<(), Exposed> {
        self.check(path, OTHERS_WRITE, "go-w", "other users can change it")
    }

    fn check(
        self,
        path: &Path,
        forbidden: u32,
        chmod: &'static str,
        what: &'static str,
    ) -> Result<(), Exposed> {
        let is_services = self.user == 0 && Some(self.owner) == self.service;
        let foreign = self.owner != 0 && self.owner != self.user && !is_services;
        let (what, remedy) = match (foreign, self.mode & forbidden) {
            (true, _) => (
                "its owner is neither root nor the user that runs this program",
                format!("chown {}", self.user),
            ),
            (false, 0) => return Ok(()),
            (false, _) => (what, format!("chmod {chmod}")),
        };
        Err(Exposed { what, remedy, path: path.to_owned() })
    }
}

/// File that other users can read or change, and must not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; type: {remedy} {}", path.display())]
pub struct Exposed {
    what: &'static str,
    remedy: String,
    path: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(owner: u32, mode: u32, user: u32) -> Result<(), String> {
        Guard { owner, mode, user, service: Some(9) }
            .keeps_secret(Path::new("/k"))
            .map_err(|exposed| exposed.to_string())
    }

    fn intact(owner: u32, mode: u32, user: u32) -> Result<(), String> {
        Guard { owner, mode, user, service: Some(9) }
            .keeps_intact(Path::new("/k"))
            .map_err(|exposed| exposed.to_string())
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        assert_eq!(secret(7, 0o100_600, 7), Ok(()));
        assert_eq!(secret(0, 0o100_400, 7), Ok(()));
        for mode in [0o640, 0o604, 0o620, 0o602, 0o610, 0o601] {
            let error = secret(7, mode, 7).unwrap_err();
            assert_eq!(error, "other users can read or change it; type: chmod 600 /k", "{mode:o}");
        }
        assert_eq!(
            secret(8, 0o600, 7).unwrap_err(),
            "its owner is neither root nor the user that runs this program; type: chown 7 /k"
        );
        assert!(secret(8, 0o600, 0).is_err());
    }

    #[test]
    fn only_root_accepts_files_of_the_service_user() {
        assert_eq!((secret(9, 0o600, 0), secret(9, 0o600, 9), secret(0, 0o600, 9)), (Ok(()), Ok(()), Ok(())));
        assert!(secret(9, 0o600, 7).is_err());
        assert!(secret(9, 0o640, 0).is_err() && intact(9, 0o664, 0).is_err());
        let without_service = Guard { owner: 9, mode: 0o600, user: 0, service: None };
        assert!(without_service.keeps_secret(Path::new("/k")).is_err());
    }

    #[test]
    fn a_file_that_others_can_change_is_refused() {
        assert_eq!((intact(7, 0o644, 7), intact(0, 0o40_755, 7)), (Ok(()), Ok(())));
        assert_eq!(intact(7, 0o664, 7).unwrap_err(), "other users can change it; type: chmod go-w /k");
        assert!(intact(7, 0o646, 7).is_err() && intact(8, 0o644, 7).is_err());
    }
}
