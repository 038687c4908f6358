//! `--check --user NAME`: checks a configuration with the rights of the user who will run the program.

use std::ffi::CString;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{User, geteuid, initgroups, setgid, setuid};
use rustix::fs::{Access, access};

/// The reason for which a program cannot check as another user.
#[derive(Debug, thiserror::Error)]
pub enum BecomeUserError {
    /// The name service failed.
    #[error("cannot look up the user `{name}`: {errno}")]
    Lookup {
        /// The user's name.
        name: String,
        /// The reason.
        errno: Errno,
    },
    /// There is no such user.
    #[error("cannot check as user `{0}`: this system has no such user")]
    Unknown(String),
    /// The process has no permission to become the user.
    #[error("cannot check as user `{name}`: {errno}; run the check as root")]
    Denied {
        /// The user's name.
        name: String,
        /// The reason.
        errno: Errno,
    },
}

/// Becomes the user `name`, with its groups, for the rest of the process's life.
///
/// # Errors
/// Returns an error if there is no such user, or this process may not become it.
pub fn become_user(name: &str) -> Result<(), BecomeUserError> {
    let lookup = |errno| BecomeUserError::Lookup { name: name.to_owned(), errno };
    let user = User::from_name(name).map_err(lookup)?;
    let user = user.ok_or_else(|| BecomeUserError::Unknown(name.to_owned()))?;
    if user.uid == geteuid() && !geteuid().is_root() {
        return Ok(());
    }
    let switch = || {
        let c_name = CString::new(name).map_err(|_nul| Errno::EINVAL)?;
        initgroups(&c_name, user.gid)?;
        setgid(user.gid)?;
        setuid(user.uid)
    };
    switch().map_err(|errno| BecomeUserError::Denied { name: name.to_owned(), errno })
}

/// Returns a message if this user cannot create files in `directory`, which is the value of the key `key`. A
/// missing directory is not checked: systemd creates a service's directories when it starts.
pub fn directory_fault(key: &str, directory: &Path) -> Option<String> {
    let directory = if directory == Path::new("") { Path::new(".") } else { directory };
    if !directory.exists() {
        return None;
    }
    let error = access(directory, Access::WRITE_OK | Access::EXEC_OK).err()?;
    let (directory, uid) = (directory.display(), geteuid());
    Some(format!("cannot write into {directory}, for `{key}`: {error}; type: chown {uid} {directory}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_unknown_users() {
        let error = become_user("no.such user").unwrap_err().to_string();
        assert_eq!(error, "cannot check as user `no.such user`: this system has no such user");
    }

    #[test]
    fn checks_only_directories_that_exist() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(directory_fault("spool", directory.path()), None);
        assert_eq!(directory_fault("spool", &directory.path().join("absent")), None);
        // No user can create files in sysfs, not even root.
        let fault = directory_fault("spool", Path::new("/sys/kernel"));
        assert!(geteuid().is_root() || fault.is_some_and(|fault| fault.contains("for `spool`")));
    }
}
